"""A folder that one process at a time writes to."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedrec.errors import StorageError
from fedrec.files.atomic import as_storage_error, make_folder, try_lock

LOCK = ".fedrec.lock"
"""The file in the folder that is locked; it names its process, and is gone when nobody writes."""

logger = logging.getLogger(__name__)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, which is made if need be; `StorageError` if another process holds it.

    The system releases the lock of a process that ends in whatever way.
    """
    path = folder / LOCK
    make_folder(folder)
    with as_storage_error(folder):
        descriptor = _opened(path)
    try:
        with as_storage_error(folder):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _opened(path: Path) -> int:
    """The open lock file, locked."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        if not _is_ours(descriptor, path):
            holder = os.read(descriptor, 200).decode("utf-8", "replace").strip() or "another process"
            os.close(descriptor)
            raise StorageError(
                f"{path.parent}: {holder} writes to this folder now. Wait until it has ended, or name "
                "another folder."
            )
        # Whoever held it may have removed the file after it was opened here.
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)


def _is_ours(descriptor: int, path: Path) -> bool:
    try:
        return try_lock(descriptor)
    except OSError as error:
        logger.warning("%s: cannot be locked (%s); let no other training write there.", path, error.strerror)
        return True
