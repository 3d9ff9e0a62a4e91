"""How a table of interactions is probably to be read: separator, header line, which column is which.

A guess for the entry of a new dataset, from names in the header line and from what columns hold. The entry
says what was guessed, and is there to be corrected.
"""

import csv
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from fedrec.config.catalogue import Column, TableFormat
from fedrec.errors import DataError

_SEPARATORS = ("\t", "::", ";", ",", "|", " ")
"""What may stand between fields, the surest first."""
_LINES = 10_000
"""Lines that are looked at."""
_NAMES: Mapping[str, str] = {
    "user": r"user|uid|customer|member|reviewer|visitor|account|session|nutzer|kunde|reader|listener",
    "item": r"item|iid|movie|film|book|isbn|product|asin|song|track|artist|article|business|game|news|venue"
    r"|poi|video|artikel|produkt|buch|recipe|course|app",
    "rating": r"rating|score|stars|overall|preference|weight|count|plays|clicks?|bewertung",
    "time": r"time|timestamp|ts|date|datetime|zeit|datum",
}
"""What columns are called: a name has one of these words as a part."""
_SINCE_1970 = 10**8
"""Integers from here on are seconds: times after 1973."""
_MILLISECONDS = 10**11
"""Integers from here on are milliseconds: as seconds they would be after the year 5000."""
_MOST_RATINGS = 30
"""A column of so few distinct numbers may be one of ratings."""


@dataclass(frozen=True)
class Guess:
    """How a file is read, and what a reader should know of the guess."""

    format: TableFormat
    remarks: tuple[str, ...]


def guess_format(path: Path) -> Guess:
    """Look into a file; a `DataError` tells why it cannot be a table of interactions."""
    lines = _first_lines(path)
    separator, quoted, rows = _separated(path, lines)
    names = rows[0] if _is_header(rows) else None
    columns = [[row[place] for row in rows[names is not None :]] for place in range(len(rows[0]))]
    places, remarks = _places(columns, names)
    ids = (value for name in ("user", "item") for value in columns[places[name]])
    text_ids = not all(_is_integer(value) and str(int(value)) == value for value in ids)
    late = "time" in places and min(map(int, columns[places["time"]])) >= _MILLISECONDS
    named: dict[str, Column | tuple[Column, ...]] = {
        name: place if names is None else names[place] for name, place in places.items()
    }
    return Guess(
        TableFormat(
            separator, named, names is not None, quoted,
            ids="text" if text_ids else "auto", time="milliseconds" if late else "seconds",
        ),
        tuple(remarks),
    )  # fmt: skip


def _first_lines(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            lines = [line.rstrip("\r\n") for line in islice(stream, _LINES)]
    except FileNotFoundError:
        raise DataError(f"{path}: no such file. Give the path of a text table of interactions.") from None
    except IsADirectoryError:
        raise DataError(f"{path}: is a folder. Give the path of a text table of interactions.") from None
    except UnicodeDecodeError:
        raise DataError(
            f"{path}: is no text in UTF-8. Unpack it, or save it as text with one interaction per line."
        ) from None
    lines = [line for line in lines if line]
    if len(lines) < 2:
        raise DataError(f"{path}: has fewer than two lines. Give a table with one interaction per line.")
    return lines


def _separated(path: Path, lines: Sequence[str]) -> tuple[str, bool, list[list[str]]]:
    """The separator that gives all lines as many fields, two or more; whether they are quoted; the fields."""
    quoted = any('"' in line for line in lines)
    for separator in _SEPARATORS:
        if quoted and len(separator) == 1:
            rows = list(csv.reader(lines, delimiter=separator))
        else:
            rows = [line.split(separator) for line in lines]
        if len(rows[0]) > 1 and all(len(row) == len(rows[0]) for row in rows):
            return separator, quoted and len(separator) == 1, rows
    shown = ", ".join(map(repr, _SEPARATORS))
    raise DataError(
        f"{path}: no separator gives every line as many fields ({shown} were tried). Give a table with one "
        "interaction per line, or write its entry by hand (docs/datasets.md)."
    )


def _is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first line names columns: no number in it, and a word we know, or numbers below."""
    first, rest = rows[0], rows[1:]
    if any(_is_number(field) or not field for field in first):
        return False
    below = any(all(_is_number(row[place]) for row in rest) for place in range(len(first)))
    return below or any(_called(name, field) for field in first for name in _NAMES)


def _places(
    columns: Sequence[Sequence[str]], names: Sequence[str] | None
) -> tuple[dict[str, int], list[str]]:
    """Which column is the user, the item, the rating and the time; and remarks on what is uncertain."""
    places: dict[str, int] = {}
    remarks: list[str] = []
    fits: Mapping[str, Callable[[Sequence[str]], bool]] = {
        "user": _holds_something, "item": _holds_something, "time": _are_integers, "rating": _are_numbers,
    }  # fmt: skip
    for name, fit in fits.items():
        for place, field in enumerate(names or ()):
            if name in places or place in places.values() or not _called(name, field):
                continue
            if fit(columns[place]):
                places[name] = place
            elif name in ("time", "rating"):
                wanted = "seconds since 1970" if name == "time" else "numbers"
                remarks.append(f"column {field!r} holds no {wanted}, so it is not read as {name}")
    free = [place for place in range(len(columns)) if place not in places.values()]
    if names is None:
        # Without names, what columns hold tells times and ratings; users come first, then items.
        for place in reversed(free[2:]):
            if "time" not in places and _are_times(columns[place]):
                places["time"] = place
            elif "rating" not in places and _are_ratings(columns[place]):
                places["rating"] = place
    for name in ("user", "item"):
        if name not in places:
            left = [place for place in free if place not in places.values()]
            if not left:
                raise DataError("no column is left for users and items. Give a table that has both.")
            places[name] = left[0]
            remarks.append(f"no column is called like one of {name}s: this is a guess by its place")
    told = "".join(remarks)
    left_out = [field for place, field in enumerate(names or ()) if place not in places.values()]
    unread = [field for field in left_out if repr(field) not in told]
    if unread:
        remarks.append(f"not read: {', '.join(unread)}")
    if "time" not in places:
        remarks.append("without a time column the order of a user's rows is that in the file")
    return {name: places[name] for name in ("user", "item", "rating", "time") if name in places}, remarks


def _called(name: str, field: str) -> bool:
    """Whether a column's name has a word for `name` as a part: `user_id`, `userId`, `userid:token`."""
    words = re.sub(r"([a-z])([A-Z])", r"\1 \2", field.partition(":")[0])
    parts = re.split(r"[^a-z]+", words.lower())
    return any(re.fullmatch(rf"(?:{_NAMES[name]})(?:id|s|name)?", part) for part in parts)


def _is_integer(text: str) -> bool:
    return re.fullmatch(r"-?[0-9]+", text) is not None


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?", text) is not None


def _holds_something(column: Iterable[str]) -> bool:
    return all(column)


def _are_integers(column: Iterable[str]) -> bool:
    return all(map(_is_integer, column))


def _are_numbers(column: Iterable[str]) -> bool:
    return all(map(_is_number, column))


def _are_times(column: Sequence[str]) -> bool:
    return _are_integers(column) and min(map(int, column)) >= _SINCE_1970


def _are_ratings(column: Sequence[str]) -> bool:
    return _are_numbers(column) and len(set(column)) <= _MOST_RATINGS
