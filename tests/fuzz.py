"""Whether raw files are read exactly as written, or refused with file and line.

    python -m tests.fuzz --count 1254 --seed 0

Small files are made in every format of the catalogue, in formats of one's own, and in archives; each is damaged at
random and read. A second reader, in plain Python and far slower, says what the file holds, or which of its lines
are malformed. Wrong is: another row, a malformed line that is read, a sound file that is refused, a line that is
blamed but sound, an error of another kind, a message that does not name the file or is long, a lost user, a hang.
"""

import argparse
import bz2
import datetime
import gzip
import io
import lzma
import random
import re
import signal
import sys
import tarfile
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from fedrec.config.catalogue import Column, Dataset, RawFile, Source, TableFormat, load_catalogue
from fedrec.config.protocol import Protocol
from fedrec.config.protocol_file import load_protocols
from fedrec.data import lines as lines_module
from fedrec.data.fetch import fetch
from fedrec.data.parse import read_interactions, read_titles
from fedrec.data.prepare import prepare
from fedrec.data.split import TEST, make_split
from fedrec.errors import DataError, SourceError
from tests.conftest import ROOT

OUTCOMES = ("read as written", "refused with line", "refused whole file", "wrong")
LONGEST_MESSAGE = 1000
SECONDS = 60
"""What takes longer hangs."""
OWN = {
    "own csv": TableFormat(
        ",", {"user": "who", "item": "what", "rating": "stars", "time": "when"}, header=True
    ),
    "own tsv": TableFormat("\t", {"user": 1, "item": 0}),
    "own quoted csv": TableFormat(",", {"user": 0, "item": 1, "time": 3}, quoted=True),
    "own latin-1 csv": TableFormat(
        ";", {"user": "u", "item": "i"}, header=True, encoding="latin-1", ids="text"
    ),
    "own gb18030 csv": TableFormat("|", {"user": 0, "item": 1, "rating": 2}, encoding="gb18030"),
    "own dated csv": TableFormat(
        ",", {"user": "who", "item": "what", "time": "when"}, header=True, quoted=True, time="iso"
    ),
    "own days first": TableFormat(";", {"user": 0, "item": 1, "time": 2}, time="day_first"),
    "own quoted titles": TableFormat(",", {"item": "id", "title": "name"}, header=True, quoted=True),
}
ARCHIVES = ("zip", "tar", "tar.gz", "gz", "bz2", "xz")
MEMBER = "rows.csv"
Row = tuple[Any, ...]


# The second reader


@dataclass(frozen=True)
class Reading:
    """What a file holds, or what is wrong: its malformed lines, or that it holds nothing, or no such times."""

    rows: list[Row]
    faulty: set[int]
    empty: bool = False
    from_there: int | None = None
    """A line from which on quotes are wrong, so that what follows may be blamed too."""

    def may_blame(self, line: int) -> bool:
        return line in self.faulty or (self.from_there is not None and line >= self.from_there)

    @property
    def sound(self) -> bool:
        return not self.faulty and self.from_there is None and not self.empty


def plain_reading(content: bytes, format_: TableFormat) -> Reading:
    """Read a table byte by byte and field by field."""
    if format_.encoding == "utf-8" and content[:3] == b"\xef\xbb\xbf":
        content = content[3:]
    faulty: set[int] = set()
    texts: list[str] = []
    pieces = content.split(b"\n")
    if pieces[-1] == b"":
        pieces.pop()
    for number, piece in enumerate(pieces, 1):
        piece = piece[:-1] if piece.endswith(b"\r") else piece
        try:
            text = piece.decode(format_.encoding)
        except UnicodeDecodeError:
            text = ""
            faulty.add(number)
        if "\r" in text or "\0" in text or len(text) > 1_000_000:
            faulty.add(number)
        texts.append(text)
    if faulty and format_.quoted:
        # Where records begin and end is not known.
        return Reading([], faulty, from_there=1)
    if not texts:
        return Reading([], set(), empty=True)
    if not format_.quoted:
        records = [(number, text.split(format_.separator)) for number, text in enumerate(texts, 1)]
        return _tabled(records, format_, faulty)
    records, wrong_from = _quoted_records(texts, format_.separator)
    found = _tabled(records, format_, set()) if records else Reading([], set(), empty=wrong_from is None)
    return replace(found, from_there=wrong_from)


