"""Parse text tables into typed columns, exactly as written; anything else is an error with file, line and
value.

Every line has as many fields as the first, even if a column is not read. A number consists of ASCII digits,
without blanks, plus signs or digit groups. Ids that are text keep their spelling. Times are whole seconds:
fractions are truncated.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from fedrec.config.catalogue import Column, DateForm, TableFormat
from fedrec.data.dates import DATE_EXAMPLES, date_form, date_forms, seconds_of_dates, seconds_of_days
from fedrec.data.lines import Lines, joined_in_quotes, read_lines
from fedrec.errors import DataError

INTERACTION_SCHEMA = {"rating": pl.Float64, "time": pl.Int64, "row": pl.Int64}
_DATE_PARTS = ("year", "month", "day")
_MOST_LINES_SHOWN = 3
_MOST_CHARACTERS_SHOWN = 80
_LARGEST_RATING = float(np.finfo(np.float32).max)
"""Ratings are stored in single precision."""
_EARLIEST_MILLISECONDS = 10**11
"""A time in 1973: milliseconds that are all earlier are probably seconds."""
_SECONDS_PER_YEAR = 31_556_952
_CURE = "Write rows into it or, where it was fetched, delete it and run again to fetch it anew."

_Kind = Literal["auto", "integer", "number", "text", "time", "title"]
"""The kind of a field; `auto` is an id, for which the whole column decides whether ids are integers."""
_SPELLING: Mapping[_Kind, str] = {
    "integer": r"^-?[0-9]+$",
    "number": r"^-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$",
    "text": r"^(?s:.)+$",
    "time": r"^(?:-?[0-9]+|[0-9]+[.][0-9]*)$",
}
_ONLY_SPELLING = r"^(?:0|-?[1-9][0-9]*)$"
"""An integer in its only spelling, so that ids that differ as text also differ as integers."""
_TYPES: Mapping[_Kind, Any] = {"integer": pl.Int64, "number": pl.Float64, "time": pl.Int64}
_WORDS: Mapping[_Kind, str] = {
    "integer": "an integer from -2^63 to 2^63 - 1",
    "number": f"a number of at most {_LARGEST_RATING:.1e}",
    "time": "an integer from -2^63 to 2^63 - 1, behind which a fraction may stand",
}


@dataclass(frozen=True)
class _Field:
    """A column to read: our name, its position in a line, and its kind."""

    name: str
    place: int
    kind: _Kind


@dataclass
class _Ids:
    """Observations of ids of kind `auto`: line and text of the first integer, and of the first other id."""

    integer: tuple[int, str] | None = None
    other: tuple[int, str] | None = None
    plain: bool = True
    """Whether every integer has its only spelling and fits into 64 bits."""


@dataclass
class _Zones:
    """Line and text of the first date with a time zone, and of the first without."""

    named: tuple[int, str] | None = None
    unnamed: tuple[int, str] | None = None


@dataclass
class _Table:
    """A file that is read: format, number of fields, columns, and observations of ids."""

    path: Path
    format: TableFormat
    width: int
    first: int
    """The number of its first line with data."""
    fields: Sequence[_Field]
    ids: dict[str, _Ids] = field(default_factory=dict)
    zones: _Zones = field(default_factory=_Zones)


def read_interactions(path: Path, format_: TableFormat) -> pl.DataFrame:
    """Read the columns user, item (as spelled in the file), rating, time and row (from 0).

    Without ratings, all ratings are 1; without times, all times are 0. Times are in seconds.
    """
    ids: _Kind = format_.ids
    kinds: dict[str, _Kind] = {"user": ids, "item": ids, "rating": "number", "time": "time"}
    table, parts = _read(path, format_, kinds)
    whole = pl.concat(list(parts))
    if whole.is_empty():
        raise DataError(f"{path}: has no rows. {_CURE}")
    for name, seen in table.ids.items():
        whole = whole.with_columns(_settled(whole[name], seen, path))
    _check_times(whole, table)
    if "rating" not in whole.columns:
        whole = whole.with_columns(rating=pl.lit(1.0))
    if "time" not in whole.columns:
        whole = whole.with_columns(time=pl.lit(0, pl.Int64))
    return whole.with_columns(row=pl.int_range(pl.len())).select(
        "user", "item", *(pl.col(name).cast(kind) for name, kind in INTERACTION_SCHEMA.items())
    )


def read_titles(path: Path, format_: TableFormat) -> pl.DataFrame:
    """Read the columns item (text, as spelled in the file) and title."""
    _, parts = _read(path, format_, {"item": "text", "title": "title"})
    return pl.concat(list(parts)).select("item", "title")


def _read(
    path: Path, format_: TableFormat, kinds: Mapping[str, _Kind]
) -> tuple[_Table, Iterator[pl.DataFrame]]:
    """Read a file; return its table and its columns by our names, in one or more parts."""
    blocks = read_lines(path, format_.encoding)
    if format_.quoted:
        blocks = joined_in_quotes(blocks, path)
    first = next(blocks, None)
    if first is None:
        raise DataError(f"{path}: is empty. {_CURE}")
    names = _column_names(path, format_, first)
    fields = [_Field(name, names.index(column), kind) for name, column, kind in _wanted(format_, kinds)]
    table = _Table(path, format_, len(names), first.numbers[0], fields)
    if format_.header:
        first = Lines(first.numbers[1:], first.texts[1:])
    return table, (_part(table, block) for block in chain([first], blocks))


def _wanted(format_: TableFormat, kinds: Mapping[str, _Kind]) -> Iterator[tuple[str, Column, _Kind]]:
    """Our name, the file's column and the kind of each column to read; a date has three columns."""
    for name, column in format_.columns.items():
        if isinstance(column, tuple):
            yield from ((part, one, "integer") for part, one in zip(_DATE_PARTS, column, strict=True))
        else:
            yield name, column, kinds[name]


