"""Tables and figures of papers on the page, with links to their files."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedrec.config.papers import Artefact
from fedrec.plan.availability import without
from fedrec.reporting.method_scores import KIND_LABELS
from fedrec.reporting.page.cells import PageTable, RunLinks, anchor_of, page_table
from fedrec.reporting.page.files import FIGURE_LINKS, TABLE_LINKS, Image, image_of, links_of
from fedrec.reporting.tables.table import read_shown

KIND_CLASSES = {label: kind for kind, label in KIND_LABELS.items()}
"""The class of each kind of methods in the page's style."""


@dataclass(frozen=True)
class ShownArtefact:
    """A table or figure of a paper on the page."""

    artefact: Artefact
    label: str
    tables: Sequence[PageTable]
    image: Image | None
    links: Sequence[tuple[str, str]]
    """Ending and relative address of each file."""
    without: Mapping[str, str]
    """The reasons for missing datasets, by dataset."""


def artefact_label(name: str) -> str:
    """`Table 3` for `table3`, `Figure 10` for `fig10`."""
    parts = re.fullmatch(r"(table|fig)(\w+)", name)
    return name if parts is None else f"{'Table' if parts[1] == 'table' else 'Figure'} {parts[2]}"


def shown_artefact(
    results: Path,
    artefact: Artefact,
    form: str,
    unavailable: Mapping[str, str],
    links: RunLinks,
    *,
    kept: Sequence[str] | None = None,
) -> ShownArtefact:
    """A table or figure of a paper, from its files below `results`, or from stored files `kept`."""
    figure = form == "figure"
    stem = results / f"{form}s" / artefact.target
    forms: Sequence[str] = FIGURE_LINKS if figure else TABLE_LINKS
    if kept is not None:
        forms = tuple(form for form in forms if any(file.endswith(f".{form}") for file in kept))
    return ShownArtefact(
        artefact,
        artefact_label(artefact.name),
        () if figure else tables_of(stem, links),
        image_of(stem, _description(artefact), forms=forms) if figure else None,
        links_of(stem, forms, links.page),
        without(artefact, unavailable),
    )


def tables_of(stem: Path, links: RunLinks) -> list[PageTable]:
    """The tables in the json of a target that have rows."""
    shown = read_shown(stem.with_name(f"{stem.name}.json")).tables
    return [
        page_table(anchor_of(stem.name, table, number), table, links, {"kind": KIND_CLASSES})
        for number, table in enumerate(shown, start=1)
        if table.rows
    ]


def _description(artefact: Artefact) -> str:
    """The alternative text of a figure."""
    where = f" on {', '.join(artefact.datasets)}" if artefact.datasets else ""
    shown = f": {', '.join(metric.upper() for metric in artefact.metrics)}" if artefact.metrics else ""
    return f"{artefact.layout.capitalize()}. {artefact.title}{where}{shown}."
