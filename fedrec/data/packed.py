"""Read the text of raw files that are compressed by gzip, or parquet files as the CSV of their table.

The first bytes of a file decide how it is read, not its name.
"""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import polars as pl

from fedrec.data.archives import MAX_MEMBER_BYTES, most_bytes
from fedrec.errors import DataError

_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
_MOST_CHARACTERS_SHOWN = 200


class _Bounded(io.RawIOBase):
    """A stream of the bytes that gzip unpacks, up to the compression ratio of a table."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._left = most_bytes(path.stat().st_size, MAX_MEMBER_BYTES)
        self._stream = gzip.open(path)  # noqa: SIM115 (closed below)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        try:
            block = self._stream.read(len(buffer))
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(
                f"{self._path}: gzip cannot unpack it ({error}). It is damaged or cut short; pack it again."
            ) from error
        self._left -= len(block)
        if self._left < 0:
            raise DataError(
                f"{self._path}: unpacks to far more data than a table has. Unpack it by hand to read it."
            )
        buffer[: len(block)] = block
        return len(block)

    def close(self) -> None:
        self._stream.close()
        super().close()


def is_parquet(path: Path) -> bool:
    """Whether a file is a parquet file by its first bytes."""
    return _first_bytes(path) == _PARQUET


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open the bytes of a text file, unpacked if it is compressed."""
    first = _first_bytes(path)
    if first == _PARQUET:
        yield io.BytesIO(_as_csv(path))
    elif first.startswith(_GZIP):
        with io.BufferedReader(cast("io.RawIOBase", _Bounded(path))) as packed:
            yield packed
    else:
        with path.open("rb") as stream:
            yield stream


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(len(_PARQUET))


def _as_csv(path: Path) -> bytes:
    try:
        return pl.read_parquet(path).write_csv().encode()
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).partition("\n")[0][:_MOST_CHARACTERS_SHOWN]
        raise DataError(
            f"{path}: this parquet file cannot be read as a table ({reason}). Write it again with columns "
            "of numbers, text and times only, or as csv."
        ) from error
