"""Lock a folder, so that one process at a time writes to it."""

import logging
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fedrec.errors import StorageError
from fedrec.files.atomic import as_storage_error, make_folder, try_lock

LOCK = ".fedrec.lock"
"""The locked file in the folder. It names the process, and exists only while one writes."""
_SECONDS_BETWEEN_BEATS = 30.0
_SECONDS_UNTIL_SILENT = 180.0
"""Seconds after which a silent process counts as dead; network file systems may update times late."""
_MOST_BYTES = 1000
"""Most bytes to read from a lock file."""

logger = logging.getLogger(__name__)


class FolderLock:
    """A held lock; its file tells other processes the holder and its progress."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._over = threading.Event()
        self._beating = threading.Thread(target=self._beat, daemon=True)
        self._write("")
        self._beating.start()

    def note(self, text: str) -> None:
        """Write the progress into the file, as one line."""
        # A failed note does not stop the work: the next note repeats it.
        with suppress(OSError):
            self._write(f"{text}\n")

    def end(self) -> None:
        """Stop updating the file."""
        self._over.set()
        self._beating.join()

    def _write(self, more: str) -> None:
        data = f"process {os.getpid()} on {socket.gethostname()}\n{more}".encode()
        os.pwrite(self._descriptor, data, 0)
        os.ftruncate(self._descriptor, len(data))

    def _beat(self) -> None:
        """Update the file's time every 30 seconds: a sign of life for other machines."""
        while not self._over.wait(_SECONDS_BETWEEN_BEATS):
            with suppress(OSError):
                os.utime(self._descriptor)


@dataclass(frozen=True)
class LockHolder:
    """The process that holds the lock of a folder, or held it when it was killed."""

    process: int
    host: str
    silent: float
    """Seconds since its last sign of life, by the clock of this machine."""
    note: str
    """Its progress note."""

    @property
    def is_alive(self) -> bool:
        """Whether it gave a recent sign of life and, on this machine, still exists."""
        if self.silent > _SECONDS_UNTIL_SILENT:
            return False
        return self.host != socket.gethostname() or _is_process(self.process)


def holder_of(folder: Path) -> LockHolder | None:
    """Owner of a folder's lock, or None. Takes no lock and does not wait."""
    try:
        with (folder / LOCK).open(encoding="utf-8", errors="replace") as stream:
            silent = time.time() - os.fstat(stream.fileno()).st_mtime
            first, _, rest = stream.read(_MOST_BYTES).partition("\n")
    except OSError:
        return None
    named = re.fullmatch(r"process (\d{1,10}) on (\S+)", first)
    return LockHolder(int(named[1]), named[2], max(0.0, silent), rest.strip()) if named else None


@contextmanager
def locked(folder: Path) -> Iterator[FolderLock]:
    """Hold the lock of a folder, and create the folder if needed; `StorageError` if another process holds it.

    The system releases the lock when the process ends in any way. A folder that was created for the lock is
    removed if it stays empty.
    """
    path = folder / LOCK
    is_new = not folder.exists()
    make_folder(folder)
    with as_storage_error(folder):
        descriptor = _opened(path)
    try:
        with as_storage_error(folder):
            lock = FolderLock(descriptor)
        try:
            yield lock
        finally:
            lock.end()
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)
        if is_new:
            with suppress(OSError):  # It is not empty.
                folder.rmdir()


def _opened(path: Path) -> int:
    """The open lock file, locked."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        if not _is_ours(descriptor, path):
            content = os.read(descriptor, _MOST_BYTES).decode("utf-8", "replace").strip()
            os.close(descriptor)
            holder = content.partition("\n")[0] or "another process"
            raise StorageError(
                f"{path.parent}: {holder} is writing to this folder. Wait until it has ended, or give "
                "another folder."
            )
        # The last holder may have removed the file after this process opened it.
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)


def _is_ours(descriptor: int, path: Path) -> bool:
    try:
        return try_lock(descriptor)
    except OSError as error:
        logger.warning(
            "%s: cannot be locked (%s). Do not start a second training in this folder.", path, error.strerror
        )
        return True


def _is_process(number: int) -> bool:
    """Whether there is a process of that number on this machine."""
    try:
        os.kill(number, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        # Another user's.
        return True
    return True
