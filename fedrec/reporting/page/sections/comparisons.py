"""Comparisons of methods on the page: the tables and figures that every dataset has."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fedrec.reporting.figures.slope import method_scores_figure, slope_description
from fedrec.reporting.figures.style import theme
from fedrec.reporting.figures.svg import svg_of
from fedrec.reporting.headline import headline
from fedrec.reporting.method_scores import MethodScore
from fedrec.reporting.page.cells import PageTable, RunLinks
from fedrec.reporting.page.files import FIGURE_LINKS, TABLE_LINKS, Image, image_of, links_of
from fedrec.reporting.page.sections.papers import tables_of

SLOPE = "slope"
"""The layout of the figure that shows the finding."""


@dataclass(frozen=True)
class ShownTarget:
    """A table or figure that compares methods on a dataset."""

    name: str
    tables: Sequence[PageTable]
    image: Image | None
    links: Sequence[tuple[str, str]]
    """Ending and relative address of each file."""


def shown_target(
    results: Path, name: str, form: str, scores: Sequence[MethodScore], links: RunLinks
) -> ShownTarget:
    """A table or figure, from its files below `results`; `scores` has the method scores on its dataset."""
    figure = form == "figure"
    stem = results / f"{form}s" / name
    return ShownTarget(
        name,
        () if figure else tables_of(stem, links),
        _image(stem, scores) if figure else None,
        links_of(stem, FIGURE_LINKS if figure else TABLE_LINKS, links.page),
    )


def _image(stem: Path, scores: Sequence[MethodScore]) -> Image:
    if stem.name.endswith(f"_{SLOPE}") and scores:
        return image_of(stem, slope_description(scores), _narrow(tuple(scores)))
    *_, dataset, layout = stem.name.split("_")
    return image_of(
        stem, " ".join([f"{layout.capitalize()} of methods on {dataset}.", *headline(scores)[:1]])
    )


@lru_cache(maxsize=32)
def _narrow(scores: tuple[MethodScore, ...]) -> str:
    """The slope chart for narrow screens."""
    with theme():
        return svg_of(method_scores_figure(scores, narrow=True))
