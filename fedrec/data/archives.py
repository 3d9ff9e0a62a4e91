"""Extract single members of archives, without unpacking the whole archive.

Only the requested member is written, to the requested path, so an archive cannot write elsewhere. Links and
names that point outside are refused anyway, since they mean a tampered archive. Archives are read up to their
checksums. A plain tar has none, so only the catalogue's sha256 verifies its content.
"""

import bz2
import gzip
import lzma
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from fedrec.errors import SourceError

MAX_MEMBER_BYTES = 2 * 1024**3
"""The largest member; raw files are far smaller, so a larger one is a mistake or a decompression bomb."""
MAX_TAR_BYTES = 4 * MAX_MEMBER_BYTES
"""The largest sum of all members of a compressed tar."""
MAX_INFLATION = 200
"""The largest ratio of a member's size to its compressed size; tables of numbers stay far below."""
ALWAYS_ALLOWED_BYTES = 16 * 1024**2
"""Up to this size, a member may have any compression ratio."""

_CHUNK_BYTES = 1024**2
_MOST_CHARACTERS_SHOWN = 80
_ENCRYPTED = 1
"""The flag bit of an encrypted zip member."""
_COMPRESSED: Mapping[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
"""Functions that open a compressed file, by its first bytes."""
_BROKEN = (
    zipfile.BadZipFile,
    tarfile.TarError,
    lzma.LZMAError,
    zlib.error,
    struct.error,
    EOFError,
    # Errors of the standard library's readers at impossible sizes, offsets and names.
    OSError,
    ValueError,
    OverflowError,
    RuntimeError,
    IndexError,
)


def read_member(archive: Path, member: str) -> bytes:
    """The content of `member`, named as in `extract_member`."""
    with tempfile.TemporaryDirectory(prefix="fedrec-") as folder:
        extract_member(archive, member, content := Path(folder) / "member")
        return content.read_bytes()


def extract_member(archive: Path, member: str, destination: Path) -> None:
    """Write the content of `member` to `destination`.

    `a.zip!b.txt` is member `b.txt` of the inner archive `a.zip`. The member of a compressed file that is no
    tar is named without the ending: `b.txt` in `b.txt.gz`.
    """
    outer, _, inner = member.partition("!")
    path = PurePosixPath(outer)
    if path.is_absolute() or ".." in path.parts or "\\" in outer:
        raise SourceError(
            f"member {_shown(outer)} points outside the archive. fedrec refuses such members; unpack it "
            "by hand"
        )
    with tempfile.TemporaryDirectory(prefix="fedrec-") as folder:
        scratch = Path(folder)
        if not inner:
            _extract(archive, outer, destination, scratch)
            return
        (scratch / "inside").mkdir()
        between = scratch / "inside" / path.name
        _extract(archive, outer, between, scratch)
        extract_member(between, inner, destination)


@dataclass(frozen=True)
class _Member:
    """An open member: its stream, the size that the archive states, and the largest allowed size."""

    stream: IO[bytes]
    size: int
    most: int


def _extract(archive: Path, member: str, destination: Path, scratch: Path) -> None:
    with archive.open("rb") as stream:
        start = stream.read(max(map(len, _COMPRESSED)))
    opener = next((opens for magic, opens in _COMPRESSED.items() if start.startswith(magic)), None)
    inside = archive if opener is None else _inflated(archive, opener, scratch / "inflated")
    # Errors of writing are not the archive's, so only opening and reading are translated.
    with ExitStack() as stack:
        with _damage_told():
            if _is_tar(inside):
                member_info = _in_tar(inside, member, stack)
            elif opener is not None:
                member_info = _alone(archive, inside, member, stack)
            elif zipfile.is_zipfile(archive):
                member_info = _in_zip(archive, member, stack)
            else:
                raise tarfile.ReadError("it is not a zip or tar archive, nor compressed by gzip, bzip2 or xz")
        if _copy(member_info.stream, destination, member, member_info.most) != member_info.size:
            raise _damaged(f"member {_shown(member)} is shorter than the archive states")


def _is_tar(path: Path) -> bool:
    try:
        # Not `tarfile.is_tarfile`, which also looks into compressed content.
        tarfile.TarFile(path).close()
    except tarfile.TarError:
        return False
    return True


def _inflated(archive: Path, opener: Callable[[Path], Any], destination: Path) -> Path:
    """The whole content of a compressed file, so that its checksum is verified."""
    with opener(archive) as stream:
        _copy(stream, destination, archive.name, most_bytes(archive.stat().st_size, MAX_TAR_BYTES))
    return destination


def _alone(archive: Path, inflated: Path, member: str, stack: ExitStack) -> _Member:
    """The single member of a compressed file."""
    if member != archive.stem:
        raise _no_such_member(member, [archive.stem])
    return _Member(stack.enter_context(inflated.open("rb")), inflated.stat().st_size, MAX_MEMBER_BYTES)


def _in_zip(archive: Path, member: str, stack: ExitStack) -> _Member:
    opened = stack.enter_context(zipfile.ZipFile(archive))
    names = opened.namelist()
    if member not in names:
        raise _no_such_member(member, names)
    info = opened.getinfo(member)
    if stat.S_ISLNK(info.external_attr >> 16):
        raise SourceError(f"member {_shown(member)} is a link, which fedrec does not follow")
    if info.flag_bits & _ENCRYPTED:
        raise SourceError(f"member {_shown(member)} is encrypted. Unpack the archive by hand.")
    most = most_bytes(info.compress_size, MAX_MEMBER_BYTES)
    _refuse_larger(member, info.file_size, most)
    try:
        stream = stack.enter_context(opened.open(info))
    except (NotImplementedError, RuntimeError) as error:
        raise SourceError(
            f"member {_shown(member)} is stored in an unsupported way ({_shown(str(error))}). Unpack the "
            "archive by hand."
        ) from error
    return _Member(stream, info.file_size, most)


def _in_tar(archive: Path, member: str, stack: ExitStack) -> _Member:
    opened = stack.enter_context(tarfile.TarFile(archive))
    whole, place = archive.stat().st_size, -1
    names: list[str] = []
    latest: tarfile.TarInfo | None = None
    for info in opened:
        # A negative or too large size would move the reader backwards or out of the file.
        if not 0 <= info.size <= whole or opened.offset <= place:
            raise tarfile.ReadError(f"member {_shown(info.name)} claims {info.size:,} bytes")
        place = opened.offset
        names.append(info.name)
        # Of two members with one name the later one counts, as in unpacking.
        latest = info if info.name == member else latest
    _refuse_more_after(opened.offset, archive)
    if latest is None:
        raise _no_such_member(member, names)
    if not latest.isreg() or latest.issparse():
        raise SourceError(
            f"member {_shown(member)} is a link or not a plain file, which fedrec does not read"
        )
    _refuse_larger(member, latest.size, MAX_MEMBER_BYTES)
    stream = opened.extractfile(latest)
    assert stream is not None, "a plain file always has content"
    return _Member(stream, latest.size, MAX_MEMBER_BYTES)


def _refuse_more_after(place: int, tar: Path) -> None:
    """Refuse a tar with content after its end: Python 3.11.2 takes a damaged header for the end."""
    with tar.open("rb") as stream:
        stream.seek(place)
        if stream.read(tarfile.BLOCKSIZE).strip(b"\0"):
            raise tarfile.ReadError(f"no header of a member at byte {place:,}")


def _copy(stream: IO[bytes], destination: Path, name: str, most: int) -> int:
    """Copy a stream to its end and return the number of bytes; more than `most` are a `SourceError`."""
    written = 0
    with destination.open("wb") as out:
        while True:
            with _damage_told():
                chunk = stream.read(_CHUNK_BYTES)
            if not chunk:
                return written
            written += len(chunk)
            _refuse_larger(name, written, most)
            out.write(chunk)


def most_bytes(compressed: int, most: int) -> int:
    """The largest allowed number of bytes from a number of compressed ones, at most `most`."""
    return min(most, max(ALWAYS_ALLOWED_BYTES, MAX_INFLATION * compressed))


def _refuse_larger(name: str, size: int, most: int) -> None:
    if size > most:
        raise SourceError(
            f"{_shown(name)} has {size:,} bytes or more, but {most:,} are allowed ({MAX_MEMBER_BYTES:,} per "
            f"member, and {MAX_INFLATION} times its compressed size). If that is right, unpack the archive "
            "by hand."
        )


@contextmanager
def _damage_told() -> Iterator[None]:
    """Translate the errors of damaged archives into a `SourceError`."""
    try:
        yield
    except _BROKEN as error:
        raise _damaged(_shown(str(error) or type(error).__name__)) from error


def _damaged(how: str) -> SourceError:
    return SourceError(f"the archive is damaged or was cut short ({how})")


def _no_such_member(member: str, names: Sequence[str]) -> SourceError:
    listed = ", ".join(map(_shown, sorted(names)[:8])) + (", ..." if len(names) > 8 else "")
    return SourceError(f"the archive has no member {_shown(member)}; it holds {listed or 'nothing'}")


def _shown(text: str) -> str:
    """A text of an archive for a message: shortened, and without unprintable characters."""
    cut = "".join(letter if letter.isprintable() else "?" for letter in text[:_MOST_CHARACTERS_SHOWN])
    return cut if len(text) <= _MOST_CHARACTERS_SHOWN else f"{cut}..."