def _quoted_records(texts: Sequence[str], separator: str) -> tuple[list[tuple[int, list[str]]], int | None]:
    """The records of a quoted table, letter by letter, and the line from which on quotes are wrong."""
    records: list[tuple[int, list[str]]] = []
    fields: list[str] = []
    line = start = 1
    state, value = "start", ""
    text = "\n".join(texts) + "\n"
    for letter in text:
        if state == "inside":
            if letter == '"':
                state = "closed"
            else:
                value += letter
        elif letter == '"' and state == "start":
            state = "inside"
        elif letter == '"' and state == "closed":
            state, value = "inside", value + '"'
        elif letter in (separator, "\n"):
            fields.append(value)
            state, value = "start", ""
            if letter == "\n":
                records.append((start, fields))
                fields, start = [], line + 1
        elif letter == '"' or state == "closed":
            return records, start
        else:
            state, value = "plain", value + letter
        line += letter == "\n"
    return records, None if state == "start" and not fields else start


def _tabled(
    records: Sequence[tuple[int, list[str]]],
    format_: TableFormat,
    faulty: set[int],
) -> Reading:
    """The rows of a table from its fields."""
    first_line, first = records[0]
    names: list[Column] = list(first) if format_.header else list(range(len(first)))
    flat: dict[str, Column] = {}
    for name, column in format_.columns.items():
        if isinstance(column, tuple):
            flat |= dict(zip(("year", "month", "day"), column, strict=True))
        else:
            flat[name] = column
    if any(names.count(column) != 1 for column in flat.values()):
        return Reading([], faulty | {first_line})
    places = {name: names.index(column) for name, column in flat.items()}
    rows: list[Row] = []
    spelled: list[tuple[int, dict[str, str]]] = []
    for number, fields in records[1 if format_.header else 0 :]:
        if number in faulty:
            continue
        if len(fields) != len(first):
            faulty.add(number)
            continue
        values = {name: fields[place] for name, place in places.items()}
        spelled.append((number, values))
        row = _row(values, format_)
        if row is None:
            faulty.add(number)
        else:
            rows.append(row)
    if format_.ids == "auto" and "user" in places and not faulty:
        rows, mixed = _with_ids(rows, spelled)
        faulty |= mixed | _with_other_zones(spelled, format_)
    early = format_.time == "milliseconds" and max((row[3] for row in rows), default=0) < 10**8
    nothing = not spelled or early
    return Reading(rows, faulty, empty=nothing and not faulty and "user" in places)


def _row(values: Mapping[str, str], format_: TableFormat) -> Row | None:
    """One row, with ids as they are spelled where they are not stated to be integers; None where malformed."""
    if "title" in values:
        return (values["item"], values["title"]) if values["item"] else None
    ids = [
        _integer(values[name]) if format_.ids == "integer" else values[name] or None
        for name in ("user", "item")
    ]
    rating = _number(values["rating"]) if "rating" in values else 1.0
    time: int | None = 0
    if "year" in values:
        parts = [_integer(values[name]) for name in ("year", "month", "day")]
        try:
            epoch = datetime.date(1970, 1, 1)
            time = None if None in parts else (datetime.date(*parts) - epoch).days * 86_400  # type: ignore[arg-type]
        except (ValueError, OverflowError):
            time = None
    elif "time" in values:
        time = _seconds(values["time"], format_.time)
        if time is not None and format_.time == "milliseconds":
            time //= 1000
    row = (*ids, rating, time)
    return None if None in row else row


