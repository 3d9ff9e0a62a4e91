"""Convergence: metrics over rounds, a curve per method."""

from collections import Counter
from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure

from fedrec.config.papers import Artefact, Line
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.figures.caption import metrics_of_part, under_protocols
from fedrec.reporting.figures.chart import Drawn, chart, write_figure
from fedrec.reporting.figures.drawing import draw_curve, label_panels, panel_of, series_of
from fedrec.reporting.figures.panels import PanelKey, legend, metric_panels
from fedrec.reporting.figures.rows import line_rows, over_seeds_columns, part_of
from fedrec.reporting.figures.style import looks, theme
from fedrec.reporting.subject import Subject, compared_subject, is_of_a_paper, stem_of, subject_of
from fedrec.reporting.tables.table import Row
from fedrec.runs.record import RunRecord

LAYOUT = Layout("figure", needs=("runs",), selection="compared")
_TALL_PANEL_FROM = 10  # curves
_EXTRA_HEIGHT = 1.0  # inches


def build(target: Target, project: Project) -> None:
    """Draw the curves of an artefact, or of the runs that are compared on a dataset."""
    of_a_paper = is_of_a_paper(target)
    with theme():
        subject = subject_of(target, project) if of_a_paper else compared_subject(target, project)
        write_figure(stem_of(target, project), *draw(subject))


def draw(subject: Subject) -> Drawn:
    """The figure, its rows and its caption."""
    rows = line_rows(subject, curve_rows)
    return chart(subject, rows, _figure_of, _shown(subject.artefact, rows), "band")


def curve_rows(subject: Subject, _line: Line, records: Sequence[RunRecord]) -> Iterator[Row]:
    """One row per metric and round."""
    part = part_of(subject.artefact)
    for metric in subject.artefact.metrics:
        rounds = records[0].curve["round"].to_list()
        curves = [record.curve[f"{part}_{metric}"].to_list() for record in records]
        for round_, *values in zip(rounds, *curves, strict=True):
            about = {"axis": "round", "x": int(round_), "part": part}
            yield about | over_seeds_columns(metric, values, records)


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


def _shown(artefact: Artefact, rows: Sequence[Row]) -> str:
    """What the caption says is seen."""
    rounds = Counter((row["method"], row["dataset"], row["protocol"], row["metric"]) for row in rows)
    level = " What is trained in one round is a level line." if 1 in rounds.values() else ""
    metrics = metrics_of_part(artefact, part_of(artefact))
    return f"{metrics} after each round, {under_protocols(artefact)}.{level}"


def _level(points: Sequence[Row], last: int) -> Sequence[Row]:
    """A method of one round is a level line up to the last round of others."""
    return [{**points[0], "x": x} for x in range(1, last + 1)] if len(points) == 1 else points
