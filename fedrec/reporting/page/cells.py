"""Tables as the page shows them: text to read, numbers to sort by, links to runs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any

from fedrec.config.protocol import short_name
from fedrec.reporting.page.files import address_of
from fedrec.reporting.tables.table import AGAINST, RUNS, ReportColumn, ReportTable, Row

_LINKS = {RUNS: "runs", AGAINST: "runs against"}
"""The columns of links to runs, and their headings."""
_PLAIN = re.compile(r"[-+]?\d+(\.\d+)?")
"""A number as a script reads it, too."""


@dataclass(frozen=True)
class Cell:
    """What a cell shows, the number it is sorted by, and what sets it apart."""

    text: str
    value: str | None = None
    full: str | None = None
    """What the text is the beginning of."""
    mark: str | None = None
    """How the page sets it off: `clean` or `published`, where the cell names a protocol, or a given mark."""
    best: bool = False
    href: str | None = None
    aside: str = ""
    """What stands behind the text in small print, such as an interval."""
    links: Sequence[tuple[str, str]] = ()
    """Text and address of each of several links."""

    @property
    def sorted_by(self) -> str | None:
        """The number for a script to sort by; None where what is shown says it, as in most cells."""
        says_it = _PLAIN.fullmatch(self.text) and not self.best and not self.aside
        return None if says_it else self.value


@dataclass(frozen=True)
class PageTable:
    """A table on a page; columns that say the same in every row are said once, in `constant`."""

    anchor: str
    caption: str
    columns: Sequence[ReportColumn]
    rows: Sequence[Sequence[Cell]]
    constant: Sequence[tuple[str, Cell]] = ()
    notes: Sequence[str] = ()
    row_anchors: Sequence[str | None] = ()
    """The anchor of each row, if rows have any."""


@dataclass(frozen=True)
class RunLinks:
    """Addresses of runs on a page: their row in its table of runs, or their file where they are not in it."""

    results: Path
    page: Path
    listed: frozenset[str] = field(default_factory=frozenset)
    """Folders of the runs in the table of runs, below the results; each is the anchor of its row."""

    def href(self, folder: str) -> str:
        """The address of a run."""
        return (
            f"#{folder}"
            if folder in self.listed
            else address_of(self.results / folder / "run.json", self.page)
        )

    def cell(self, folders: Sequence[str]) -> Cell:
        """Links to runs, told apart by protocol and seed.

        Runs that differ by seed alone share one to the first of them: in the table of runs the others follow.
        """
        alike = [list(few) for _, few in groupby(folders, key=self._together)]
        return Cell("", links=[(_runs_text(few), self.href(few[0])) for few in alike])

    def _together(self, folder: str) -> str:
        """What runs have in common that share a link."""
        return str(PurePosixPath(folder).parent) if folder in self.listed else folder


def page_table(
    anchor: str,
    table: ReportTable,
    links: RunLinks | None = None,
    marks: Mapping[str, Mapping[str, str]] | None = None,
) -> PageTable:
    """A table as the page shows it.

    The best of each ranked column is marked; numbers and rows lead to their runs; `marks` sets texts off, by
    column and text; `anchor` is a row's own.
    """
    marked = marks or {}
    keys = [column.key for column in table.columns]
    rows = [
        [_cell(column, row, marked.get(column.key, {}), links) for column in table.columns]
        for row in table.rows
    ]
    for index, column in enumerate(table.columns):
        if column.ranked:
            _mark_best(rows, index, column, table.rows)
    constant = [
        index for index in range(1, len(keys)) if table.folds and _is_constant(index, table.columns, rows)
    ]
    shown = [index for index in range(len(keys)) if index not in constant]
    columns = [table.columns[index] for index in shown]
    cells_shown = [[cells[index] for index in shown] for cells in rows]
    if links is not None and not all(map(_leads_by_numbers, table.rows)):
        columns += _add_links(cells_shown, table.rows, links)
    return PageTable(
        anchor,
        table.caption,
        columns,
        cells_shown,
        [(table.columns[index].heading, rows[0][index]) for index in constant],
        table.notes,
        [row.get("anchor") for row in table.rows],
    )


def anchor_of(name: str, table: ReportTable, number: int) -> str:
    """The anchor of a table of a target: by what it shows, or its number among them."""
    part = re.sub(r"[^A-Za-z0-9.]+", "-", table.part) or str(number)
    return f"{name}-{part}"


def _add_links(cells: list[list[Cell]], rows: Sequence[Row], links: RunLinks) -> list[ReportColumn]:
    """Add the cells of links to runs that there are, and return their columns."""
    added = [key for key in _LINKS if any(row.get(key) for row in rows)]
    for line, row in zip(cells, rows, strict=True):
        line += [links.cell(row.get(key) or ()) for key in added]
    return [ReportColumn(key, _LINKS[key], align="left") for key in added]


def _leads_by_numbers(row: Row) -> bool:
    """Whether every run of a row is led to by a number of it."""
    singles = [folders for key, folders in row.items() if key.endswith(f"_{RUNS}") and len(folders) == 1]
    led = {folder for folders in singles for folder in folders}
    return bool(row.get(RUNS)) and led >= {*row[RUNS], *row.get(AGAINST, ())}


def _runs_text(folders: Sequence[str]) -> str:
    """`clean 0` for a run under the clean protocol with seed 0, `clean 0–4` for five with these seeds."""
    protocol = folders[0].split("/")[-3]
    seeds = [int(folder.rpartition("/seed")[2]) for folder in folders]
    in_turn = len(seeds) > 1 and seeds == list(range(seeds[0], seeds[-1] + 1))
    words = f"{seeds[0]}–{seeds[-1]}" if in_turn else ", ".join(map(str, seeds))
    return f"{short_name(protocol)} {words}"


def _mark_best(rows: list[list[Cell]], index: int, column: ReportColumn, table_rows: Sequence[Row]) -> None:
    """Mark the largest number of a column; what is equal in print is equal, so that several may be."""
    numbers: list[Any] = [row[column.key] for row in table_rows if column.takes_part(row)]
    if not numbers:
        return
    top = column.form.format(max(numbers))
    for cells, row in zip(rows, table_rows, strict=True):
        if column.takes_part(row) and column.form.format(row[column.key]) == top:
            cells[index] = replace(cells[index], best=True)


def _is_constant(index: int, columns: Sequence[ReportColumn], rows: Sequence[Sequence[Cell]]) -> bool:
    """Whether a column says one thing alone; numbers that happen to be equal stay to be compared."""
    texts = {(cells[index].text, cells[index].full, tuple(cells[index].links)) for cells in rows}
    is_text = columns[index].align == "left" or rows[0][index].value is None
    return len(rows) > 1 and len(texts) == 1 and is_text


def _cell(column: ReportColumn, row: Row, marks: Mapping[str, str], links: RunLinks | None) -> Cell:
    value: Any = row.get(column.key)
    text = column.spelled(row)
    if isinstance(value, list):
        return Cell("", links=[(str(words), str(href)) for words, href in value])
    if isinstance(value, int | float) and not isinstance(value, bool):
        behind: Sequence[str] = row.get(f"{column.key}_runs") or ()
        href = links.href(behind[0]) if links is not None and len(behind) == 1 else None
        aside: str = row.get(f"{column.key}_mark", "")
        return Cell(text.removesuffix(aside), value=_sorted_by(value), href=href, aside=aside)
    full = value if isinstance(value, str) and value != text else None
    mark = marks.get(text)
    if column.key == "protocol" and value is not None:
        mark = {"clean": "clean", "published": "published"}.get(short_name(str(value)))
    return Cell(text, full=full, mark=mark)


def _sorted_by(value: float) -> str:
    """A number for a script, with as many digits as anyone sorts by: pages have tens of thousands of them."""
    return repr(value if isinstance(value, int) else float(f"{value:.7g}")).replace("inf", "Infinity")
