"""The cache of compiled kernels, so that each kernel is compiled once on a machine.

A kernel is code that fedrec runs. So fedrec loads it from the cache only if its checksum is right and nobody
else could have written it, and it loads the very bytes that it has compared. In all other cases it compiles
the kernel again.
"""

import hashlib
import logging
import os
import pwd
import shutil
import stat
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

from fedrec.errors import NoCompilerError, StorageError
from fedrec.files.atomic import as_storage_error, atomic, remove_unlocked, try_lock, unflushed

CACHE = "FEDREC_KERNELS"
"""The environment variable that names another folder for compiled kernels."""
_PREFIX = "fedrec-kernels-"
"""The beginning of the name of a temporary file or folder."""
_SECONDS_TO_LOCK = 60.0
"""A process loads a temporary file, or locks a temporary folder, right after it has made it. So older ones
that are not locked belong to dead processes."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_ADVICE = f"Name a folder of your own by {CACHE}"
_UNKEPT: set[Path] = set()
"""Folders that could not store a kernel; fedrec warns once about each."""

T = TypeVar("T")
logger = logging.getLogger(__name__)


@cache
def folder() -> Path | None:
    """The folder of compiled kernels; None, after a warning with the reason, if there is none to use."""
    try:
        chosen = _made_folder()
        reason = _distrust(chosen)
    except (OSError, StorageError, RuntimeError) as error:
        reason = str(error)
    if reason is None:
        return chosen
    _warn(reason)
    return None


def loaded_kernel(name: str, source: str, made: Callable[[Path], None], load: Callable[[Path], T]) -> T:
    """Apply `load` to the file `name` of the cache; on a miss, `made` writes it first.

    Raise `NoCompilerError` if it cannot be compiled or loaded.
    """
    cache_folder = folder()
    path = None if cache_folder is None else cache_folder / name
    if path is not None and (image := _intact(path)) is not None:
        try:
            return _loaded(path, image, load)
        except OSError as error:
            logger.warning("%s cannot be loaded and is compiled again: %s", path, error)
    try:
        with _private_folder() as private:
            fresh = private / name
            made(fresh)
            image = _whole(fresh)
            kernel = _first_loaded(fresh, load)
    except OSError as error:
        raise NoCompilerError(f"a compiled kernel cannot be written or loaded: {error}") from error
    # Stored only after it was loaded: a kernel that crashes while loading must not crash every later start.
    if path is not None:
        _keep(path, image, source)
    return kernel


def _made_folder() -> Path:
    """The folder that the user named, or the one in the user's cache; created if missing."""
    named = os.environ.get(CACHE)
    if named:
        # The shell does not expand a quoted `~`.
        chosen = Path(named).expanduser().resolve()
        with as_storage_error(chosen):
            chosen.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)
        return chosen
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    chosen = (home / "fedrec" / "kernels").resolve()
    for level in (chosen.parent, chosen):
        with as_storage_error(level):
            level.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)
            status = level.stat()
            # Folders of earlier versions have the permissions of the umask.
            if status.st_uid == os.geteuid() and status.st_mode & _OTHERS_WRITE:
                level.chmod(stat.S_IRWXU)
    return chosen


def _distrust(chosen: Path) -> str | None:
    """The reason why others could place programs in a folder, and advice; None if they cannot."""
    status = chosen.stat()
    if not _is_own(status):
        return f"the folder {chosen} belongs to {_name_of(status.st_uid)}. {_ADVICE}"
    if status.st_mode & _OTHERS_WRITE:
        return (
            f"others may write to the folder {chosen} (mode {stat.S_IMODE(status.st_mode):o}), and fedrec "
            f"would run their programs. Run `chmod 700 {chosen}`, or name another folder by {CACHE}"
        )
    for above in chosen.parents:
        mode = above.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return f"everybody may write to {above}, and so could replace the folder {chosen}. {_ADVICE}"
    return None


def _is_own(status: os.stat_result) -> bool:
    """Whether a file belongs to this user, or to the machine's administrator."""
    return status.st_uid in (os.geteuid(), 0)


def _name_of(user: int) -> str:
    with suppress(KeyError):
        return f"the user {pwd.getpwuid(user).pw_name}"
    return f"the user with the number {user}"


@cache
def _warn(reason: str) -> None:
    """Warn once with the reason why compiled kernels are not stored."""
    logger.warning(
        "compiled kernels are not stored, so every process compiles its own: %s.", reason.removesuffix(".")
    )


def _checksum_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _checksum_line(name: str, image: bytes) -> bytes:
    """The content of a kernel's checksum file, in the form that `sha256sum --check` reads."""
    return f"{hashlib.sha256(image).hexdigest()}  {name}\n".encode()


