"""Bars: metrics of the reported round, datasets on the x axis, a bar per method."""

from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from fedrec.config.papers import Artefact, Line
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import ArtefactRuns
from fedrec.reporting.exact import exact_notes
from fedrec.reporting.figures.caption import metrics_of_part, under_protocols
from fedrec.reporting.figures.chart import Drawn, build_figure, chart
from fedrec.reporting.figures.drawing import series_of
from fedrec.reporting.figures.figure_data import line_rows, over_seeds_columns
from fedrec.reporting.figures.panels import distinct, legend, protocol_title
from fedrec.reporting.figures.style import HEIGHT, WIDTH, blank_figure, looks
from fedrec.reporting.tables.table import Row
from fedrec.runs.exact import exact_name, metric_title
from fedrec.runs.record import RunRecord

LAYOUT = Layout("figure", needs=("runs",))


def build(target: Target, project: Project) -> None:
    """Draw the bars of an artefact."""
    build_figure(target, project, draw)


def draw(subject: ArtefactRuns) -> Drawn:
    """The figure, its rows and its caption."""
    rows = line_rows(subject, bar_rows)
    shown = " ".join([_shown(subject.artefact), *exact_notes(subject.records)])
    return chart(subject, rows, _figure_of, shown)


def bar_rows(subject: ArtefactRuns, _line: Line, records: Sequence[RunRecord]) -> Iterator[Row]:
    """One row per metric, and per exact metric where all runs have ranks among all items."""
    numbered = [record for record in records if record.has_numbers()]
    sampled = subject.artefact.metrics if numbered else ()
    exact = map(exact_name, sampled) if all(record.exact_metrics for record in numbered) else ()
    for metric in (*sampled, *exact):
        values = [record.metric_of(metric) for record in numbered]
        about = {"axis": "dataset", "x": records[0].id.dataset, "part": "test"}
        yield about | over_seeds_columns(metric, values, records)


def _figure_of(artefact: Artefact, rows: Sequence[Row]) -> Figure:
    """A row of panels per metric, a column per protocol."""
    protocols = [name for name in artefact.protocols if any(row["protocol"] == name for row in rows)]
    datasets = [name for name in artefact.datasets if any(row["dataset"] == name for row in rows)]
    metrics = distinct(row["metric"] for row in rows)
    look = looks(row["method"] for row in rows)
    series = series_of(rows, "method", "label")
    figure = blank_figure(WIDTH, 1.2 * HEIGHT * len(metrics) + 0.5)
    grid = figure.subplots(len(metrics), len(protocols), sharex=True, sharey="row", squeeze=False)
    width = 0.84 / len(series)
    for number, ((method, label), lines) in enumerate(series.items()):
        for (_, protocol, metric), (row,) in lines.items():
            ax = grid[metrics.index(metric)][protocols.index(protocol)]
            x = datasets.index(row["dataset"]) + (number - (len(series) - 1) / 2) * width
            ax.bar(x, row["mean"], width, yerr=row["sd"], error_kw={"elinewidth": 0.6}, label=label,
                   **look[method].bar())  # fmt: skip
    for metric, line in zip(metrics, grid, strict=True):
        line[0].set_ylabel(f"{metric_title(metric)}, %")
        for protocol, ax in zip(protocols, line, strict=True):
            ax.set_title(f"{metric_title(metric)}, {protocol_title(protocol)}")
            ax.yaxis.set_major_formatter(PercentFormatter(1, symbol=""))
            ax.set_xticks(range(len(datasets)), datasets, rotation=25, ha="right", rotation_mode="anchor")
            ax.grid(visible=False, axis="x")
    legend(figure, [Patch(label=label, **look[method].bar()) for method, label in series])  # type: ignore[arg-type]
    return figure


def _shown(artefact: Artefact) -> str:
    """The sentence of the caption that describes the bars."""
    metrics, under = metrics_of_part(artefact, "test"), under_protocols(artefact)
    return f"{metrics} at the round each protocol reports, in percent, {under}."
