"""Guess the format of a table of interactions: separator, header line, kinds of columns.

The guess uses the names in the header line and the content of columns. It fills the entry of a new dataset,
which states the guess so that you can correct it.
"""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Literal

import polars as pl

from fedrec.config.catalogue import Column, TableFormat, TimeFormat
from fedrec.data.dates import DATE_FORMS, date_form, date_forms, seconds_of_dates
from fedrec.data.packed import is_parquet, opened
from fedrec.data.parse import read_interactions, shown
from fedrec.errors import DataError

_SEPARATORS = ("\t", "::", ";", ",", "|", " ")
"""Possible separators, the most certain first."""
_LINES = 10_000
"""The most lines that are inspected."""
_NAMES: Mapping[str, str] = {
    "user": r"user|uid|customer|member|reviewer|visitor|account|session|nutzer|kunde|reader|listener",
    "item": r"item|iid|movie|film|book|isbn|product|asin|song|track|artist|article|business|game|news|venue"
    r"|poi|video|artikel|produkt|buch|recipe|course|app",
    "rating": r"rating|score|stars|overall|preference|weight|count|plays|clicks?|bewertung",
    "time": r"time|timestamp|ts|date|datetime|zeit|datum",
}
"""Words that are part of a column's name, by kind."""
_SINCE_1970 = 10**8
"""Larger integers are times in seconds, after 1973."""
_MILLISECONDS = 10**11
"""Larger integers are milliseconds: as seconds they would be after the year 5000."""
_MOST_RATINGS = 30
"""A column with at most so many distinct numbers may have ratings."""
_INDEX_NAMES = ("", "index", "Unnamed: 0")
"""Names that pandas gives to the column of a table's index."""
_NO_TIMES = (
    "no times are read, so fedrec does not know which rows of a user are the latest. Protocols with "
    "no_times: random (clean) hold out random rows. Protocols with no_times: first_appearance (published) "
    "hold out the item whose first row is last in the file"
)


@dataclass(frozen=True)
class Guess:
    """The format of a file, with notes on the guess."""

    format: TableFormat
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class _Lines:
    """The first rows of a file, and their separator."""

    path: Path
    separator: str
    quoted: bool
    numbers: Sequence[int]
    """The line number of each row."""
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class _Column:
    """The inspected part of a column: its name or position, and its fields with their lines."""

    name: Column
    lines: Sequence[int]
    fields: Sequence[str]

    def is_called(self, kind: str) -> bool:
        return isinstance(self.name, str) and _called(kind, self.name)

    @cached_property
    def time_formats(self) -> Sequence[TimeFormat]:
        """The formats in which all its fields are times; dates may have two."""
        if all(map(_is_time, self.fields)):
            late = min(int(field.partition(".")[0]) for field in self.fields) >= _MILLISECONDS
            return ("milliseconds" if late else "seconds",)
        return date_forms(pl.Series(self.fields, dtype=pl.String))

    def first_that_is_no(self, kind: str) -> str:
        """The first field that is no value of this kind, with its line."""
        text = pl.Series(self.fields, dtype=pl.String)
        if kind == "rating":
            bad = [not _is_number(field) for field in self.fields]
        else:
            # The most frequent form is probably meant.
            bad_by_form = [seconds_of_dates(text, form)[0].is_null().to_list() for form in DATE_FORMS]
            bad = min([*bad_by_form, [not _is_time(field) for field in self.fields]], key=sum)
        return f"line {self.lines[bad.index(True)]} has {shown(self.fields[bad.index(True)])}"


