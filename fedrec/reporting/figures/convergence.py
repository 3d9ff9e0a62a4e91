"""Convergence: metrics over rounds, a curve per method."""

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedrec.audit.differences import REFERENCE
from fedrec.config.methods import canonical
from fedrec.config.names import parse
from fedrec.config.papers import Artefact, Line
from fedrec.config.protocol import short_name
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.runs import DIVERGED
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import (
    ArtefactRuns,
    artefact_runs_of,
    comparison_runs_of,
    is_of_a_paper,
    stem_of,
)
from fedrec.reporting.figures.caption import metrics_of_part, under_protocols
from fedrec.reporting.figures.chart import Drawn, chart, write_figure
from fedrec.reporting.figures.drawing import draw_curve, label_panels, panel_of, series_of
from fedrec.reporting.figures.figure_data import line_rows, mean_columns, part_of, runs_columns
from fedrec.reporting.figures.labels import spread
from fedrec.reporting.figures.panels import PanelKey, distinct, legend, metric_panels
from fedrec.reporting.figures.style import KIND_LOOKS, WIDTH, blank_figure, looks, theme
from fedrec.reporting.headline import COUNTER
from fedrec.reporting.method_scores import KIND_TITLES
from fedrec.reporting.tables.table import Row
from fedrec.runs.exact import metric_title
from fedrec.runs.method_kinds import METHOD_KINDS, MethodKind, kind_of
from fedrec.runs.record import RunRecord

LAYOUT = Layout("figure", needs=("runs", "models"), selection="comparison")
_TALL_PANEL_FROM = 10  # curves
_EXTRA_HEIGHT = 1.0  # inches
_COMPARED_HEIGHT = 3.2
_COMPARED_PANEL = 2.3  # inches of a panel in it, at the least
_NAME_HEIGHT = 0.13
_ALL_NAMED_TO = 8  # methods


def build(target: Target, project: Project) -> None:
    """Draw the curves of an artefact, or of a comparison on a dataset."""
    with theme():
        drawn = (
            draw(artefact_runs_of(target, project))
            if is_of_a_paper(target)
            else draw_compared(comparison_runs_of(target, project))
        )
        write_figure(stem_of(target, project), *drawn)


def draw(subject: ArtefactRuns) -> Drawn:
    """The figure of an artefact, its rows and its caption, with one style per method."""
    rows = line_rows(subject, curve_rows)
    return chart(subject, rows, _figure_of, _shown(subject.artefact, rows), "band")


def draw_compared(subject: ArtefactRuns) -> Drawn:
    """The figure of a comparison of many methods: a colour per kind, and labels at notable curves."""
    rows = line_rows(subject, curve_rows)
    kinds = {
        canonical(subject.methods, subject.method(subject.artefact.lines[index])): kind_of(
            subject.methods, group[0].id.method, group[0].settings
        )
        for (index, _, _), group in subject.groups.items()
    }
    labelled = _labelled_methods(rows, kinds)
    few = labelled == {row["method"] for row in rows}
    named = "" if few else "; labels name the best of each kind, popularity and draw-counter"
    shown = f"{_shown(subject.artefact, rows)} Colours: who keeps the item table{named}."
    return chart(subject, rows, lambda _, drawn: _compared_figure(drawn, kinds, labelled), shown, "")


def curve_rows(subject: ArtefactRuns, _line: Line, records: Sequence[RunRecord]) -> Iterator[Row]:
    """One row per metric and round; the curve of a run that diverged ends before it."""
    part, runs = part_of(subject.artefact), runs_columns(records)
    for metric in subject.artefact.metrics:
        rounds = records[0].curve["round"].to_list()
        curves = [record.curve[f"{part}_{metric}"].to_list() for record in records]
        for round_, *every in zip(rounds, *curves, strict=True):
            values = [
                value
                for record, value in zip(records, every, strict=True)
                if record.diverged is None or round_ < record.diverged
            ]
            if not values:
                break
            about = {"axis": "round", "x": int(round_), "part": part}
            yield about | {"metric": metric, **mean_columns(values), **runs}


def _figure_of(artefact: Artefact, rows: Sequence[Row]) -> Figure:
    """A row of panels per dataset: for each metric, the protocols side by side on one scale."""
    figure, axes = metric_panels(artefact, rows, share=True)
    look = looks(row["method"] for row in rows)
    series = series_of(rows, "method", "label")
    last: dict[PanelKey, int] = {}
    for row in rows:
        last[panel_of(row)] = max(row["x"], last.get(panel_of(row), 0))
    for number, ((method, label), lines) in enumerate(series.items()):
        for key, points in lines.items():
            draw_curve(axes[key], _level(points, last[key]), look[method], label, number / len(series))
    for ax in axes.values():
        # After all curves: a limit stops the axis from growing.
        ax.set_ylim(bottom=0)
    label_panels(axes, "round", artefact.metrics)
    if len(series) > _TALL_PANEL_FROM:
        figure.set_figheight(
            figure.get_figheight() + _EXTRA_HEIGHT * len({dataset for dataset, _, _ in axes})
        )
    legend(figure, [look[method].handle(label) for method, label in series])
    return figure


