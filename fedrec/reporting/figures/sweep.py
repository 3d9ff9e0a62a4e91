"""Sweeps: metrics over the values of a setting, with the paper's own value marked."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedrec.config.methods import resolve, title
from fedrec.config.papers import Artefact, Line
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import ArtefactRuns, split_sizes
from fedrec.reporting.figures.caption import metrics_of_part, under_protocols
from fedrec.reporting.figures.chart import Drawn, build_figure, chart
from fedrec.reporting.figures.drawing import draw_rings, draw_swept, label_panels, ring_handle, series_of
from fedrec.reporting.figures.figure_data import line_rows, over_seeds_columns, part_of, setting_columns
from fedrec.reporting.figures.panels import (
    LEAST_SPAN,
    PanelKey,
    distinct,
    legend,
    metric_panels,
    no_flatter_than,
    setting_axis,
)
from fedrec.reporting.figures.style import MUTED, looks
from fedrec.reporting.parameters import megabytes, numbers_held
from fedrec.reporting.provenance import mean_over_seeds
from fedrec.reporting.tables.table import Row
from fedrec.runs.record import RunRecord

LAYOUT = Layout("figure", needs=("runs",), optional={"client_space_over": ("splits", "models")})
EXTRA_SPACE = "extra_space_client"
"""The name in place of a metric, in the rows of `client_space_over`."""
_SPACE_LINE = {"linestyle": (0, (3.2, 1.4)), "color": MUTED, "linewidth": 0.9, "marker": "none"}


def build(target: Target, project: Project) -> None:
    """Draw the sweep of an artefact."""
    build_figure(target, project, draw)


def draw(subject: ArtefactRuns) -> Drawn:
    """The figure, its rows and its caption."""
    rows = line_rows(subject, sweep_rows)
    return chart(subject, rows, _figure_of, _shown(subject.artefact, rows))


def sweep_rows(subject: ArtefactRuns, line: Line, records: Sequence[RunRecord]) -> Iterator[Row]:
    """One row per metric: with `part: validation` its best value, else test at the reported round."""
    part = part_of(subject.artefact)
    axis = setting_columns(subject, line, records[0].id.dataset)
    rules = {
        record.id: "best_validation" if part == "validation" else record.round_rule for record in records
    }
    numbered = [record for record in records if record.has_numbers(rules[record.id])]
    for metric in subject.artefact.metrics if numbered else ():
        values = [record.metric(metric, part, rules[record.id]) for record in numbered]
        rounds = [record.summary["rounds"][rules[record.id]] for record in numbered]
        numbers = over_seeds_columns(metric, values, records)
        yield axis | {"part": part, **numbers, "round": mean_over_seeds(rounds).mean}
    if numbered and "client_space_over" in subject.artefact.options:
        yield axis | _extra_space(subject, records)


def _extra_space(subject: ArtefactRuns, records: Sequence[RunRecord]) -> dict[str, Any]:
    """The space of a client beyond that of the method `client_space_over`, by counting parameters."""
    over, first = subject.artefact.options["client_space_over"], records[0]
    plain, _, _ = resolve(subject.methods, over, subject.artefact.paper, first.id.dataset)
    sizes = split_sizes(first, subject.data)
    client, _ = numbers_held(first.id.method, first.settings, *sizes)
    base, _ = numbers_held(over, plain, *sizes)
    extra = [megabytes(client - base)] * len(records)
    return over_seeds_columns(EXTRA_SPACE, extra, records) | {
        "unit": "MB",
        "over": title(subject.methods, over),
    }


def _figure_of(artefact: Artefact, every: Sequence[Row]) -> Figure:
    """A row of panels per dataset: for each metric, the protocols side by side."""
    rows = [row for row in every if row["metric"] != EXTRA_SPACE]
    spaces = [row for row in every if row["metric"] == EXTRA_SPACE]
    figure, axes = metric_panels(artefact, rows, share=False)
    look = looks(row["method"] for row in rows)
    series = series_of(rows, "method", "label")
    values = distinct(row["x"] for row in rows)
    for (method, label), lines in series.items():
        for key, points in lines.items():
            positions = setting_axis(axes[key], values)
            draw_swept(axes[key], [(positions[row["x"]], row) for row in points], look[method], label)
            own = [row for row in points if row["own"] != "no"]
            draw_rings(axes[key], [(positions[row["x"]], row["mean"]) for row in own])
            if part_of(artefact) == "validation" and key[2] == artefact.metrics[0]:
                _draw_rounds(axes[key], [(positions[row["x"]], row) for row in points])
    for ax in axes.values():
        no_flatter_than(ax, LEAST_SPAN)
    label_panels(axes, rows[0]["axis"], artefact.metrics)
    handles = [look[method].handle(label) for method, label in series]
    if spaces:
        _draw_space(axes, spaces, values)
        handles.append(Line2D([], [], label=space_title(spaces), **_SPACE_LINE))  # type: ignore[arg-type]
    if marked := own_title(rows):
        handles.append(ring_handle(marked))
    legend(figure, handles)
    return figure


def _shown(artefact: Artefact, rows: Sequence[Row]) -> str:
    """The sentences of the caption that describe the sweep."""
    part, setting, under = part_of(artefact), artefact.options["setting"], under_protocols(artefact)
    metrics, marked = metrics_of_part(artefact, part), own_title(rows)
    marks = f" A ring marks {marked}." if marked else ""
    spaces = [row for row in rows if row["metric"] == EXTRA_SPACE]
    if spaces:
        marks += f" Dashed: {space_title(spaces)}, 4 bytes a number, MB of 2^20 bytes."
    if part == "validation":
        return f"{metrics} at their best round, by {setting}, {under}; small numbers are that round.{marks}"
    return f"{metrics} at the round each protocol reports, by {setting}, {under}.{marks}"


def own_title(rows: Sequence[Row]) -> str | None:
    """The description of the marked values, if there are any."""
    sources = {row["own"] for row in rows} - {"no"}
    if not sources:
        return None
    stated = sources <= {"paper", "code", "checked"}
    return "the paper's own value" if stated else "our value, since the paper gives none"


def space_title(rows: Sequence[Row]) -> str:
    """The title of the extra space."""
    return f"space of a client beyond {rows[0]['over']} (right axis)"


def _draw_space(axes: Mapping[PanelKey, Axes], rows: Sequence[Row], values: Sequence[Any]) -> None:
    """Draw the extra space behind each panel, with its scale right of the last panel of a dataset."""
    last = {key[0]: key for key in axes}
    for key, ax in axes.items():
        beside = ax.twinx()
        positions = setting_axis(ax, values)
        for lines in series_of(rows, "method").values():
            points = lines.get((*key[:2], EXTRA_SPACE), [])
            ordered = sorted((positions[row["x"]], row["mean"]) for row in points)
            beside.plot(*zip(*ordered, strict=True), **_SPACE_LINE)  # type: ignore[arg-type]
        beside.set_ylim(bottom=0)
        beside.grid(visible=False)
        at_end = key == last[key[0]]
        beside.tick_params(colors=MUTED, right=at_end, labelright=at_end)
        if at_end:
            beside.set_ylabel("extra space, MB", color=MUTED)
        # Matplotlib draws a twin axis above: metrics move in front, without their white background.
        ax.set_zorder(beside.get_zorder() + 1)
        ax.patch.set_visible(False)


def _draw_rounds(ax: Axes, points: Iterable[tuple[float, Row]]) -> None:
    """Write the round of each value above it."""
    ax.margins(y=0.16)
    for position, row in points:
        top = row["mean"] + (row["sd"] or 0.0)
        ax.annotate(
            f"{row['round']:.0f}", (position, top), (0, 3.5), textcoords="offset points",
            ha="center", va="bottom", fontsize=5, color=MUTED,
        )  # fmt: skip