def guess_format(path: Path) -> Guess:
    """Inspect a file; raise `DataError` with the reason if it cannot be a table of interactions."""
    lines = _separated(path, _first_lines(path))
    if is_parquet(path):
        # It is read as CSV, in which later rows may have quotes even if the first have none.
        lines = replace(lines, separator=",", quoted=True)
    columns, header, remarks = _columns(lines)
    chosen, more = _chosen(columns, header=header)
    ids = (field for name in ("user", "item") for field in chosen[name].fields)
    text_ids = not all(_is_integer(field) and str(int(field)) == field for field in ids)

    def format_of(time: TimeFormat) -> TableFormat:
        named = {name: column.name for name, column in chosen.items()}
        kind: Literal["auto", "text"] = "text" if text_ids else "auto"
        return TableFormat(lines.separator, named, header, lines.quoted, ids=kind, time=time)

    time_format: TimeFormat = "seconds"
    if "time" in chosen:
        formats = chosen["time"].time_formats
        # Whether the day or the month comes first, only the whole file can show.
        readable = (
            [form for form in formats if _reads(path, format_of(form))] if len(formats) > 1 else formats
        )
        time_format = (readable or formats)[0]
        if len(readable) > 1:
            more.append(_ambiguous(chosen.pop("time").name))
    if "time" not in chosen:
        more.append(_NO_TIMES)
    return Guess(format_of(time_format if "time" in chosen else "seconds"), (*remarks, *more))


def _reads(path: Path, format_: TableFormat) -> bool:
    try:
        read_interactions(path, format_)
    except DataError:
        return False
    return True


def _ambiguous(name: Column) -> str:
    return (
        f"column {name!r} is NOT read as time: no day is above 12, so the first number may be the day or "
        f"the month. Write time: {json.dumps(name)} into this entry's columns, and time: day_first or time: "
        "month_first into its format"
    )


def _first_lines(path: Path) -> list[str]:
    try:
        with opened(path) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
            lines = [line.rstrip("\r\n") for line in islice(text, _LINES)]
    except FileNotFoundError:
        raise DataError(f"{path}: no such file. Give the path of a text table of interactions.") from None
    except IsADirectoryError:
        raise DataError(f"{path}: is a folder. Give the path of a text table of interactions.") from None
    except UnicodeDecodeError:
        raise DataError(
            f"{path}: is not text in UTF-8, and not a gzip or parquet file. Save it as text with one "
            "interaction per line."
        ) from None
    lines = [line for line in lines if line]
    if len(lines) < 2:
        raise DataError(f"{path}: has fewer than two lines. Give a table with one interaction per line.")
    return lines


def _separated(path: Path, lines: Sequence[str]) -> _Lines:
    """Split lines by the separator that gives all of them the same number of fields, at least two."""
    quoted = any('"' in line for line in lines)
    for separator in _SEPARATORS:
        numbers: list[int] = []
        rows: list[list[str]] = []
        if quoted and len(separator) == 1:
            reader = csv.reader(lines, delimiter=separator)
            for row in reader:
                numbers.append(reader.line_num)
                rows.append(row)
        else:
            numbers, rows = [*range(1, len(lines) + 1)], [line.split(separator) for line in lines]
        if len(rows[0]) > 1 and all(len(row) == len(rows[0]) for row in rows):
            return _Lines(path, separator, quoted and len(separator) == 1, numbers, rows)
    tried = ", ".join(map(repr, _SEPARATORS))
    raise DataError(
        f"{path}: no separator gives every line the same number of fields ({tried} were tried). Give a "
        "table with one interaction per line, or write its entry by hand (docs/datasets.md)."
    )


def _columns(lines: _Lines) -> tuple[list[_Column], bool, list[str]]:
    """The columns without an index, whether the first line names them, and a note on the index."""
    width = range(len(lines.rows[0]))
    below = [[row[index] for row in lines.rows[1:]] for index in width]
    indexed = lines.rows[0][0] in _INDEX_NAMES and below[0] == [str(row) for row in range(len(below[0]))]
    if _is_header(lines.rows[0][indexed:], below[indexed:]):
        names = lines.rows[0]
        columns = [_Column(names[index], lines.numbers[1:], below[index]) for index in width[indexed:]]
        remark = f"the first column, {names[0]!r}, numbers the rows: it is taken for an index, and NOT read"
        return columns, True, [remark] if indexed else []
    return [
        _Column(index, lines.numbers, [row[index] for row in lines.rows]) for index in width
    ], False, []  # fmt: skip


