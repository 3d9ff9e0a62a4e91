"""The audit on the page: the verdicts on claims, and the tables and figures that explain them.

A table's json has the heading, reading help and counts of its chapter, so a new audit table appears by
itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrec.audit.verdicts import (
    COSTS_MORE,
    DIVERGES,
    HOLDS,
    NOT_FOUND,
    NOT_REPRODUCED,
    REVERSED,
    SMALLER,
    TOO_FEW,
    UNTESTED,
)
from fedrec.config.conditions import CONDITIONS
from fedrec.config.papers import Paper
from fedrec.reporting.page.cells import PageTable, RunLinks, anchor_of, page_table
from fedrec.reporting.page.files import FIGURE_LINKS, TABLE_LINKS, Image, image_of, links_of
from fedrec.reporting.tables.table import Chapter, read_shown

VERDICT_CLASSES = {
    HOLDS: "holds",
    SMALLER: "unsure",
    TOO_FEW: "unsure",
    NOT_FOUND: "unsure",
    REVERSED: "reversed",
    COSTS_MORE: "reversed",
    NOT_REPRODUCED: "untested",
    DIVERGES: "untested",
    UNTESTED: "untested",
}
"""The class of each verdict in the page's style."""
_LONG = 1000
"""A table with more rows is on the page of runs, since it would slow down the main page."""
_MARKS = {f"{condition.key}_verdict": VERDICT_CLASSES for condition in CONDITIONS}


@dataclass(frozen=True)
class ShownChapter:
    """A table of the audit on the page."""

    name: str
    title: str
    reading: str
    rule: str
    counts: Sequence[Mapping[str, Any]]
    finding: Sequence[str]
    """Sentences for the head of the page."""
    tables: Sequence[PageTable]
    aside: Sequence[PageTable]
    """Folded tables."""
    elsewhere: Sequence[PageTable]
    """Long tables, shown on the page of runs."""
    links: Sequence[tuple[str, str]]
    """Ending and relative address of each file."""
    images: Sequence[tuple[Image, Sequence[tuple[str, str]]]]
    """Figures drawn from the same rows, and their files."""

    @property
    def decides(self) -> bool:
        """Whether it has verdicts on tested claims."""
        return any(count["datasets"] for count in self.counts)


def shown_audit(
    results: Path, forms: Mapping[str, str], papers: Mapping[str, Paper], links: RunLinks
) -> list[ShownChapter]:
    """The chapters of the audit, from the files of its targets below `results`.

    Each chapter states its place. A figure joins the table that names it, or is a chapter of its own.
    """
    tables = {
        name: read_shown(results / f"tables/{name}.json") for name, form in forms.items() if form == "table"
    }
    figures = [name for name, form in forms.items() if form == "figure"]
    chapters: list[tuple[tuple[int, str], ShownChapter]] = []
    for name, content in tables.items():
        chapter = content.chapter or Chapter(name)
        paper = next((paper for paper in papers if name.endswith(f"_{paper}")), None)
        own = [figure for figure in figures if figure == _figure_name(chapter, name, paper)]
        figures = [figure for figure in figures if figure not in own]
        pairs = [
            (table, page_table(anchor_of(name, table, number), table, links, _MARKS))
            for number, table in enumerate(content.tables, start=1)
            if table.rows
        ]
        here = [(table, shown) for table, shown in pairs if len(table.rows) <= _LONG]
        shown = ShownChapter(
            name,
            chapter.title if paper is None else f"{chapter.title}, {papers[paper].title} alone",
            chapter.reading,
            chapter.rule,
            [_classed(count) for count in chapter.counts],
            chapter.finding,
            [shown for table, shown in here if not table.aside],
            [shown for table, shown in here if table.aside],
            [shown for table, shown in pairs if len(table.rows) > _LONG],
            links_of(results / "tables" / name, TABLE_LINKS, links.page),
            [_image(results, figure, links) for figure in own],
        )
        chapters.append(((chapter.order, name), shown))
    last = max((order for (order, _), _ in chapters), default=0) + 1
    for figure in figures:
        alone = ShownChapter(
            figure, figure.replace("_", " "), "", "", (), (), (), (), (), (), [_image(results, figure, links)]
        )
        chapters.append(((last, figure), alone))
    return [shown for _, shown in sorted(chapters, key=lambda pair: pair[0])]


def _figure_name(chapter: Chapter, table: str, paper: str | None) -> str | None:
    """The name of a table's figure: `audit_ranks_pfedclr` for `audit_protocols_pfedclr`."""
    if chapter.figure is None:
        return None
    stem = table if paper is None else table.removesuffix(f"_{paper}")
    return f"{stem.rpartition('_')[0]}_{chapter.figure}".lstrip("_") + ("" if paper is None else f"_{paper}")


def _image(results: Path, name: str, links: RunLinks) -> tuple[Image, list[tuple[str, str]]]:
    stem = results / "figures" / name
    return image_of(stem, f"{name.replace('_', ' ').capitalize()}."), links_of(stem, FIGURE_LINKS, links.page)


def _classed(count: Mapping[str, Any]) -> dict[str, Any]:
    """A count with the class of each verdict."""
    verdicts = [(verdict, VERDICT_CLASSES[verdict], number) for verdict, number in count["verdicts"]]
    return {**count, "verdicts": verdicts}
