"""Write the files of a figure: csv of its rows, pdf, png, svg, and the caption as txt."""

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from fedrec.config.papers import Artefact
from fedrec.errors import ResultError
from fedrec.files.atomic import write_text
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import ArtefactRuns, artefact_runs_of, stem_of
from fedrec.reporting.figures.caption import chart_caption
from fedrec.reporting.figures.panels import empty
from fedrec.reporting.figures.style import save, theme
from fedrec.reporting.tables.table import Row, csv_text

Drawn = tuple[Figure, list[Row], str]
"""A figure, the rows it shows and its caption."""


def write_figure(stem: Path, figure: Figure, rows: Sequence[Row], caption: str) -> None:
    """Write `stem`.csv, .pdf, .png and .txt."""
    save(figure, stem)
    write_text(stem.with_name(f"{stem.name}.csv"), csv_text(rows))
    write_text(stem.with_name(f"{stem.name}.txt"), caption.rstrip("\n") + "\n")


def build_figure(target: Target, project: Project, draw: Callable[[ArtefactRuns], Drawn]) -> None:
    """Draw and write the figure of an artefact."""
    with theme():
        write_figure(stem_of(target, project), *draw(artefact_runs_of(target, project)))


def build_inside(target: Target, project: Project, draw: Callable[[ArtefactRuns], Drawn]) -> None:
    """Draw and write a figure of trained models, which needs at least one run."""
    if not target.runs:
        raise ResultError(
            f"{target.name}: has no runs to show. `fedrec plan` names its runs and missing datasets."
        )
    build_figure(target, project, draw)


def chart(
    subject: ArtefactRuns,
    rows: Sequence[Row],
    figure_of: Callable[[Artefact, Sequence[Row]], Figure],
    shown: str,
    deviation: str = "bar",
    *,
    timed: bool = False,
) -> Drawn:
    """A figure of metrics with its caption; without rows it states that no dataset is available.

    `shown` is the sentence of the caption that describes the figure. `deviation` names the form of
    deviations, and is empty without them. With `timed` the caption names the devices.
    """
    figure = figure_of(subject.artefact, rows) if rows else empty()
    return figure, list(rows), chart_caption(subject, rows, shown, deviation, timed=timed)
