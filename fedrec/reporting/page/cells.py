"""Tables of the page: cells with text, sort keys and links to runs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from fedrec.config.protocol import short_name
from fedrec.reporting.page.files import address_of
from fedrec.reporting.page.origin import sentences_of, split_by_hash
from fedrec.reporting.tables.table import AGAINST, RUNS, ReportColumn, ReportTable, Row

_SHORT = 240
"""The most letters of a note that is shown whole; a longer one is folded behind its beginning."""
_LEAD = re.compile(r".{24,80}?(?=[:.;,] )")
"""The beginning of a note."""
_PLAIN = re.compile(r"[-+]?\d+(\.\d+)?")
"""A number that a script can read."""


@dataclass(frozen=True)
class Cell:
    """The content of a cell: text, sort key, mark and links."""

    text: str
    value: str | None = None
    full: str | None = None
    """The whole text, if `text` is its beginning."""
    mark: str | None = None
    """The style of the cell: `clean` or `published` for a protocol, or a given mark."""
    best: bool = False
    href: str | None = None
    aside: str = ""
    """Small print behind the text, such as an interval."""
    links: Sequence[tuple[str, str]] = ()
    """Text and address of each of several links."""

    @property
    def sorted_by(self) -> str | None:
        """The sort key of the cell; None if a script can read it from the text."""
        says_it = _PLAIN.fullmatch(self.text) and not self.best and not self.aside
        return None if says_it else self.value


@dataclass(frozen=True)
class PageTable:
    """A table on a page; constant columns are stated once, in `constant`."""

    anchor: str
    caption: str
    columns: Sequence[ReportColumn]
    rows: Sequence[Sequence[Cell]]
    constant: Sequence[tuple[str, Cell]] = ()
    notes: Sequence[str] = ()
    row_anchors: Sequence[str | None] = ()
    """The anchor of each row, if rows have anchors."""
    row_groups: Sequence[str | None] = ()
    """The anchor of each row's group of neighbours, if there are groups."""
    origin: str = ""
    """The sentences of the caption that contain hashes, folded below the table."""
    choosers: Sequence[str] = ()
    """The keys of columns by which a reader filters rows."""

    @property
    def bodies(self) -> list[tuple[str | None, list[tuple[str | None, Sequence[Cell]]]]]:
        """Groups of neighbouring rows with their anchors."""
        rows = zip(
            self.row_groups or [None] * len(self.rows),
            self.row_anchors or [None] * len(self.rows),
            self.rows,
            strict=True,
        )
        return [
            (group, [(anchor, cells) for _, anchor, cells in few])
            for group, few in groupby(rows, key=lambda row: row[0])
        ]

    @property
    def short_notes(self) -> list[str]:
        """The notes shown whole."""
        return [note for note in self.notes if len(note) <= _SHORT]

    @property
    def long_notes(self) -> list[tuple[str, str]]:
        """The folded notes, each with its beginning."""
        return [(_beginning(note), note) for note in self.notes if len(note) > _SHORT]


@dataclass(frozen=True)
class RunLinks:
    """Addresses of runs: the row on the page of runs, or the file of a run that is not on it."""

    results: Path
    page: Path
    """The page that contains the links."""
    listed: frozenset[str] = field(default_factory=frozenset)
    """Folders, below the results, of the runs on the page of runs; each is the anchor of its row."""

    @property
    def runs_page(self) -> Path:
        """The page of runs, in the folder of the page."""
        return self.page.with_suffix(".runs.html")

    def href(self, folder: str) -> str:
        """The address of a run."""
        if folder in self.listed:
            return self._on_runs_page(folder)
        return address_of(self.results / folder / "run.json", self.page)

    def links(self, folders: Sequence[str], word: str = "") -> list[tuple[str, str]]:
        """Links to runs, with `word` before the text of each.

        Runs of one method, paper and dataset share a link, since they are neighbours on the page of runs. A
        run that is not on that page has its own link.
        """
        groups: dict[str, list[str]] = {}
        for folder in folders:
            groups.setdefault(group_anchor(folder) if folder in self.listed else folder, []).append(folder)
        return [
            (f"{word}{_runs_text(few)}", self._on_runs_page(group if len(few) > 1 else few[0]))
            if few[0] in self.listed
            else (f"{word}{_run_text(few[0])}", self.href(few[0]))
            for group, few in groups.items()
        ]

    def _on_runs_page(self, anchor: str) -> str:
        return f"{address_of(self.runs_page, self.page)}#{anchor}"