def _seconds(text: str, form: str) -> int | None:
    """Whole seconds, or milliseconds, of a number or of a date."""
    if form not in ("iso", "day_first"):
        whole, point, fraction = text.partition(".")
        sound = not point or (text[0] != "-" and all(letter in "0123456789" for letter in fraction))
        return _integer(whole) if sound else None
    found = re.fullmatch(
        r"(?a:(\d+)[-/.](\d+)[-/.](\d+)(?:(,?[ T])(\d\d?):(\d\d)(?::(\d\d)(?:\.\d+)?)?( ?[ap]m)?"
        r"( ?(?:Z|UTC|[+-]\d\d(?::?\d\d)?))?)?)",
        text,
    )
    if found is None or found[4] not in (None, " ", "T" if form == "iso" else ", "):
        return None
    ordered = found.group(1, 2, 3) if form == "iso" else found.group(3, 2, 1)
    if [len(part) for part in ordered] > [4, 2, 2] or len(ordered[0]) < 4 or len(ordered[2]) > 2:
        return None
    assert found[8] is None, "no mistake here writes AM or PM"
    clock = [int(part or 0) for part in found.group(5, 6, 7)]
    digits = (found[9] or "").strip(" ZUTC").replace(":", "").ljust(5, "0") if found[9] else "+0000"
    hours, minutes = int(digits[1:3] or 0), int(digits[3:5] or 0)
    if hours > 23 or minutes > 59:
        return None
    ahead = datetime.timedelta(hours=hours, minutes=minutes) * (-1 if digits[0] == "-" else 1)
    try:
        local = datetime.datetime(*map(int, ordered), *clock)  # type: ignore[arg-type, misc]
    except ValueError:
        return None
    return int((local - datetime.datetime(1970, 1, 1) - ahead).total_seconds())


def _with_other_zones(spelled: Sequence[tuple[int, Mapping[str, str]]], format_: TableFormat) -> set[int]:
    """Lines of dates without a time zone, where others have one."""
    if format_.time not in ("iso", "day_first"):
        return set()
    zoned = {number: bool(re.search(r":.*(Z|UTC|[+-]\d)", values["time"])) for number, values in spelled}
    return {number for number, named in zoned.items() if not named} if any(zoned.values()) else set()


def _integer(text: str) -> int | None:
    digits = text.removeprefix("-")
    if not digits or any(letter not in "0123456789" for letter in digits) or len(digits) > 5000:
        return None
    # Without the zeros before it, a number of 20 digits is too large.
    digits = digits.lstrip("0") or "0"
    if len(digits) > 19:
        return None
    number = int(digits) * (-1 if text[0] == "-" else 1)
    return number if -(2**63) <= number < 2**63 else None


def _number(text: str) -> float | None:
    mantissa, _, exponent = text.lower().partition("e")
    if "e" in text.lower() and not (exponent.lstrip("+-").isdecimal() and exponent.isascii()):
        return None
    if exponent.count("+") + exponent.count("-") > 1:
        return None
    digits = mantissa.removeprefix("-")
    if digits.count(".") > 1 or not digits.replace(".", "", 1).isdecimal() or not text.isascii():
        return None
    number = float(text)
    return number if abs(number) <= 3.4028234663852886e38 else None


def _with_ids(
    rows: list[Row], spelled: Sequence[tuple[int, Mapping[str, str]]]
) -> tuple[list[Row], set[int]]:
    """The rows with ids as integers where each has one spelling only, and lines of ids unlike others."""
    columns: list[list[Any]] = []
    for place in range(2):
        texts = [row[place] for row in rows]
        like = [text.removeprefix("-").isdecimal() and text.isascii() for text in texts]
        if any(like) and not all(like):
            return rows, {number for (number, values), ok in zip(spelled, like, strict=True) if not ok}
        integers = [_integer(text) if ok else None for text, ok in zip(texts, like, strict=True)]
        exact = [
            integer is not None and str(integer) == text
            for integer, text in zip(integers, texts, strict=True)
        ]
        columns.append(integers if all(exact) else texts)
    return [(user, item, *row[2:]) for user, item, row in zip(*columns, rows, strict=True)], set()


# Made files


def made_table(format_: TableFormat, dice: random.Random) -> bytes:
    """A sound file in a format: some users, each with some items."""
    flat: list[tuple[str, Column]] = []
    for name, column in format_.columns.items():
        parts = (
            zip(("year", "month", "day"), column, strict=True)
            if isinstance(column, tuple)
            else [(name, column)]
        )
        flat += parts
    if format_.header:
        extra = [("", f"other{number}") for number in range(dice.randrange(3))]
        layout = dice.sample([*flat, *extra], len(flat) + len(extra))
    else:
        by_place = {place: name for name, place in flat}
        layout = [(by_place.get(n, ""), n) for n in range(max(by_place) + 1 + dice.randrange(2))]
    lines = [[str(column) for _, column in layout]] if format_.header else []
    text = dice.random() < 0.5 and format_.ids != "integer"
    for user in range(dice.randrange(3, 9)):
        for item in dice.sample(range(60), dice.randrange(1, 9)):
            values = _values(user, item, format_, text, dice)
            lines.append([values.get(name, dice.choice(["", "x y", "-", "5"])) for name, _ in layout])
    end = dice.choice(["\n", "\n", "\r\n"])
    content = end.join(format_.separator.join(_spelled(one, format_, dice) for one in line) for line in lines)
    content += end if dice.random() < 0.9 else ""
    mark = b"\xef\xbb\xbf" if format_.encoding == "utf-8" and dice.random() < 0.1 else b""
    return mark + content.encode(format_.encoding)


