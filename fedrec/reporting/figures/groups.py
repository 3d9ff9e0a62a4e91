"""Groups of users by activity: metrics over the values of a setting, a curve per group."""

from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure

from fedrec.config.papers import Artefact, Line
from fedrec.config.protocol import short_name
from fedrec.evaluation.metrics import activity_groups
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import ArtefactRuns, split_table, training_counts
from fedrec.reporting.figures.caption import metrics_of_part, under_protocols
from fedrec.reporting.figures.chart import Drawn, build_figure, chart
from fedrec.reporting.figures.drawing import draw_rings, draw_swept, label_panels, ring_handle, series_of
from fedrec.reporting.figures.figure_data import line_rows, over_seeds_columns, setting_columns
from fedrec.reporting.figures.panels import (
    LEAST_SPAN,
    distinct,
    legend,
    metric_panels,
    no_flatter_than,
    setting_axis,
)
from fedrec.reporting.figures.style import ordered_looks
from fedrec.reporting.tables.table import Row
from fedrec.runs.record import RunRecord

LAYOUT = Layout("figure", needs=("runs", "splits"))
GROUPS = 5


def build(target: Target, project: Project) -> None:
    """Draw the groups of an artefact."""
    build_figure(target, project, draw)


def draw(subject: ArtefactRuns) -> Drawn:
    """The figure, its rows and its caption."""
    rows = line_rows(subject, group_rows)
    return chart(subject, rows, _figure_of, _shown(subject.artefact, rows))


def group_rows(subject: ArtefactRuns, line: Line, records: Sequence[RunRecord]) -> Iterator[Row]:
    """One row per group and metric: users in groups of equal size by their training interactions."""
    numbered = [record for record in records if record.has_numbers()]
    if not numbered:
        return
    axis = setting_columns(subject, line, records[0].id.dataset)
    users, counts = training_counts(split_table(records[0], subject.data)[0])
    group = activity_groups(counts, GROUPS)
    for number in range(GROUPS):
        here = group == number
        about = {
            "group": number + 1, "users": int(here.sum()),
            "least_rows": int(counts[here].min()), "most_rows": int(counts[here].max()),
        }  # fmt: skip
        for metric in subject.artefact.metrics:
            values = [record.metric_of(metric, users=users[here].tolist()) for record in numbered]
            yield axis | {"part": "test", **over_seeds_columns(metric, values, records), **about}


def _figure_of(artefact: Artefact, rows: Sequence[Row]) -> Figure:
    """A row of panels per dataset: for each metric, the protocols side by side."""
    figure, axes = metric_panels(artefact, rows, share=False)
    shades = ordered_looks(GROUPS)
    values = distinct(row["x"] for row in rows)
    for (number,), lines in series_of(rows, "group").items():
        for key, points in lines.items():
            positions = setting_axis(axes[key], values)
            swept = [(positions[row["x"]], row) for row in points]
            draw_swept(axes[key], swept, shades[number - 1], f"group {number}")
            best = max(points, key=lambda row: row["mean"])
            draw_rings(axes[key], [(positions[best["x"]], best["mean"])])
    for ax in axes.values():
        no_flatter_than(ax, LEAST_SPAN)
    label_panels(axes, rows[0]["axis"], artefact.metrics)
    names = {1: "group 1 (fewest training rows)", GROUPS: f"group {GROUPS} (most)"}
    handles = [
        shades[number].handle(names.get(number + 1, f"group {number + 1}")) for number in range(GROUPS)
    ]
    legend(figure, [*handles, ring_handle("best of the group")])
    return figure


def _shown(artefact: Artefact, rows: Sequence[Row]) -> str:
    """The sentences of the caption that describe the groups."""
    setting, under = artefact.options["setting"], under_protocols(artefact)
    return (
        f"{metrics_of_part(artefact, 'test')} at the round each protocol reports, by {setting}, {under}, for "
        f"{GROUPS} groups of users of equal size by their training rows; a ring marks a group's best.\n"
        f"{_group_sizes(rows)}"
    )


def _group_sizes(rows: Sequence[Row]) -> str:
    """A sentence on the numbers of training rows of the users in each group."""
    sizes: dict[str, dict[int, str]] = {}
    for row in rows:
        where = sizes.setdefault(f"{row['dataset']}, {short_name(row['protocol'])}", {})
        where[row["group"]] = f"{row['least_rows']}–{row['most_rows']}"
    texts = [f"{where}: {', '.join(by_group.values())}" for where, by_group in sizes.items()]
    return f"Training rows of the users of groups 1 to {GROUPS}: {'; '.join(texts)}."