def _intact(path: Path) -> bytes | None:
    """The bytes of a kernel in the cache; None if it is missing, damaged, or writable by others."""
    try:
        line, image = own_bytes(_checksum_of(path)), own_bytes(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        logger.warning("%s is compiled again: %s", path, error)
        return None
    if line == _checksum_line(path.name, image):
        return image
    logger.warning("%s does not match its checksum and is compiled again", path)
    return None


def own_bytes(path: Path) -> bytes:
    """The content of a plain file that nobody else can write; raise `OSError` for any other."""
    if not _is_own_file(path.lstat()):
        raise PermissionError(f"{path} is no plain file that only its owner may write")
    # The file may have been replaced: follow no link, and never wait for a pipe.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as stream:
        if not _is_own_file(os.fstat(descriptor)):
            raise PermissionError(f"{path} is no plain file that only its owner may write")
        return stream.read()


def close_to_others(path: Path) -> None:
    """Remove write permission of others from a file, whatever the umask is."""
    with as_storage_error(path):
        path.chmod(stat.S_IMODE(path.stat().st_mode) & ~_OTHERS_WRITE)


def _is_own_file(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and _is_own(status) and not status.st_mode & _OTHERS_WRITE


def _loaded(path: Path, image: bytes, load: Callable[[Path], T]) -> T:
    """Apply `load` to the verified bytes `image` of `path`.

    It loads a copy, so that the process runs the verified bytes even if the file changes.
    """
    with ExitStack() as stack:
        try:
            copy = stack.enter_context(tempfile.NamedTemporaryFile(prefix=_PREFIX, dir=_base()))
            copy.write(image)
            copy.flush()
        except OSError:
            # On a full disk, load the original instead of compiling again.
            return load(path)
        return load(Path(copy.name))


def _first_loaded(fresh: Path, load: Callable[[Path], T]) -> T:
    """Apply `load` to a temporary file; errors omit its name, so that equal ones are printed once."""
    try:
        return load(fresh)
    except OSError as error:
        raise OSError(str(error).replace(f"{fresh}: ", "")) from error


def _whole(path: Path) -> bytes:
    """The bytes of a compiled kernel; raise `NoCompilerError` if the compiler wrote none, or too few."""
    image = path.read_bytes() if path.is_file() else b""
    if not image:
        raise NoCompilerError("the compiler reports success, but wrote no program")
    if image.startswith(b"\x7fELF") and _is_cut_short(image):
        raise NoCompilerError("the compiler reports success, but wrote an incomplete program")
    return image


def _is_cut_short(image: bytes) -> bool:
    """Whether a program of 64 bits ends before its table of sections, which linkers write last.

    Loading such a program would crash the process.
    """
    if len(image) < 64:
        return True
    (table,) = struct.unpack_from("<Q", image, 40)
    size, count = struct.unpack_from("<HH", image, 58)
    return len(image) < int(table) + int(size) * int(count)


def _keep(path: Path, image: bytes, source: str) -> None:
    """Write a kernel into the cache: its source for readers, then its bytes, and last its checksum."""
    remove_unlocked(path.parent.glob(".*.part"))
    contents = {
        path.with_name(f"{path.name}.txt"): source.encode(),
        path: image,
        _checksum_of(path): _checksum_line(path.name, image),
    }
    try:
        # A power cut may damage unflushed files, which the checksum reveals.
        with unflushed():
            for file, content in contents.items():
                with atomic(file) as temporary:
                    temporary.write_bytes(content)
                close_to_others(file)
    except StorageError as error:
        # A full disk is the usual cause.
        if path.parent not in _UNKEPT:
            _UNKEPT.add(path.parent)
            _warn(str(error))


@contextmanager
def _private_folder() -> Iterator[Path]:
    """A temporary folder that only this user can enter; it is removed at the end."""
    base = _base()
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=base, ignore_cleanup_errors=True) as made:
        descriptor = os.open(made, os.O_RDONLY)
        try:
            # Some network file systems have no locks: there, files of killed processes stay.
            with suppress(OSError):
                try_lock(descriptor)
            yield Path(made)
        finally:
            os.close(descriptor)


@cache
def _base() -> Path:
    """The parent of temporary folders, from which programs may run; clean up after killed processes."""
    base = Path(tempfile.gettempdir())
    # Hardened machines forbid programs there (`noexec`).
    if os.statvfs(base).f_flag & getattr(os, "ST_NOEXEC", 0):
        base = folder() or base
    for remains in base.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            _remove_if_dead(remains)
    return base


def _remove_if_dead(remains: Path) -> None:
    """Remove a temporary file or folder of this user whose process has ended."""
    descriptor = os.open(remains, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        is_old = time.time() - status.st_mtime > _SECONDS_TO_LOCK
        if status.st_uid == os.geteuid() and is_old and try_lock(descriptor):
            if stat.S_ISDIR(status.st_mode):
                shutil.rmtree(remains, ignore_errors=True)
            else:
                remains.unlink()
    finally:
        os.close(descriptor)
