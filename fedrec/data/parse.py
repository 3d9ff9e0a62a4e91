"""Text tables to typed columns. A malformed row is an error with its file, line and value.

The typed read by polars is the fast path. Only when it fails, or yields a hole, is the file
read again line by line, slowly, to say exactly which line is wrong and how.
"""

import csv
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl

from fedrec.config.catalogue import Column, TableFormat
from fedrec.errors import DataError

INTERACTION_SCHEMA = {"rating": pl.Float64, "time": pl.Int64, "row": pl.Int64}
_DATE_PARTS = ("year", "month", "day")
_MOST_LINES_SHOWN = 3
_SECONDS_PER_DAY = 86_400


def read_interactions(path: Path, format_: TableFormat) -> pl.DataFrame:
    """The columns user, item (as spelled in the file), rating, time and row (from 0).

    Rating is 1 where the file has none; time is in seconds, 0 where the file has none.
    """
    names = _column_names(path, format_)
    wanted = _wanted(format_)
    places = {name: names.index(column) for name, (column, _) in wanted.items()}
    # polars separates by one byte: with '::' every other column is the gap, which must be empty.
    step = len(format_.separator)
    width = step * (len(names) - 1) + 1
    gaps = [_polars_name(place) for place in range(width) if place % step]
    schema: dict[str, Any] = {_polars_name(place): pl.String for place in range(width)}
    schema |= {_polars_name(step * places[name]): kind for name, (_, kind) in wanted.items()}
    try:
        table = pl.read_csv(
            path,
            separator=format_.separator[0],
            has_header=False,
            skip_lines=int(format_.header),
            quote_char='"' if format_.quoted else None,
            schema=schema,
            columns=[*(_polars_name(step * place) for place in places.values()), *gaps],
        )
    except pl.exceptions.PolarsError as error:
        raise _explained(path, format_, len(names), places) or DataError(f"{path}: {error}") from error
    table = table.rename({_polars_name(step * place): name for name, place in places.items()})
    if not (
        _is_whole(table.select(list(places))) and all(table[gap].null_count() == len(table) for gap in gaps)
    ):
        raise _explained(path, format_, len(names), places) or DataError(f"{path}: a field is empty")
    if table.is_empty():
        raise DataError(f"{path}: holds no rows. Delete it and run again to fetch it anew.")
    return _tidied(table, path, format_)


def read_titles(path: Path, format_: TableFormat) -> pl.DataFrame:
    """The columns item (text, as spelled in the file) and title."""
    names = _column_names(path, format_)
    item, title = (names.index(_single(format_.columns[name])) for name in ("item", "title"))
    width = 1 + max(item, title)
    rows: list[tuple[str, str]] = []
    for line, fields in _lines(path, format_):
        if len(fields) < width:
            raise DataError(f"{path}, line {line}: {len(fields)} fields, expected {width} or more")
        rows.append((fields[item], fields[title]))
    return pl.DataFrame(rows, schema={"item": pl.String, "title": pl.String}, orient="row")


def _tidied(table: pl.DataFrame, path: Path, format_: TableFormat) -> pl.DataFrame:
    """Rating and time in their common form, and the row number."""
    if "rating" not in table.columns:
        table = table.with_columns(rating=pl.lit(1.0))
    match format_.time if "time" in format_.columns else None:
        case None:
            time = pl.lit(0, pl.Int64)
        case "seconds":
            time = pl.col("time")
        case "milliseconds":
            time = pl.col("time") // 1000
        case "ymd":
            days = pl.date(*_DATE_PARTS)
            time = days.cast(pl.Int32).cast(pl.Int64) * _SECONDS_PER_DAY
    try:
        return table.with_columns(time=time, row=pl.int_range(pl.len())).select(
            "user", "item", *(pl.col(name).cast(kind) for name, kind in INTERACTION_SCHEMA.items())
        )
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{path}: a date does not exist ({error})") from error