def page_table(
    anchor: str,
    table: ReportTable,
    links: RunLinks | None = None,
    marks: Mapping[str, Mapping[str, str]] | None = None,
) -> PageTable:
    """A table for the page.

    The best of each ranked column is marked, and numbers and rows link to their runs. `marks` gives styles by
    column and text, `anchor` the anchor of a row.
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
    caption, origin = split_by_hash(sentences_of(table.caption))
    cells_shown = [[cells[index] for index in shown] for cells in rows]
    if links is not None and not all(map(_leads_by_numbers, table.rows)):
        columns += _add_links(cells_shown, table.rows, links)
    return PageTable(
        anchor,
        " ".join(caption),
        columns,
        cells_shown,
        [(table.columns[index].heading, rows[0][index]) for index in constant],
        table.notes,
        [row.get("anchor") for row in table.rows],
        [row.get("group") for row in table.rows],
        " ".join(origin),
        table.choosers,
    )


def group_anchor(folder: str) -> str:
    """The anchor of the runs that differ from the one in `folder` only by protocol and seed."""
    runs, paper, dataset, _, method, _ = folder.split("/")
    return f"{runs}/{paper}/{dataset}/{method}"


def anchor_of(name: str, table: ReportTable, number: int) -> str:
    """The anchor of a table of a target: by its part, or by its number."""
    part = re.sub(r"[^A-Za-z0-9.]+", "-", table.part) or str(number)
    return f"{name}-{part}"


def _add_links(cells: list[list[Cell]], rows: Sequence[Row], links: RunLinks) -> list[ReportColumn]:
    """Add cells with links to runs, if there are any, and return their column."""
    if not any(row.get(key) for row in rows for key in (RUNS, AGAINST)):
        return []
    for line, row in zip(cells, rows, strict=True):
        both = [*links.links(row.get(RUNS) or ()), *links.links(row.get(AGAINST) or (), "against ")]
        line.append(Cell("", links=both))
    return [ReportColumn(RUNS, "runs", align="left")]


def _beginning(note: str) -> str:
    """The first words of a note."""
    match = _LEAD.match(note)
    return match[0] if match else f"{note[:80]}…"


def _leads_by_numbers(row: Row) -> bool:
    """Whether the numbers of a row link to all its runs."""
    singles = [folders for key, folders in row.items() if key.endswith(f"_{RUNS}") and len(folders) == 1]
    led = {folder for folders in singles for folder in folders}
    return bool(row.get(RUNS)) and led >= {*row[RUNS], *row.get(AGAINST, ())}


def _runs_text(folders: Sequence[str]) -> str:
    return f"{len(folders)} runs" if len(folders) > 1 else "1 run"


def _run_text(folder: str) -> str:
    """`clean 0` for a run under the clean protocol with seed 0."""
    return f"{short_name(folder.split('/')[-3])} {folder.rpartition('/seed')[2]}"


def _mark_best(rows: list[list[Cell]], index: int, column: ReportColumn, table_rows: Sequence[Row]) -> None:
    """Mark the largest number of a column, and all that are shown as equal to it."""
    numbers: list[Any] = [row[column.key] for row in table_rows if column.takes_part(row)]
    if not numbers:
        return
    top = column.form.format(max(numbers))
    for cells, row in zip(rows, table_rows, strict=True):
        if column.takes_part(row) and column.form.format(row[column.key]) == top:
            cells[index] = replace(cells[index], best=True)


def _is_constant(index: int, columns: Sequence[ReportColumn], rows: Sequence[Sequence[Cell]]) -> bool:
    """Whether a text column has the same value in every row; equal numbers stay in the table."""
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
    """A sort key, with few digits: pages have tens of thousands of them."""
    return repr(value if isinstance(value, int) else float(f"{value:.7g}")).replace("inf", "Infinity")