def _column_names(path: Path, format_: TableFormat, lines: Lines) -> list[Column]:
    """The file's columns in order, by name, or by position without a header line."""
    fields, misquoted = _split(pl.Series([lines.texts[0]]), format_)
    if misquoted.any():
        raise DataError(f"{path}, line {lines.numbers[0]}: {_MISQUOTED}: {shown(lines.texts[0])}")
    count = len(fields[0])
    found = [_field(fields, index, format_)[0] for index in range(count)]
    names: list[Column] = found if format_.header else list(range(count))
    for column in format_.columns.values():
        for wanted in column if isinstance(column, tuple) else (column,):
            if names.count(wanted) == 1:
                continue
            known = f"header names {shown(', '.join(found))}" if format_.header else f"first line has {count}"
            number = "no column" if wanted not in names else "several columns"
            raise DataError(
                f"{path}, line {lines.numbers[0]}: has {number} {wanted!r}; its {known}. Correct "
                "format.columns or the separator in the entry."
            )
    return names


def _part(table: _Table, lines: Lines) -> pl.DataFrame:
    """Parse the columns of some lines; raise `DataError` with the first malformed lines."""
    texts = pl.Series(lines.texts, dtype=pl.String)
    fields, misquoted = _split(texts, table.format)
    counts = fields.list.len()
    faults = _Faults(table, lines)
    faults.note(misquoted, lambda row: f"{_MISQUOTED}: {shown(lines.texts[row])}")
    faults.note(counts != table.width, lambda row: _miscounted(table, lines.texts[row], counts[row]))
    columns = [
        _typed(_field(fields, field.place, table.format).alias(field.name), field, table, lines, faults)
        for field in table.fields
    ]
    faults.raise_if_any()
    parsed = _with_seconds(pl.DataFrame(columns), table.format, faults)
    faults.raise_if_any()
    return parsed


class _Faults:
    """The first malformed lines and their faults."""

    def __init__(self, table: _Table, lines: Lines) -> None:
        self._table = table
        self._lines = lines
        self._found: dict[int, str] = {}

    def note(self, bad: pl.Series, explain: Callable[[int], str]) -> None:
        """Record the first rows where `bad` is true; a row keeps its first fault."""
        for row in bad.arg_true().head(_MOST_LINES_SHOWN).to_list():
            if row not in self._found:
                self._found[row] = explain(row)

    def raise_if_any(self) -> None:
        """Raise `DataError` with the first of them."""
        shown = [
            f"{self._table.path}, line {self._lines.numbers[row]}: {self._found[row]}"
            for row in sorted(self._found)[:_MOST_LINES_SHOWN]
        ]
        if shown:
            raise DataError("\n".join(shown))