def _wanted(format_: TableFormat) -> dict[str, tuple[Column, Any]]:
    """The columns to read: our name for each, the file's, and its type."""
    id_kind = pl.Int64 if format_.ids != "text" else pl.String
    kinds: dict[str, Any] = {"user": id_kind, "item": id_kind, "rating": pl.Float64, "time": pl.Int64}
    wanted: dict[str, tuple[Column, Any]] = {}
    for name, column in format_.columns.items():
        if isinstance(column, tuple):
            wanted |= dict(zip(_DATE_PARTS, ((part, pl.Int32) for part in column), strict=True))
        else:
            wanted[name] = (column, kinds[name])
    return wanted


def _column_names(path: Path, format_: TableFormat) -> list[Column]:
    """The file's columns in order: their names, or without a header line their positions."""
    try:
        first = next(_lines(path, format_, below_header=False))[1]
    except StopIteration:
        raise DataError(f"{path}: is empty. Delete it and run again to fetch it anew.") from None
    names: list[Column] = list(first) if format_.header else list(range(len(first)))
    for column in format_.columns.values():
        for wanted in column if isinstance(column, tuple) else (column,):
            if wanted not in names:
                known = (
                    f"header names {', '.join(first)}" if format_.header else f"first line has {len(first)}"
                )
                raise DataError(
                    f"{path}: has no column {wanted!r}; its {known}. Mend the entry's format.columns."
                )
    return names


def _lines(path: Path, format_: TableFormat, *, below_header: bool = True) -> Iterator[tuple[int, list[str]]]:
    """(line number from 1, fields) of each line, read plainly."""
    with path.open(
        encoding="utf-8-sig" if format_.encoding == "utf-8" else format_.encoding, newline=""
    ) as stream:
        if format_.quoted:
            reader = csv.reader(stream, delimiter=format_.separator)
            numbered = ((reader.line_num, fields) for fields in reader)
        else:
            # Only line feeds end a line: str.splitlines would also split at rarer characters.
            lines = (line.rstrip("\n").removesuffix("\r") for line in stream)
            numbered = ((number, line.split(format_.separator)) for number, line in enumerate(lines, 1))
        for number, fields in numbered:
            if not (below_header and format_.header and number == 1):
                yield number, fields


def _explained(path: Path, format_: TableFormat, width: int, places: dict[str, int]) -> DataError | None:
    """The error for the first malformed lines; None where every line looks right."""
    columns = {name: (places[name], kind) for name, (_, kind) in _wanted(format_).items()}
    faults = ((line, _fault(fields, width, columns)) for line, fields in _lines(path, format_))
    messages = (f"{path}, line {line}: {fault}" for line, fault in faults if fault)
    shown = list(islice(messages, _MOST_LINES_SHOWN))
    return DataError("\n".join(shown)) if shown else None


def _fault(fields: list[str], width: int, columns: dict[str, tuple[int, Any]]) -> str | None:
    """What is wrong with one line, None where nothing is."""
    if len(fields) != width:
        return f"{len(fields)} fields, expected {width}: {'|'.join(fields)[:80]!r}"
    for name, (place, kind) in columns.items():
        value = fields[place]
        if value == "":
            return f"{name} is empty"
        if kind != pl.String and not _is_number(value, whole=kind != pl.Float64):
            return f"{name} is {value!r}, expected {'a number' if kind == pl.Float64 else 'an integer'}"
    return None


def _is_number(text: str, *, whole: bool) -> bool:
    try:
        number = int(text) if whole else float(text)
    except ValueError:
        return False
    return number == number and abs(number) != float("inf")


def _polars_name(place: int) -> str:
    """What polars calls the column at `place` of a file it reads without a header."""
    return f"column_{place}"


def _is_whole(table: pl.DataFrame) -> bool:
    """Whether every field holds something, and every rating is a finite number."""
    for column in table.iter_columns():
        if column.null_count() or (column.dtype == pl.String and (column == "").any()):
            return False
        if column.dtype == pl.Float64 and not column.is_finite().all():
            return False
    return True


def _single(column: Column | tuple[Column, ...]) -> Column:
    assert not isinstance(column, tuple), "the schema allows a list for time alone"
    return column
