"""Tables as a page shows them, text to read and numbers to sort by; and how its files are read and linked."""

import csv
import io
import math
import os
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fedrec.errors import ResultError
from fedrec.reporting.tables import Column, Row, Table

_TEXT = re.compile(r"hash|code|content|version|seeds|^splits?$")
"""Names of columns that hold no numbers, though a hash may look like one."""
_PROTOCOL = ("protocol", "kind")
_DECIMALS = 4
_SHORT = 8
"""Letters of a number that was chosen, such as 1e-05; a measured one has more."""


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


@dataclass(frozen=True)
class View:
    """A table on a page; columns that say the same in every row are said once, in `constant`."""

    anchor: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    constant: Sequence[tuple[str, Cell]] = ()
    notes: Sequence[str] = ()


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a table; a file that is not there, or not whole, is an error."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise _not_there(path) from None
    except UnicodeDecodeError as error:
        raise not_whole(path, str(error)) from error
    if not text.endswith("\n"):
        raise not_whole(path, "its last line has no end")
    head, *lines = csv.reader(io.StringIO(text))
    if not head or not lines:
        raise not_whole(path, "it has no rows")
    if any(len(line) != len(head) for line in lines):
        raise not_whole(path, "its lines differ in length")
    return [dict(zip(head, line, strict=True)) for line in lines]


def _not_there(path: Path) -> ResultError:
    return ResultError(f"{path}: no such file. Build it with: snakemake --cores 2 '{path}'")


def not_whole(path: Path, why: str) -> ResultError:
    """The error that a file is damaged."""
    return ResultError(f"{path}: this file is not whole: {why}. Delete it and build it again.")


