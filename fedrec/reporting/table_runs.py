"""The runs behind a table or figure, or behind one row of it, by the csv that names them."""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedrec.errors import ResultError, first_lines
from fedrec.plan.runs import SUMMARY, below_results
from fedrec.plan.targets import RESULT_FOLDERS
from fedrec.reporting.tables.table import RUNS
from fedrec.runs.store import RunStore

IN_RESULTS, IN_REFERENCE, MISSING_RUN = "results", "reference", "missing"
"""Locations of a run."""
_MOST_LISTED = 40
"""The most matching rows that an error lists."""
_LISTED_COLUMNS = 5
"""The most columns that identify a listed row."""


@dataclass(frozen=True)
class TableRow:
    """A row of a csv: its number from 1, its cells, and the runs in each of its columns of runs."""

    number: int
    cells: dict[str, str]
    runs: dict[str, list[str]]


@dataclass(frozen=True)
class LocatedRun:
    """A run: its name, its location, and the path that opens it."""

    name: str
    where: str
    path: Path


def find_csv(target: str, roots: Iterable[Path]) -> tuple[Path, Path] | None:
    """The first of `roots` that has the csv of a table, figure or search, and the path of the csv."""
    folders = dict.fromkeys(RESULT_FOLDERS.values())
    paths = ((root, root / folder / f"{target}.csv") for root in roots for folder in folders)
    return next(((root, path) for root, path in paths if path.is_file()), None)


def read_rows(path: Path) -> list[TableRow]:
    """The rows of a csv; raise `ResultError` if no column names runs."""
    with path.open(encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream)
        named = [name for name in reader.fieldnames or () if _names_runs(name)]
        rows = [
            TableRow(
                number,
                {name: cell for name, cell in row.items() if name not in named},
                {name: row[name].split() for name in named if row[name]},
            )
            for number, row in enumerate(reader, start=1)
        ]
    if not named:
        raise ResultError(f"{path}: no column names runs. Choose a table that is made from runs.")
    return rows


def find_row(rows: Sequence[TableRow], wanted: Sequence[str]) -> TableRow:
    """The row with a number, or the one row that contains every word of `wanted`, in any case.

    Rows in which more words are whole cells are preferred. If several rows remain, the `ResultError` lists
    them.
    """
    text = " ".join(wanted)
    if text.isdecimal():
        if not 1 <= int(text) <= len(rows):
            raise ResultError(f"there is no row {text}. Give a number from 1 to {len(rows)}.")
        return rows[int(text) - 1]
    words = text.casefold().split()
    matching = _best([row for row in rows if _matches(row, words)], words)
    if not matching:
        raise ResultError(f"no row has '{text}' in its cells. Give fewer words, or the number of a row.")
    if len(matching) > 1:
        raise ResultError(
            f"{len(matching)} rows match '{text}'. Name one by its number:\n{_listing(matching)}"
        )
    return matching[0]


def runs_by_column(rows: Iterable[TableRow]) -> dict[str, list[str]]:
    """The runs that rows name, by column, each once."""
    by_column: dict[str, dict[str, None]] = {}
    for row in rows:
        for column, names in row.runs.items():
            by_column.setdefault(column, {}).update(dict.fromkeys(names))
    return {column: list(names) for column, names in by_column.items()}


def locate_runs(names: Iterable[str], root: Path, store: Path | None) -> list[LocatedRun]:
    """Locate the runs that a csv below `root` was made from.

    A csv of trained runs has no `store`; its runs lie below `root`. The runs of a reference's csv lie
    unpacked below `root`, or packed in the store.
    """
    packed: dict[str, set[str]] = {}
    located = []
    for name in names:
        dataset = _dataset_of(name)
        if store is not None and dataset not in packed:
            packed[dataset] = set(RunStore(store).names_on(dataset))
        if (root / name / SUMMARY).is_file():
            where = IN_RESULTS if store is None else IN_REFERENCE
            located.append(LocatedRun(name, where, root / name))
        elif store is not None and name in packed[dataset]:
            located.append(LocatedRun(name, IN_REFERENCE, store / name))
        else:
            located.append(LocatedRun(name, MISSING_RUN, root / name))
    return located


def row_label(row: TableRow) -> str:
    """A row in a line: its number and its first cells."""
    return _line(row, list(row.cells)[:_LISTED_COLUMNS])


def _names_runs(column: str) -> bool:
    return column == RUNS or column.startswith(f"{RUNS}_") or column.endswith(f"_{RUNS}")


def _matches(row: TableRow, words: Iterable[str]) -> bool:
    text = "\n".join(row.cells.values()).casefold()
    return all(word in text for word in words)


def _best(rows: Sequence[TableRow], words: Sequence[str]) -> list[TableRow]:
    """The rows in which the most words are whole cells."""
    cells = [{cell.casefold() for cell in row.cells.values()} for row in rows]
    whole = [sum(word in own for word in words) for own in cells]
    return [row for row, count in zip(rows, whole, strict=True) if count == max(whole)]


def _listing(rows: Sequence[TableRow]) -> str:
    """Rows by number and by the first columns in which they differ."""
    differing = [name for name in rows[0].cells if len({row.cells[name] for row in rows}) > 1]
    lines = [f"  {_line(row, differing[:_LISTED_COLUMNS])}" for row in rows]
    return "\n".join(first_lines(lines, _MOST_LISTED))


def _line(row: TableRow, columns: Iterable[str]) -> str:
    return "  ".join([str(row.number), *(row.cells[name] for name in columns if row.cells[name])])


def _dataset_of(name: str) -> str:
    below = below_results(Path(name))
    return "" if below is None else below.parts[2]
