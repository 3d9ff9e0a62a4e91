"""What is expensive to make for tests is made once, however many workers run them."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def once_for_all_workers(
    tmp_path_factory: pytest.TempPathFactory, name: str, build: Callable[[Path], object]
) -> Path:
    """The folder `name` that `build(folder)` fills: by the first worker that asks, while others wait.

    It is shared: a test reads it, and copies what it changes. Where `build` fails nothing is left, the error
    is that worker's own, and the next one tries again. The lock is the system's, so that a worker that is
    killed holds nobody up.
    """
    base = tmp_path_factory.getbasetemp()
    # A worker of pytest-xdist has a folder of its own below that of the session.
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, done = shared / "once" / name, shared / "once" / f"{name}.done"
    folder.parent.mkdir(exist_ok=True)
    with (shared / "once" / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            try:
                build(folder)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            done.touch()
    return folder