def _values(user: int, item: int, format_: TableFormat, text: bool, dice: random.Random) -> dict[str, str]:
    letters = {"utf-8": "äß漢", "latin-1": "éü", "cp1252": "é", "gb18030": "漢字"}[format_.encoding]
    name = f"{dice.choice(letters)} title {item}"
    if format_.quoted and dice.random() < 0.3:
        name += dice.choice([f"{format_.separator} more", ' "said"', "\nbelow"])
    return {
        "user": f"u{letters[0]}{user}" if text else str(user * 7),
        "item": f"i-{item}" if text and "title" not in format_.columns else str(item),
        "rating": dice.choice(["1", "5", "3.5", "4.0", "0", "1e0"]),
        "time": _time(dice.randrange(10**9, 2 * 10**9), format_, dice),
        "year": str(dice.randrange(1956, 2011)),
        "month": str(dice.randrange(1, 13)),
        "day": str(dice.randrange(1, 29)),
        "title": name,
    }


def _time(seconds: int, format_: TableFormat, dice: random.Random) -> str:
    if format_.time in ("iso", "day_first"):
        day = "%Y-%m-%d" if format_.time == "iso" else "%d.%m.%Y"
        return time.strftime(day + dice.choice(["", " %H:%M", " %H:%M:%S"]), time.gmtime(seconds))
    return str(seconds * (1000 if format_.time == "milliseconds" else 1)) + dice.choice(["", "", ".0", ".75"])


def _spelled(field: str, format_: TableFormat, dice: random.Random) -> str:
    special = any(letter in field for letter in ('"', "\n", format_.separator))
    if format_.quoted and (special or dice.random() < 0.5):
        return '"' + field.replace('"', '""') + '"'
    return field.replace(format_.separator, "_")


# Damage

ODD_FIELDS = [
    "", " ", "x", " 5", "5 ", "+5", "-", "--5", "1_0", "٣", "５", "007", "-0", "0x10", "1e3", "1e400", "1e39", "1e-400", "nan",
    "inf", "-inf", "NaN", ".5", "5.", ".", "3,5", "9" * 19, "9" * 25, "-9223372036854775808", "9223372036854775807",
    "9223372036854775808", "-9223372036854775809", "1" * 400, "true", "2024-04-18", "2024-02-30", "2024-04-18T13:51:56Z", "2024-04-18 13:51:56.5+02", "18/4/2024", "31.2.2024", "1e9.5", "-1.5", "null", "é", '"', '""', '"5"', 'a"b', "'5'", "2" * 5000,
]  # fmt: skip
ODD_BYTES = [
    b"\xe9",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\r",
    b"\0",
    b"\x85",
    b"\xc3",
    b"\xe2\x80\xa8",
    b"\x1c",
    b"\x0b",
    b" ",
]


def damaged(content: bytes, format_: TableFormat, dice: random.Random) -> bytes:
    """The file with up to three mistakes in it."""
    for _ in range(dice.choice([0, 1, 1, 1, 1, 2, 3])):
        content = dice.choice(MISTAKES)(content, format_, dice)
    return content


def _in_a_line(change: Callable[[list[bytes], TableFormat, random.Random], list[bytes]]) -> Any:
    """A mistake in the fields of one line."""

    def made(content: bytes, format_: TableFormat, dice: random.Random) -> bytes:
        lines = content.split(b"\n")
        place = dice.randrange(len(lines))
        separator = format_.separator.encode()
        lines[place] = separator.join(change(lines[place].split(separator), format_, dice))
        return b"\n".join(lines)

    return made