def _labelled_methods(rows: Sequence[Row], kinds: Mapping[str, MethodKind]) -> set[str]:
    """The methods with labels: all if few, else references and the best of each kind at its last round."""
    methods = {row["method"] for row in rows}
    if len(methods) <= _ALL_NAMED_TO:
        return methods
    last = {(row["method"], row["dataset"], row["protocol"]): row for row in rows}
    best: dict[tuple[str, MethodKind], Row] = {}
    for row in last.values():
        key = row["protocol"], kinds[row["method"]]
        best[key] = max(best.get(key, row), row, key=lambda one: one["mean"])
    labelled = {row["method"] for (_, kind), row in best.items() if kind != "reference"}
    return labelled | {row["method"] for row in rows if parse(row["method"]).name in (REFERENCE, COUNTER)}


def _compared_figure(
    rows: Sequence[Row], kinds: Mapping[str, MethodKind], labelled: Container[str]
) -> Figure:
    """Protocols side by side on one scale, with labels at the ends of some curves."""
    panels = distinct((row["dataset"], row["protocol"]) for row in rows)
    figure = blank_figure(WIDTH, _COMPARED_HEIGHT)
    top = 1.04 * max(row["mean"] for row in rows)
    last = max(row["x"] for row in rows)
    first: Axes | None = None
    for number, panel in enumerate(panels, start=1):
        ax = figure.add_subplot(1, len(panels), number, sharey=first)
        ax.tick_params(labelleft=first is None)
        ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=True))
        first = first or ax
        ax.set(
            xlim=(1, max(last, 2)), ylim=(0, top), title=f"{panel[0]}, {short_name(panel[1])}", xlabel="round"
        )
        ends: list[tuple[float, str, MethodKind]] = []
        for (method, label), lines in series_of(rows, "method", "label").items():
            for points in (curve for key, curve in lines.items() if key[:2] == panel):
                level = _level(points, last)
                _draw_of_kind(ax, level, kinds[method], is_labelled=method in labelled)
                if method in labelled:
                    ends.append((level[-1]["mean"], label, kinds[method]))
        _name_ends(ax, ends, level_end=max(last, 2), room=top)
    assert first is not None, "a chart without rows has no figure"
    first.set_ylabel(metric_title(rows[0]["metric"]))
    shown = [kind for kind in METHOD_KINDS if kind in kinds.values()]
    legend(figure, [KIND_LOOKS[kind].handle(KIND_TITLES[kind]) for kind in shown])
    return figure


def _draw_of_kind(ax: Axes, points: Sequence[Row], kind: MethodKind, *, is_labelled: bool) -> None:
    look = KIND_LOOKS[kind]
    weight = {"linewidth": 1.5, "zorder": 3} if is_labelled else {"linewidth": 0.8, "alpha": 0.4, "zorder": 2}
    x, y = [row["x"] for row in points], [row["mean"] for row in points]
    ax.plot(x, y, color=look.colour, linestyle=look.dash, **weight)  # type: ignore[arg-type]


def _name_ends(
    ax: Axes, ends: Sequence[tuple[float, str, MethodKind]], level_end: float, room: float
) -> None:
    """Write labels beside the ends of curves."""
    gap = room * _NAME_HEIGHT / _COMPARED_PANEL
    positions = spread([value for value, _, _ in ends], gap, 0.5 * gap, room)
    for (value, label, kind), position in zip(ends, positions, strict=True):
        colour = KIND_LOOKS[kind].colour
        ax.annotate(
            label,
            (level_end, value),
            (level_end * 1.05, position),
            va="center",
            color=colour,
            fontsize=6.5,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 0},
        )


def _shown(artefact: Artefact, rows: Sequence[Row]) -> str:
    """The sentences of the caption that describe the curves."""
    whole = [row for row in rows if DIVERGED not in row]
    rounds = Counter((row["method"], row["dataset"], row["protocol"], row["metric"]) for row in whole)
    level = " A method that trains in one round is a level line." if 1 in rounds.values() else ""
    metrics = metrics_of_part(artefact, part_of(artefact))
    return f"{metrics} after each round, {under_protocols(artefact)}.{level}"


def _level(points: Sequence[Row], last: int) -> Sequence[Row]:
    """Extend a method of one round to a level line up to the last round of others, unless it diverged."""
    is_level = len(points) == 1 and DIVERGED not in points[0]
    return [{**points[0], "x": x} for x in range(1, last + 1)] if is_level else points
