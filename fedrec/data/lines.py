"""Read text files as numbered lines, exactly as written; an unreadable line is an error with its number.

A line ends with a line feed, or with a carriage return and a line feed; the last line needs no end. A byte
order mark before UTF-8 text is skipped. Lines are read in blocks, so memory does not grow with the file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from fedrec.config.catalogue import ENCODINGS, Encoding
from fedrec.data.packed import opened
from fedrec.errors import DataError

LONGEST_LINE = 1_000_000
"""The most characters of a line; a longer one means that the file is no table of lines."""
_TOO_LONG = f"more than {LONGEST_LINE:,} characters. Is the file a table of lines?"
_BLOCK_BYTES = 8 * 1024**2
_MOST_BYTES_OF_A_CHARACTER = 4
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Lines:
    """Consecutive lines of a file with their numbers, from 1."""

    numbers: Sequence[int]
    texts: list[str]


def read_lines(path: Path, encoding: Encoding) -> Iterator[Lines]:
    """Yield the lines of a file in blocks; raise `DataError` at a line that is no text."""
    first = 1
    for block in _blocks(path, encoding):
        text = _decoded(block, path, first, encoding)
        texts = text.split("\n")
        if not texts[-1]:
            texts.pop()
        if "\r" in text:
            texts = [line.removesuffix("\r") for line in texts]
        if _looks_odd(text, texts):
            _refuse_unreadable(texts, path, first)
        yield Lines(range(first, first + len(texts)), texts)
        first += len(texts)


def joined_in_quotes(blocks: Iterator[Lines], path: Path) -> Iterator[Lines]:
    """Join each line with an open double quote to the lines that follow, by line feeds.

    The joined line has the number of its first line.
    """
    number, pending, length, is_open = 0, list[str](), 0, False
    for block in blocks:
        odd = [text.count('"') % 2 == 1 for text in block.texts]
        if not is_open and not any(odd):
            yield block
            continue
        numbers, texts = [], []
        for line, text, toggles in zip(block.numbers, block.texts, odd, strict=True):
            if not is_open:
                number, pending, length = line, [], 0
            pending.append(text)
            length += len(text) + 1
            is_open ^= toggles
            if not is_open:
                numbers.append(number)
                texts.append("\n".join(pending))
            elif length > LONGEST_LINE:
                raise _never_closed(path, number)
        if texts:
            yield Lines(numbers, texts)
    if is_open:
        raise _never_closed(path, number)


def _never_closed(path: Path, number: int) -> DataError:
    return DataError(f"{path}, line {number}: a double quote is opened and not closed.")


def _blocks(path: Path, encoding: Encoding) -> Iterator[bytes]:
    """Yield the bytes of the file in blocks of whole lines."""
    with opened(path) as stream:
        rest = _without_mark(stream) if encoding == "utf-8" else b""
        while block := stream.read(_BLOCK_BYTES):
            rest += block
            end = rest.rfind(b"\n") + 1
            # An unfinished line stays for the next block, unless it is far too long.
            if end or len(rest) > _MOST_BYTES_OF_A_CHARACTER * LONGEST_LINE:
                yield rest[: end or len(rest)]
                rest = rest[end or len(rest) :]
        if rest:
            yield rest


def _without_mark(stream: BinaryIO) -> bytes:
    start = stream.read(len(_BYTE_ORDER_MARK))
    return b"" if start == _BYTE_ORDER_MARK else start


def _decoded(block: bytes, path: Path, first: int, encoding: Encoding) -> str:
    if len(block) > _MOST_BYTES_OF_A_CHARACTER * LONGEST_LINE and b"\n" not in block:
        raise DataError(f"{path}, line {first}: {_TOO_LONG}")
    try:
        return block.decode(encoding)
    except UnicodeDecodeError as error:
        line = first + block.count(b"\n", 0, error.start)
        raise DataError(
            f"{path}, line {line}: the byte 0x{block[error.start]:02x} is not {encoding} text. Save the "
            f"file as UTF-8, or set encoding in its format to one of: {', '.join(ENCODINGS)}."
        ) from None


def _looks_odd(text: str, lines: Sequence[str]) -> bool:
    """Whether any of many lines may be unreadable, by a fast check."""
    ends = text.count("\r\n") + text.endswith("\r")
    return "\0" in text or text.count("\r") != ends or max(map(len, lines)) > LONGEST_LINE


def _refuse_unreadable(lines: Sequence[str], path: Path, first: int) -> None:
    """Raise `DataError` at the first unreadable line."""
    for number, line in enumerate(lines, first):
        if len(line) > LONGEST_LINE:
            raise DataError(f"{path}, line {number}: {_TOO_LONG}")
        if "\r" in line:
            raise DataError(
                f"{path}, line {number}: a carriage return inside the line. End lines with a line feed, or "
                "with a carriage return and a line feed."
            )
        if "\0" in line:
            raise DataError(f"{path}, line {number}: a zero byte inside the line. Is the file text?")