def _with_lines(change: Callable[[list[bytes], int, random.Random], list[bytes]]) -> Any:
    """A mistake in the lines of the file."""

    def made(content: bytes, _: TableFormat, dice: random.Random) -> bytes:
        lines = content.split(b"\n")
        return b"\n".join(change(lines, dice.randrange(len(lines)), dice))

    return made


def _anywhere(change: Callable[[bytes, int, random.Random], bytes]) -> Any:
    """A mistake at some byte."""

    def made(content: bytes, _: Any, dice: random.Random) -> bytes:
        return change(content, dice.randrange(len(content) + 1), dice)

    return made


def _odd_field(fields: list[bytes], format_: TableFormat, dice: random.Random) -> list[bytes]:
    odd = dice.choice(ODD_FIELDS).encode(format_.encoding, errors="ignore")
    place = dice.randrange(len(fields))
    return [*fields[:place], odd, *fields[place + 1 :]]


MISTAKES: list[Callable[[bytes, TableFormat, random.Random], bytes]] = [
    _in_a_line(_odd_field),
    _in_a_line(_odd_field),
    _in_a_line(_odd_field),
    _in_a_line(lambda fields, _, _dice: fields[:-1]),
    _in_a_line(lambda fields, _, _dice: [*fields, b"7"]),
    _in_a_line(lambda fields, _, _dice: [b"3", *fields]),
    _in_a_line(lambda fields, _, dice: dice.sample(fields, len(fields))),
    _in_a_line(lambda fields, _, _dice: [b'"', *fields]),
    _in_a_line(lambda fields, _, dice: [dice.choice([b",", b"\t", b"::", b" ", b":", b";"]).join(fields)]),
    _in_a_line(lambda fields, _, dice: [*fields[:-1], fields[-1] + b"9" * dice.choice([100, 2_000_000])]),
    _with_lines(lambda lines, place, _: lines[:place] + lines[place + 1 :]),
    _with_lines(lambda lines, place, _: [*lines[:place], lines[place], *lines[place:]]),
    _with_lines(lambda lines, place, _: [*lines[:place], b"", *lines[place:]]),
    _with_lines(lambda lines, _place, dice: dice.sample(lines, len(lines))),
    _with_lines(
        lambda lines, place, _: [*lines[:place], b" ".join(lines[place : place + 2]), *lines[place + 2 :]]
    ),
    _with_lines(lambda lines, _place, _: lines[:1]),
    _with_lines(lambda lines, _place, _: [line.replace(b"\r", b"") + b"\r" for line in lines]),
    _anywhere(lambda content, place, _dice: content[:place]),
    _anywhere(lambda content, place, _dice: content[place:]),
    _anywhere(lambda content, place, dice: content[:place] + dice.choice(ODD_BYTES) + content[place:]),
    _anywhere(lambda content, place, dice: content[:place] + dice.choice(ODD_BYTES) + content[place + 1 :]),
    _anywhere(
        lambda content, place, dice: content[:place] + bytes([dice.randrange(256)]) + content[place + 1 :]
    ),
    _anywhere(lambda content, place, dice: content[:place] + content[place + dice.randrange(1, 9) :]),
    lambda content, _, _dice: b"\xef\xbb\xbf" + content,
    lambda content, _, _dice: content.replace(b"\n", b"\r"),
    lambda content, format_, dice: content.replace(
        format_.separator.encode(), dice.choice([b",", b"\t", b";"])
    ),
    lambda content, format_, _dice: content.decode(format_.encoding, "replace").encode("utf-16"),
]
ARCHIVE_MISTAKES: list[Callable[[bytes, None, random.Random], bytes]] = [
    _anywhere(
        lambda content, place, dice: content[:place] + bytes([dice.randrange(256)]) + content[place + 1 :]
    ),
    _anywhere(
        lambda content, place, dice: content[:place] + bytes([dice.randrange(256)]) + content[place + 1 :]
    ),
    _anywhere(lambda content, place, dice: content[:place] + dice.randbytes(8) + content[place + 8 :]),
    _anywhere(lambda content, place, _dice: content[:place]),
    _anywhere(
        lambda content, place, dice: (
            content[:place] + dice.randbytes(dice.randrange(1, 600)) + content[place:]
        )
    ),
    _anywhere(lambda content, place, dice: content[:place] + content[place + dice.randrange(1, 600) :]),
    _anywhere(lambda content, place, _dice: content[:place] + b"\xff" * 8 + content[place + 8 :]),
    _anywhere(
        lambda content, place, dice: content[:place] + bytes(dice.randrange(1, 600)) + content[place + 100 :]
    ),
]


