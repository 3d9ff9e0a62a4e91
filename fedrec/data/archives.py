"""Single members out of archives, without ever unpacking one.

Only the member asked for is read, into memory, so an archive cannot write anywhere. Links
and names that point outside are refused all the same: they mean a tampered archive.
"""

import gzip
import io
import lzma
import stat
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from fedrec.errors import SourceError

MAX_MEMBER_BYTES = 2 * 1024**3
"""No raw file here is near this; a larger member is a mistake or a decompression bomb."""

_BROKEN = (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError)


def read_member(archive: Path | BinaryIO, member: str) -> bytes:
    """The content of `member`; `a.zip!b.txt` is member `b.txt` of the archive `a.zip` inside."""
    outer, _, inner = member.partition("!")
    _refuse_outside(outer)
    try:
        content = _read(archive, outer)
    except _BROKEN as error:
        raise SourceError(f"the archive is damaged or was cut short ({error})") from error
    return read_member(io.BytesIO(content), inner) if inner else content


def _read(archive: Path | BinaryIO, member: str) -> bytes:
    if zipfile.is_zipfile(archive):
        return _read_from_zip(archive, member)
    if not isinstance(archive, Path):
        archive.seek(0)
        with tarfile.open(fileobj=archive) as opened:
            return _read_from_tar(opened, member)
    with tarfile.open(archive) as opened:
        return _read_from_tar(opened, member)


def _read_from_zip(archive: Path | BinaryIO, member: str) -> bytes:
    with zipfile.ZipFile(archive) as opened:
        try:
            info = opened.getinfo(member)
        except KeyError:
            raise _no_such_member(member, opened.namelist()) from None
        if stat.S_ISLNK(info.external_attr >> 16):
            raise SourceError(f"member {member} is a link, which is refused")
        _refuse_large(member, info.file_size)
        return opened.read(info)


def _read_from_tar(opened: tarfile.TarFile, member: str) -> bytes:
    try:
        info = opened.getmember(member)
    except KeyError:
        raise _no_such_member(member, opened.getnames()) from None
    if not info.isfile():
        raise SourceError(f"member {member} is a link or no plain file, which is refused")
    _refuse_large(member, info.size)
    stream = opened.extractfile(info)
    assert stream is not None, "a plain file always has content"
    return stream.read()


def _refuse_outside(member: str) -> None:
    path = PurePosixPath(member)
    if path.is_absolute() or ".." in path.parts or "\\" in member:
        raise SourceError(f"member {member} points outside the archive, which is refused")


def _refuse_large(member: str, size: int) -> None:
    if size > MAX_MEMBER_BYTES:
        raise SourceError(f"member {member} has {size:,} bytes, more than the {MAX_MEMBER_BYTES:,} allowed")


def _no_such_member(member: str, names: list[str]) -> SourceError:
    listed = ", ".join(sorted(names)[:8]) + (", ..." if len(names) > 8 else "")
    return SourceError(f"the archive has no member {member}; it holds {listed or 'nothing'}")