_MISQUOTED = "a double quote may open and close a field, and stand twice within; not so here"


def _split(texts: pl.Series, format_: TableFormat) -> tuple[pl.Series, pl.Series]:
    """Split lines into the fields that `_field` reads, and whether quotes are wrong."""
    if not format_.quoted:
        return texts.str.split(format_.separator), pl.Series([False]).new_from_index(0, len(texts))
    # Match each field with the separator before it, so that no match is empty.
    separator = f"\\x{{{ord(format_.separator):x}}}"
    led = format_.separator + texts
    fields = led.str.extract_all(f'{separator}(?:"(?:[^"]|"")*"|[^"{separator}\n]*)')
    return fields, fields.list.join("") != led


def _field(fields: pl.Series, place: int, format_: TableFormat) -> pl.Series:
    """The field at index `place` of each line, without its quotes; null if the line is shorter."""
    field = fields.list.get(place, null_on_oob=True)
    if not format_.quoted:
        return field
    inside = field.str.slice(1).str.strip_prefix('"').str.strip_suffix('"')
    return inside.str.replace_all('""', '"', literal=True)


def _typed(texts: pl.Series, wanted: _Field, table: _Table, lines: Lines, faults: _Faults) -> pl.Series:
    """Convert a column to its kind; record values of another kind."""
    if wanted.kind == "title":
        return texts
    form = date_form(table.format.time)
    if wanted.kind == "time" and form is not None:
        return _dates(texts, form, wanted, table, lines, faults)
    spelling = _SPELLING["text" if wanted.kind == "auto" else wanted.kind]
    misspelt = ~texts.str.contains(spelling)
    whole = texts.str.replace("[.][0-9]*$", "") if wanted.kind == "time" else texts
    values = whole.cast(_TYPES.get(wanted.kind, pl.String), strict=False)
    beyond = values.is_null()
    if wanted.kind == "number":
        beyond = beyond | (values.abs() > _LARGEST_RATING)
    # If a line lacks the field, its number of fields is the fault.
    bad = (misspelt | beyond) & texts.is_not_null()
    faults.note(bad, lambda row: _misspelt(wanted, texts[row], table.format))
    if wanted.kind == "auto":
        _look_at_ids(texts, table.ids.setdefault(wanted.name, _Ids()), lines)
    return values


def _dates(
    texts: pl.Series, form: DateForm, wanted: _Field, table: _Table, lines: Lines, faults: _Faults
) -> pl.Series:
    """Convert dates to seconds; record other values, and dates with a time zone."""
    seconds, zoned = seconds_of_dates(texts, form)
    bad = seconds.is_null() & texts.is_not_null()
    faults.note(bad, lambda row: _misspelt(wanted, texts[row], table.format))
    for key, those in (("named", zoned), ("unnamed", ~zoned & ~seconds.is_null())):
        if getattr(table.zones, key) is None and those.any():
            row = int(those.arg_max() or 0)
            setattr(table.zones, key, (lines.numbers[row], texts[row]))
    return seconds


def _check_times(whole: pl.DataFrame, table: _Table) -> None:
    """Raise `DataError` if times are of two kinds, or probably in another unit than stated."""
    if table.zones.named and table.zones.unnamed:
        (line, text), (zoned_line, zoned) = table.zones.unnamed, table.zones.named
        raise DataError(
            f"{table.path}, line {line}: the time {shown(text)} has no time zone, but line {zoned_line}, "
            f"{shown(zoned)}, has one. Write all times with a time zone, or all without."
        )
    if table.format.time == "milliseconds" and "time" in whole.columns:
        latest = int(whole["time"].max())  # type: ignore[arg-type]
        if latest < _EARLIEST_MILLISECONDS // 1000:
            year = 1970 + latest // _SECONDS_PER_YEAR
            raise DataError(
                f"{table.path}: read as milliseconds since 1970, its latest time is in the year {year}. "
                "Write time: seconds in the entry's format, even for another unit: only the order of times "
                "matters, and milliseconds are rounded to seconds."
            )