# Judgement


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Raise `TimeoutError` in what hangs."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"not done after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def judged_table(content: bytes, dataset: Dataset, file: RawFile, folder: Path) -> tuple[str, str]:
    """The outcome of reading a damaged table, and what is wrong with it."""
    expected = plain_reading(content, file.format)
    path = folder / file.path
    path.write_bytes(content)
    is_titles = "title" in file.format.columns
    try:
        with within(SECONDS):
            found = (read_titles if is_titles else read_interactions)(path, file.format)
            lost = None if is_titles else _lost(dataset, folder, expected)
    except DataError as error:
        return _judged_refusal(str(error), path, expected)
    except Exception as error:  # whatever else is raised is what this looks for
        return "wrong", f"{type(error).__name__}: {error}"
    rows = [row if is_titles else row[:4] for row in found.rows()]
    if not expected.sound:
        return "wrong", f"read, but lines {sorted(expected.faulty)[:3]} are malformed"
    if [tuple(map(repr, row)) for row in rows] != [tuple(map(repr, row)) for row in expected.rows]:
        return "wrong", "read other rows than are written"
    return ("wrong", lost) if lost else ("read as written", "")


def _judged_refusal(message: str, path: Path, expected: Reading) -> tuple[str, str]:
    if len(message) > LONGEST_MESSAGE:
        return "wrong", f"a message of {len(message):,} characters"
    if str(path) not in message:
        return "wrong", f"does not name the file: {message}"
    blamed = [int(line) for line in re.findall(rf"^{re.escape(str(path))}, line (\d+): ", message, re.M)]
    if expected.sound:
        return "wrong", f"refused, but sound: {message}"
    if blamed and all(map(expected.may_blame, blamed)):
        return "refused with line", ""
    if not blamed and expected.empty:
        return "refused whole file", ""
    return "wrong", f"blamed {blamed}, malformed are {sorted(expected.faulty)[:5]}: {message}"


def _lost(dataset: Dataset, folder: Path, expected: Reading) -> str | None:
    """Which users are missing from what is prepared or split, where the rows are sound."""
    if not expected.sound or not any(row[2] > 0 for row in expected.rows):
        return None
    items: dict[str, set[str]] = {}
    for user, item, rating, _ in expected.rows:
        if rating > 0:
            items.setdefault(str(user), set()).add(str(item))
    made = prepare(dataset, folder)
    if set(made.users["original_id"]) != set(items):
        return "users are missing in what is prepared"
    protocol = replace(_clean_protocol(), candidates=1)
    enough = {user for user, known in items.items() if len(known) >= 3}
    unseen = len(set().union(*items.values())) - max(map(len, items.values()))
    if not enough or unseen < 2:
        return None
    tested = make_split(made.interactions, protocol).pairs_of(TEST)[0]
    names = made.users["original_id"].to_list()
    return None if {names[user] for user in tested} == enough else "users are missing in the split"


@cache
def _clean_protocol() -> Protocol:
    return load_protocols(ROOT / "config/protocols.yaml")["clean"]


def judged_archive(content: bytes, kind: str, held: bytes, folder: Path) -> tuple[str, str]:
    """The outcome of fetching the member of a damaged archive, and what is wrong with it."""
    name = f"{MEMBER}.{kind}"
    (folder / name).write_bytes(content)
    file = RawFile("out.csv", None, (Source("mirror", name, member=MEMBER),), TableFormat(",", {}))
    try:
        with within(SECONDS):
            fetch(file, folder / "out.csv", folder)
    except SourceError as error:
        told = len(str(error)) <= LONGEST_MESSAGE and name in str(error)
        return ("refused whole file", "") if told else ("wrong", f"message: {str(error)[:LONGEST_MESSAGE]}")
    except Exception as error:  # whatever else is raised is what this looks for
        return "wrong", f"{type(error).__name__}: {error}"
    # All but a plain tar have checksums: what comes out is what went in.
    right = plain_member(content) if kind == "tar" else held
    same = (folder / "out.csv").read_bytes() == right
    return ("read as written", "") if same else ("wrong", "another content came out")


