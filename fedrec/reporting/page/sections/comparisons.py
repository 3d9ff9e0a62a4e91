"""Methods compared on a dataset: the targets of our own that every dataset has."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedrec.reporting.page.cells import PageTable, RunLinks
from fedrec.reporting.page.files import FIGURE_LINKS, TABLE_LINKS, Image, image_of, links_of
from fedrec.reporting.page.sections.papers import tables_of


@dataclass(frozen=True)
class ShownTarget:
    """A table or figure that compares methods on a dataset."""

    name: str
    tables: Sequence[PageTable]
    image: Image | None
    links: Sequence[tuple[str, str]]
    """Ending and relative address of each file."""


def shown_target(results: Path, name: str, form: str, links: RunLinks) -> ShownTarget:
    """A table or figure, from its files below `results`."""
    figure = form == "figure"
    stem = results / f"{form}s" / name
    return ShownTarget(
        name,
        () if figure else tables_of(stem, links),
        image_of(stem, f"{name.replace('_', ', ')}: methods compared.") if figure else None,
        links_of(stem, FIGURE_LINKS if figure else TABLE_LINKS, links.page),
    )