def content_of(path: Path) -> bytes:
    """What is in a file; one that is not there, or empty, is an error."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise _not_there(path) from None
    if not content:
        raise not_whole(path, "it is empty")
    return content


def address_of(path: Path, page: Path) -> str:
    """The address of a file in a link on the page `page`."""
    return quote(Path(os.path.relpath(path, page.parent)).as_posix())


def typed(key: str, text: str) -> int | float | bool | str | None:
    """A field of a csv file as what it was before it was written."""
    if text in ("True", "False"):
        return text == "True"
    if _TEXT.search(key):
        return text or None
    for reader in (int, float):
        try:
            number = reader(text)
        except ValueError:
            continue
        return None if math.isnan(number) else number
    return text or None


def columns_of(rows: Sequence[Mapping[str, str]]) -> list[Column]:
    """Columns for the rows of any csv file: numbers to the right, with as many digits as they need."""
    return [_column(key, [row[key] for row in rows]) for key in rows[0]]


def typed_rows(rows: Sequence[Mapping[str, str]], columns: Sequence[Column]) -> list[Row]:
    """The rows with numbers as numbers, in columns that hold nothing else."""
    return [
        {
            column.key: typed(column.key, row[column.key])
            if column.align == "right"
            else row[column.key] or None
            for column in columns
        }
        for row in rows
    ]


def side_by_side(
    columns: Sequence[Column], rows: Sequence[Row], by: str = "metric"
) -> tuple[Sequence[Column], Sequence[Row]]:
    """The table with what it says of each metric in columns of its own, as papers print it.

    Numbers that come alike for every metric, such as the value of a setting, name a row. Where
    that leaves two rows of one name the table stays as it is.
    """
    metrics = list(dict.fromkeys(row.get(by) for row in rows))
    if len(metrics) < 2 or any(metric is None for metric in metrics):
        return columns, rows
    measured = [
        column for column in columns if column.align == "right" and _differ(column.key, rows, by, metrics)
    ]
    naming = [column for column in columns if column.key != by and column not in measured]
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        name = {column.key: row[column.key] for column in naming}
        found = merged.setdefault(tuple(name.values()), name)
        values = {f"{row[by]} {column.key}": row[column.key] for column in measured}
        if not values or values.keys() & found.keys():
            return columns, rows
        found |= values
    spread = [
        Column(f"{metric} {column.key}", f"{str(metric).upper()} {column.heading}", column.form)
        for metric in metrics
        for column in measured
    ]
    return [*naming, *spread], list(merged.values())


def _differ(key: str, rows: Sequence[Row], by: str, metrics: Sequence[Any]) -> bool:
    """Whether the values in a column are others for another metric."""
    counts = [Counter(row[key] for row in rows if row[by] == metric) for metric in metrics]
    return any(count != counts[0] for count in counts)


def view(
    anchor: str,
    table: Table,
    *,
    best: Collection[str] = (),
    fold: bool = False,
    linked: str | None = None,
    marks: Mapping[str, Mapping[str, str]] | None = None,
) -> View:
    """A table as the page shows it.

    In the columns `best` the largest number is marked; `fold` takes columns of text that say the
    same in every row out of the table; the column `linked` leads to what a row has as `href`;
    `marks` sets texts off, by column and text.
    """
    keys = [column.key for column in table.columns]
    marked = marks or {}
    rows = [
        [_cell(column, row, marked.get(column.key, {})) for column in table.columns] for row in table.rows
    ]
    for place, key in enumerate(keys):
        ranked = [row for row in table.rows if not row.get("unranked")]
        found: list[Any] = [row[key] for row in ranked if row.get(key) is not None]
        if key in best and found:
            # Equal in print is equal: several may be the best.
            form = table.columns[place].form
            top = form.format(max(found))
            for line, row in zip(rows, table.rows, strict=True):
                if row.get(key) is not None and form.format(row[key]) == top:
                    line[place] = replace(line[place], best=True)
        if key == linked:
            for line, row in zip(rows, table.rows, strict=True):
                line[place] = Cell(line[place].text, href=row["href"])
    constant = [place for place in range(1, len(keys)) if fold and _is_constant(place, table.columns, rows)]
    shown = [place for place in range(len(keys)) if place not in constant]
    return View(
        anchor,
        table.caption,
        [table.columns[place] for place in shown],
        [[line[place] for place in shown] for line in rows],
        [(table.columns[place].heading, rows[0][place]) for place in constant],
        table.notes,
    )


def _is_constant(place: int, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> bool:
    """Whether a column says one thing alone; numbers that happen to be equal stay to be compared."""
    said = {(line[place].text, line[place].full) for line in rows}
    return (
        len(rows) > 1 and len(said) == 1 and (columns[place].align == "left" or rows[0][place].value is None)
    )


def _cell(column: Column, row: Row, marks: Mapping[str, str]) -> Cell:
    value: Any = row.get(column.key)
    text = column.spelled(row)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Cell(text, value=repr(value).replace("inf", "Infinity"))
    full = value if isinstance(value, str) and value != text else None
    mark = marks.get(text)
    if column.key in _PROTOCOL and value is not None:
        mark = {"clean": "clean", "published": "published"}.get(str(value).split("-")[0])
    return Cell(text, full=full, mark=mark)


def _column(key: str, texts: Sequence[str]) -> Column:
    heading = key.upper() if "@" in key else key.replace("_", " ")
    values = [typed(key, text) for text in texts if text]
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    missing = sum(value is None for value in values)
    if not numbers or len(numbers) + missing < len(values):
        return Column(key, heading, align="left")
    return Column(key, heading, _form(key, numbers, texts))


def _form(key: str, numbers: Sequence[float], texts: Sequence[str]) -> str:
    """How the numbers of a column are spelt, all alike; a difference has a sign."""
    sign = "+" if "difference" in key else ""
    if all(isinstance(number, int) for number in numbers):
        return f"{{:{sign},}}"
    if all(len(text) < _SHORT for text in texts) and any("e" in text for text in texts):
        return f"{{:{sign}g}}"
    size = max((abs(number) for number in numbers if math.isfinite(number)), default=0.0)
    needed = max(len(text.partition(".")[2]) for text in texts)
    if 0 < size < 10**-_DECIMALS:
        return f"{{:{sign}.3g}}"
    return f"{{:{sign},.{min(needed, _DECIMALS if size < 100 else 1)}f}}"
