"""Write files atomically: a file is complete or absent. Also compute hashes of content."""

import errno
import fcntl
import glob
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from fedrec.errors import StorageError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_IN_THE_WAY = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY)
_STORAGE = (
    *_FULL,
    *_IN_THE_WAY,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EIO,
    errno.EFBIG,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ESTALE,
    errno.EXDEV,
)
"""Errors of the file system. A lost connection is also an OSError, but not among them."""
_FLUSHES = ContextVar("flushes", default=True)
"""Whether writers wait until their data is on the disk."""


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`; rename it to `path` if the block succeeds.

    If the block fails, an older `path` stays unchanged and no temporary file remains. Temporary files of
    killed writers of `path` are removed. `StorageError` if the file system refuses.
    """
    make_folder(path.parent)
    with as_storage_error(path):
        remove_remains(path)
        temporary, lock = _begun(path)
        try:
            yield temporary
            _flush_to_disk(temporary)
            # mkstemp creates private files; results are for everyone the umask allows.
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(path)
            # A rename is on the disk when its folder is.
            _flush_to_disk(path.parent)
        finally:
            temporary.unlink(missing_ok=True)
            os.close(lock)


@contextmanager
def unflushed() -> Iterator[None]:
    """Write files in the block without waiting for the disk: for many files that can be made again."""
    token = _FLUSHES.set(False)
    try:
        yield
    finally:
        _FLUSHES.reset(token)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`, whole or not at all."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, unless they exist."""
    with as_storage_error(folder):
        folder.mkdir(parents=True, exist_ok=True)


def remove_remains(path: Path) -> None:
    """Remove temporary files that killed writers of `path` left in its folder.

    A live writer holds a lock on its file. The system releases the lock of a dead process.
    """
    remove_unlocked(sorted(path.parent.glob(f".{glob.escape(path.name)}.*.part")))


def remove_unlocked(files: Iterable[Path]) -> None:
    """Remove those of `files` that no living process has locked."""
    for remains in files:
        # Errors mean: the file is gone, belongs to another user, or the file system has no locks.
        with suppress(OSError), remains.open("rb+") as stream:
            if try_lock(stream.fileno()):
                remains.unlink(missing_ok=True)


def try_lock(descriptor: int) -> bool:
    """Lock an open file until it is closed or its process ends; return False if another process has it.

    `OSError` if the file system has no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def canonical_json(value: object) -> str:
    """`value` as canonical JSON: keys sorted, no spaces.

    Equal values give equal text, which can be hashed, or compared by Snakemake.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def sha256_of_file(path: Path) -> str:
    """Hex sha256 of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def behind_link(path: Path) -> str:
    """Advice to delete the target of a damaged file that is a link, for example into a cache; else empty."""
    return f" It is a link: delete {path.resolve()}, too." if path.is_symlink() else ""


@contextmanager
def as_storage_error(path: Path) -> Iterator[None]:
    """Translate errors of the file system while `path` is written to `StorageError`, with advice."""
    try:
        yield
    except OSError as error:
        if error.errno not in _STORAGE:
            raise
        raise StorageError(f"{path}: {_advice(path, error)}") from error


def _advice(path: Path, error: OSError) -> str:
    if error.errno in _FULL:
        return (
            "no space left on the disk. fedrec kept no incomplete file. Free some space, then type the same "
            "command again."
        )
    if error.errno in _IN_THE_WAY:
        above = next((parent for parent in path.parents if parent.exists() and not parent.is_dir()), None)
        kind = "folder" if path.is_dir() else "file"
        what = f"{above} is a file, not a folder" if above else f"a {kind} has that name"
        return f"cannot be written: {what}. Move it away, or give another path."
    foreign = error.filename is not None and Path(error.filename).parent != path.parent
    elsewhere = f", {error.filename}" if foreign else ""
    return (
        f"cannot be written ({error.strerror}{elsewhere}). Give a path that you can write to, or change its "
        "permissions."
    )


def _begun(path: Path) -> tuple[Path, int]:
    """Create a temporary file in the folder of `path`, with an open descriptor that holds a lock on it."""
    while True:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        with suppress(OSError):
            try_lock(descriptor)
        # Another writer may have removed it before the lock, as the file of a dead writer.
        if os.fstat(descriptor).st_nlink:
            return Path(name), descriptor
        os.close(descriptor)


def _flush_to_disk(path: Path) -> None:
    if not _FLUSHES.get():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    # The umask can only be read by setting it.
    current = os.umask(0)
    os.umask(current)
    return current