def _is_header(first: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether the first line names columns: a known word without numbers, or above numbers or dates."""
    if any(_is_number(field) or not field for field in first):
        return False
    for name, fields in zip(first, below, strict=True):
        texts = pl.Series(fields, dtype=pl.String)
        if all(map(_is_number, fields)) or (date_forms(texts) and not date_forms(pl.Series([name]))):
            return True
    return any(_called(name, field) for field in first for name in _NAMES)


def _chosen(columns: Sequence[_Column], *, header: bool) -> tuple[dict[str, _Column], list[str]]:
    """Choose the columns of users, items, ratings and times, with notes on uncertain choices."""
    chosen: dict[str, _Column] = {}
    remarks: list[str] = []
    for kind in ("user", "item", "time", "rating"):
        called = [one for one in columns if one.is_called(kind) and one not in chosen.values()]
        fitting = [one for one in called if _fits(kind, one)]
        if fitting:
            # Of several columns of times, a numeric one is probably the most exact.
            chosen[kind] = (
                min(fitting, key=lambda one: date_form(one.time_formats[0]) is not None)
                if kind == "time"
                else fitting[0]
            )
        elif called and kind in ("time", "rating"):
            remarks.append(_unfit(kind, called[0]))
    free = [one for one in columns if one not in chosen.values()]
    if not header:
        # Without names, content identifies times and ratings; users come first, then items.
        for column in reversed(free[2:]):
            if "time" not in chosen and _are_times(column):
                chosen["time"] = column
            elif "rating" not in chosen and _are_ratings(column.fields):
                chosen["rating"] = column
    for name in ("user", "item"):
        if name not in chosen:
            left = [one for one in free if one not in chosen.values() and all(one.fields)]
            if not left:
                raise DataError(
                    "no column is left for users and items. Give a table that has both, without empty fields."
                )
            chosen[name] = left[0]
            remarks.append(
                f"no column has a usual name for {name}s: {left[0].name!r} is a guess by its position. "
                f"Correct {name} in this entry's columns if it is wrong"
            )
    notes = "".join(remarks)
    unread = [repr(one.name) for one in columns if one not in chosen.values() if repr(one.name) not in notes]
    if unread:
        counted = "" if header else " (counted from 0)"
        remarks.append(f"columns that are not read{counted}: {', '.join(unread)}")
    return {name: chosen[name] for name in ("user", "item", "rating", "time") if name in chosen}, remarks


def _fits(kind: str, column: _Column) -> bool:
    """Whether the content of a column matches its name."""
    if kind == "time":
        return bool(column.time_formats)
    return all(map(_is_number, column.fields)) if kind == "rating" else all(column.fields)


def _unfit(kind: str, column: _Column) -> str:
    """A note on a column whose content does not match its name, and what to do."""
    wanted = (
        "not seconds or milliseconds since 1970, nor a date that fedrec reads (docs/datasets.md)"
        if kind == "time"
        else "not a number with a decimal point"
    )
    return (
        f"column {column.name!r} is NOT read as {kind}: {column.first_that_is_no(kind)}, {wanted}. To read "
        f"it, correct the file, and write {kind}: {json.dumps(column.name)} into this entry's columns"
    )


def _called(name: str, field: str) -> bool:
    """Whether a column's name contains a word for `name`: `user_id`, `userId`, `userid:token`."""
    words = re.sub(r"([a-z])([A-Z])", r"\1 \2", field.partition(":")[0])
    parts = re.split(r"[^a-z]+", words.lower())
    return any(re.fullmatch(rf"(?:{_NAMES[name]})(?:id|s|name)?", part) for part in parts)


def _is_integer(text: str) -> bool:
    return re.fullmatch(r"-?[0-9]+", text) is not None


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?", text) is not None


def _is_time(text: str) -> bool:
    return re.fullmatch(r"-?[0-9]+|[0-9]+\.[0-9]*", text) is not None


def _are_times(column: _Column) -> bool:
    """Whether an unnamed column has times: dates, or numbers as large as recent times."""
    if all(map(_is_time, column.fields)):
        return min(int(field.partition(".")[0]) for field in column.fields) >= _SINCE_1970
    return bool(column.time_formats)


def _are_ratings(column: Sequence[str]) -> bool:
    return all(map(_is_number, column)) and len(set(column)) <= _MOST_RATINGS
