"""Pack many files into one tar archive, with a manifest by which a reader detects damage.

The manifest is the first member, as JSON with a checksum: the name, size and sha256 of every following file.
Equal files give equal bytes.
"""

import io
import json
import os
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from fedrec.errors import StorageError
from fedrec.files.atomic import atomic, sha256_of_file
from fedrec.files.checked_json import verified, with_checksum

_MANIFEST = "manifest.json"
_FILES = "files"
_FORMAT = {"format": "fedrec archive", "version": 1}


def write_archive(stream: IO[bytes], files: Mapping[str, Path]) -> int:
    """Write files, by their names in the archive, to one archive; return their total size in bytes."""
    listed = [(name, path.stat().st_size, sha256_of_file(path)) for name, path in files.items()]
    manifest = json.dumps(with_checksum({**_FORMAT, _FILES: listed}), indent=1).encode()
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.GNU_FORMAT) as archive:
        archive.addfile(_member(_MANIFEST, len(manifest)), io.BytesIO(manifest))
        for name, size, _ in listed:
            with files[name].open("rb") as source:
                if os.fstat(source.fileno()).st_size != size:
                    raise StorageError(f"{files[name]}: changed while fedrec read it. Export it again.")
                archive.addfile(_member(name, size), source)
    return sum(size for _, size, _ in listed)


def extract_archive(stream: IO[bytes], folder: Path, name: str) -> list[str]:
    """Extract the files of an archive, which messages call `name`, into an empty folder; return their names.

    `StorageError` if the archive is damaged or not of fedrec: then `folder` may have a part of the files.
    """
    try:
        with _opened(stream) as archive:
            checksums = _read_manifest(archive)
            _extract(archive, checksums, folder)
    except (tarfile.TarError, ValueError) as error:
        raise StorageError(
            f"{name}: {error}. fedrec imported nothing. Copy it again, or export it again."
        ) from error
    return list(checksums)


def _opened(stream: IO[bytes]) -> tarfile.TarFile:
    """Open an archive; `ValueError` if the file does not begin like one."""
    try:
        return tarfile.open(fileobj=stream, mode="r|")
    except tarfile.TarError as error:
        raise ValueError("it is not an archive that fedrec wrote") from error


def _read_manifest(archive: tarfile.TarFile) -> dict[str, str]:
    """The checksums of an archive's files by name; `ValueError` if it has no manifest."""
    first = archive.next()
    content = archive.extractfile(first) if first and first.name == _MANIFEST else None
    if content is None:
        raise ValueError("it does not start with a manifest of fedrec")
    try:
        manifest = verified(content.read())
    except ValueError as error:
        raise ValueError(f"its manifest is damaged: {error}") from error
    listed = manifest.pop(_FILES, None)
    if manifest != _FORMAT:
        raise ValueError("another version of fedrec wrote it")
    match listed:
        case [*entries] if all(isinstance(entry, list) and len(entry) == 3 for entry in entries):
            return {str(name): str(checksum) for name, _, checksum in entries}
    raise ValueError("its manifest lists no files")


def _extract(archive: tarfile.TarFile, checksums: Mapping[str, str], folder: Path) -> None:
    """Extract the files of a manifest to a folder; `ValueError` if the archive has others, or lacks some."""
    missing = dict(checksums)
    while (member := archive.next()) is not None:
        safe = tarfile.data_filter(member, str(folder))
        content = archive.extractfile(member)
        if content is None or not member.isreg() or safe.name not in missing:
            raise ValueError(f"it contains {member.name[:80]!r}, which its manifest does not list as a file")
        with atomic(folder / safe.name) as temporary, temporary.open("wb") as target:
            shutil.copyfileobj(content, target)
        if sha256_of_file(folder / safe.name) != missing.pop(safe.name):
            raise ValueError(f"{safe.name!r} in it is damaged")
    if missing:
        raise ValueError(f"it ends before {next(iter(missing))[:80]!r}")


def _member(name: str, size: int) -> tarfile.TarInfo:
    """A regular file without an owner and a time."""
    member = tarfile.TarInfo(name)
    member.size = size
    return member