def _look_at_ids(texts: pl.Series, seen: _Ids, lines: Lines) -> None:
    """Record the first integer id, the first other id, and whether integers are plain."""
    is_integer = texts.str.contains(_SPELLING["integer"])
    if seen.integer is None and is_integer.any():
        row = int(is_integer.arg_max() or 0)
        seen.integer = lines.numbers[row], texts[row]
    if seen.other is None and not is_integer.all():
        row = int(is_integer.arg_min() or 0)
        seen.other = lines.numbers[row], texts[row]
    if seen.plain and seen.other is None:
        plain = texts.str.contains(_ONLY_SPELLING) & texts.cast(pl.Int64, strict=False).is_not_null()
        seen.plain = bool(plain.all())


def _settled(texts: pl.Series, seen: _Ids, path: Path) -> pl.Series:
    """Convert a column of ids to integers if all are, or to text if none is."""
    if seen.integer and seen.other:
        (line, text), (integer_line, integer) = seen.other, seen.integer
        raise DataError(
            f"{path}, line {line}: {texts.name} is {shown(text)}, but in line {integer_line} it is the "
            f"integer {shown(integer)}. Set ids in the entry's format: text keeps ids as they are spelled, "
            "integer refuses all others."
        )
    return texts.cast(pl.Int64) if seen.plain and seen.other is None else texts


def _with_seconds(columns: pl.DataFrame, format_: TableFormat, faults: _Faults) -> pl.DataFrame:
    """Convert time columns to seconds; record dates that do not exist."""
    if "time" in format_.columns and format_.time == "milliseconds":
        return columns.with_columns(pl.col("time") // 1000)
    if "time" not in format_.columns or format_.time != "ymd":
        return columns
    year, month, day = (columns[part].to_numpy() for part in _DATE_PARTS)
    seconds, exists = seconds_of_days(year, month, day)
    faults.note(
        pl.Series(~exists),
        lambda row: f"the date {year[row]}-{month[row]}-{day[row]} (year-month-day) does not exist",
    )
    return columns.drop(_DATE_PARTS).with_columns(pl.Series("time", seconds))


def _miscounted(table: _Table, text: str, count: int) -> str:
    if not text:
        return "is blank. Remove the line."
    hint = _hint_of_quotes(text, table.format)
    return f"{count} fields, expected {table.width} as in line {table.first}: {shown(text)}{hint}"


def _misspelt(wanted: _Field, text: str, format_: TableFormat) -> str:
    if text == "":
        return f"{wanted.name} is empty"
    if wanted.kind == "time":
        return _misspelt_time(text, format_)
    blanks = ", without blanks" if text.strip() != text else ""
    key = ", or set ids: text in the entry's format" if wanted.name in ("user", "item") else ""
    hint = _hint_of_quotes(text, format_)
    return f"{wanted.name} is {shown(text)}, expected {_WORDS[wanted.kind]}{blanks}{key}{hint}"


def _misspelt_time(text: str, format_: TableFormat) -> str:
    own = date_form(format_.time)
    expected = _WORDS["time"] if own is None else f"a date that exists, such as {DATE_EXAMPLES[own]}"
    forms: list[str] = [form for form in date_forms(pl.Series([text])) if form != own]
    if own is not None and pl.Series([text]).str.contains(_SPELLING["time"])[0]:
        forms = ["seconds"]
    meant = " or ".join(f"time: {form}" for form in forms)
    hint = f". Set {meant} in the entry's format (interactions.format.time)" if forms else ""
    blanks = ", without blanks" if text.strip() != text else ""
    return f"time is {shown(text)}, expected {expected}{blanks}{hint}{_hint_of_quotes(text, format_)}"


def _hint_of_quotes(text: str, format_: TableFormat) -> str:
    if format_.quoted or '"' not in text:
        return ""
    return ". Set quoted: true in the entry's format where fields stand in double quotes"


def shown(text: str) -> str:
    """A text in quotes for a message, shortened if it is long."""
    spelled = repr(text[:_MOST_CHARACTERS_SHOWN])
    cut = spelled[:_MOST_CHARACTERS_SHOWN]
    return spelled if len(text) <= _MOST_CHARACTERS_SHOWN and cut == spelled else f"{cut} ..."