def plain_member(content: bytes) -> bytes | None:
    """The member of a tar, block by block."""
    place, found = 0, None
    while place + 512 <= len(content):
        header = content[place : place + 512]
        name = header[:100].split(b"\0")[0].decode("utf-8", "replace")
        digits = header[124:136].strip(b" \0")
        size = int(digits, 8) if digits and digits.isdigit() else 0
        if name == MEMBER:
            found = content[place + 512 : place + 512 + size]
        place += 512 * (1 + -(-size // 512))
    return found


def made_archive(kind: str, content: bytes) -> bytes:
    """An archive that holds `content`."""
    out = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as zipped:
            zipped.writestr("about.txt", "made")
            zipped.writestr(MEMBER, content)
        return out.getvalue()
    if kind.startswith("tar"):
        with tarfile.open(fileobj=out, mode="w:gz" if kind == "tar.gz" else "w") as tarred:
            for name, held in (("about.txt", b"made"), (MEMBER, content)):
                info = tarfile.TarInfo(name)
                info.size = len(held)
                tarred.addfile(info, io.BytesIO(held))
        return out.getvalue()
    compress: Mapping[str, Callable[[bytes], bytes]] = {
        "gz": gzip.compress,
        "bz2": bz2.compress,
        "xz": lzma.compress,
    }
    return compress[kind](content)


# The whole


def formats() -> dict[str, TableFormat]:
    """Every format of the catalogue, by the first dataset that has it, and some of one's own."""
    known: dict[str, TableFormat] = {}
    for name, dataset in load_catalogue(ROOT / "config/datasets.yaml").items():
        for file in dataset.files():
            label = f"{name} titles" if file is dataset.titles else name
            if file.format not in known.values():
                known[label if label not in known else f"{label} order"] = file.format
    return known | OWN


def fuzz(count: int, seed: int) -> tuple[dict[str, Counter[str]], list[str]]:
    """Outcomes by format, and what was wrong."""
    tables, wrong = formats(), []
    outcomes: dict[str, Counter[str]] = {}
    kinds = [*tables, *ARCHIVES]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for number in range(count):
            dice = random.Random(f"{seed} {number}")
            kind = kinds[number % len(kinds)]
            if kind in tables:
                content = damaged(made_table(tables[kind], dice), tables[kind], dice)
                file = RawFile("made.dat", None, (Source("mirror", "made.dat"),), tables[kind])
                dataset = Dataset("made", "Made", 1, "file", interactions=file)
                size = dice.choice([50, 300, 1 << 23]) if len(content) < 1 << 20 else 1 << 23
                with mock.patch.object(lines_module, "_BLOCK_BYTES", size):
                    outcome, why = judged_table(content, dataset, file, folder)
            else:
                held = made_table(OWN["own csv"], dice) * dice.choice([1, 30])
                content = made_archive(kind, held)
                for _ in range(dice.choice([0, 1, 1, 1, 2])):
                    content = dice.choice(ARCHIVE_MISTAKES)(content, None, dice)
                outcome, why = judged_archive(content, kind, held, folder)
            outcomes.setdefault(kind, Counter())[outcome] += 1
            if why:
                wrong.append(f"{kind}, input {number} of seed {seed}: {why}")
    return outcomes, wrong


def table_of(outcomes: Mapping[str, Counter[str]]) -> str:
    """The outcomes as a table, with their sums."""
    rows = [(kind, *(counts[outcome] for outcome in OUTCOMES)) for kind, counts in outcomes.items()]
    rows.append(("all", *(sum(row[place] for row in rows) for place in range(1, 1 + len(OUTCOMES)))))
    head = "| format | inputs | " + " | ".join(OUTCOMES) + " |\n| --- |" + " ---: |" * (1 + len(OUTCOMES))
    lines = (f"| {kind} | {sum(counts)} | " + " | ".join(map(str, counts)) + " |" for kind, *counts in rows)
    return "\n".join([head, *lines])


def main() -> None:
    """Fuzz, and print the table; what is wrong ends in status 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=1254)
    parser.add_argument("--seed", type=int, default=0)
    parsed = parser.parse_args()
    outcomes, wrong = fuzz(parsed.count, parsed.seed)
    print(table_of(outcomes))
    print("\n".join(line[:500] for line in wrong))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
