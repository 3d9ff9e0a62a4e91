"""Many files as one archive: a tar that is written in one way only, and read only as it was written.

Its first member is a manifest, sealed JSON, which says name, length and sha256 of every file behind it, in
order. A reader knows from it each byte that is no content, and compares it: a link, another name, another
order or anything more or less than the manifest says is refused. Equal files give equal bytes. It is written
and read as a stream; `tar` unpacks it, too.
"""

import hashlib
import json
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fedrec.errors import StorageError
from fedrec.files.atomic import sha256_of_file
from fedrec.files.sealed import sealed, unsealed

_MANIFEST = "manifest.json"
_FILES = "files"
_FORMAT = {"format": "fedrec archive", "version": 1}
_BLOCK = 512
"""Bytes of a tar's header; content is filled up to a multiple of them."""
_END = bytes(2 * _BLOCK)
_PIECE = 1 << 20
_MOST_MANIFEST_BYTES = 256 * 1024**2
"""A manifest has about 200 bytes for a file; one of a million files is smaller."""
_MOST_BYTES = 1 << 60
_MOST_CHARACTERS = 1024
"""Of a name."""
_MOST_CHARACTERS_SHOWN = 80


@dataclass(frozen=True)
class BundledFile:
    """A file of an archive."""

    name: str
    size: int
    sha256: str

    @classmethod
    def of(cls, name: str, path: Path) -> "BundledFile":
        """The file at `path` as it is now."""
        return cls(name, path.stat().st_size, sha256_of_file(path))


def write_bundle(stream: IO[bytes], files: Mapping[BundledFile, Path]) -> None:
    """Write files as one archive; `StorageError` where one is no longer what it was."""
    listed = [[file.name, file.size, file.sha256] for file in files]
    manifest = json.dumps(sealed({**_FORMAT, _FILES: listed}), indent=1).encode()
    stream.write(_header(_MANIFEST, len(manifest)) + manifest + _filling(len(manifest)))
    for file, path in files.items():
        stream.write(_header(file.name, file.size))
        digest = hashlib.sha256()
        with path.open("rb") as source:
            left = file.size
            while piece := source.read(min(_PIECE, left)):
                digest.update(piece)
                stream.write(piece)
                left -= len(piece)
        if left or digest.hexdigest() != file.sha256:
            raise StorageError(f"{path}: was changed while it was read. Export it again.")
        stream.write(_filling(file.size))
    stream.write(_END)


class BundleReader:
    """An archive that is read once, from its start to its end; `name` is what messages call it."""

    def __init__(self, stream: IO[bytes], name: str) -> None:
        self._stream = stream
        self._name = name
        self.files = self._manifest()

    def pieces(self, file: BundledFile) -> Iterator[bytes]:
        """The content of the next of `files`; asked for in their order, each to its end.

        `StorageError` where it is not what the manifest says: before, or instead of, the end.
        """
        expected = _header(file.name, file.size)
        found = self._read(len(expected))
        if found != expected:
            raise self._damaged(f"holds {_described(found)} where its manifest has {_shown(file.name)}")
        digest = hashlib.sha256()
        left = file.size
        while left:
            piece = self._read(min(_PIECE, left))
            left -= len(piece)
            digest.update(piece)
            yield piece
        if digest.hexdigest() != file.sha256:
            raise self._damaged(f"{_shown(file.name)} in it is not what its manifest says")
        if self._read(len(_filling(file.size))) != _filling(file.size):
            raise self._damaged(f"holds something behind {_shown(file.name)}")

    def end(self) -> None:
        """Read the end, behind the last file; `StorageError` where there is more."""
        if self._read(len(_END)) != _END or self._stream.read(1):
            raise self._damaged("holds more than its manifest says")

    def _manifest(self) -> list[BundledFile]:
        """The files that the manifest lists."""
        start = self._stream.read(_BLOCK)
        try:
            size = tarfile.TarInfo.frombuf(start, "utf-8", "strict").size
        except (tarfile.HeaderError, ValueError):
            size = -1
        if not 0 < size <= _MOST_MANIFEST_BYTES or start != _header(_MANIFEST, size):
            raise self._damaged("does not begin with a manifest of ours", "Give one that fedrec wrote.")
        text = self._read(size)
        try:
            content = unsealed(text)
        except ValueError as error:
            raise self._damaged(f"its manifest is damaged: {error}") from error
        listed = content.pop(_FILES, None)
        if content != _FORMAT or not isinstance(listed, list):
            raise self._damaged("is of another version of fedrec", "Read it with the version that wrote it.")
        try:
            files = [_listed(entry) for entry in listed]
        except ValueError as error:
            raise self._damaged(f"its manifest lists what is not taken: {error}") from error
        if self._read(len(_filling(size))) != _filling(size):
            raise self._damaged("holds something behind its manifest")
        return files

    def _read(self, count: int) -> bytes:
        """So many bytes; `StorageError` at an early end."""
        pieces = []
        while count and (piece := self._stream.read(count)):
            pieces.append(piece)
            count -= len(piece)
        if count:
            raise self._damaged("ends too early")
        return b"".join(pieces)

    def _damaged(self, what: str, advice: str = "Copy it again, or write it anew.") -> StorageError:
        return StorageError(f"{self._name}: {what}. Nothing of it was taken. {advice}")


def _listed(entry: object) -> BundledFile:
    """A file of a manifest; `ValueError` for what is none, or would lie outside of any folder."""
    match entry:
        case [str(name), int(size), str(sha256)] if 0 <= size < _MOST_BYTES and not isinstance(size, bool):
            parts = name.split("/")
            if len(name) > _MOST_CHARACTERS or "\0" in name or not {"", ".", ".."}.isdisjoint(parts):
                raise ValueError(f"the name {_shown(name)}")
            _header(name, size)
            return BundledFile(name, size, sha256)
    raise ValueError(f"{_shown(repr(entry))}, which is no file")


def _header(name: str, size: int) -> bytes:
    """The header of a regular file that belongs to nobody and is of no time."""
    about = tarfile.TarInfo(name)
    about.size = size
    return about.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def _filling(size: int) -> bytes:
    return bytes(-size % _BLOCK)


def _described(header: bytes) -> str:
    """What the header of a tar says it is."""
    try:
        found = tarfile.TarInfo.frombuf(header[:_BLOCK], "utf-8", "replace")
    except (tarfile.HeaderError, ValueError):
        return "bytes that are no file"
    kind = "a link" if found.issym() or found.islnk() else "a file" if found.isreg() else "something else"
    return f"{kind} called {_shown(found.name)}"


def _shown(text: str) -> str:
    cut = text if len(text) <= _MOST_CHARACTERS_SHOWN else f"{text[:_MOST_CHARACTERS_SHOWN]}..."
    return repr(cut)
