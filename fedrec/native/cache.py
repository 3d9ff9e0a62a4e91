"""Where compiled programs are kept, so that each is compiled once on a machine."""

import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from fedrec.errors import StorageError
from fedrec.files.atomic import atomic

CACHE = "FEDREC_KERNELS"
"""The environment variable that names another folder for compiled kernels."""


@cache
def folder() -> Path:
    """The folder of compiled kernels: the user's cache, or a temporary one if that cannot be written."""
    named = os.environ.get(CACHE)
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    chosen = Path(named) if named else home / "fedrec" / "kernels"
    try:
        chosen.mkdir(parents=True, exist_ok=True)
        writable = os.access(chosen, os.W_OK)
    except OSError:
        writable = False
    return chosen if writable else Path(tempfile.mkdtemp(prefix="fedrec-kernels-"))


def kept(name: str, source: str, made: Callable[[Path], None]) -> Path:
    """The file `name`, which `made` writes if it is not there; its source lies beside it, to be read."""
    path = folder() / name
    if not path.is_file():
        try:
            with atomic(path.with_suffix(path.suffix + ".txt")) as text:
                text.write_text(source, encoding="utf-8")
            with atomic(path) as temporary:
                made(temporary)
        except StorageError:
            # A full disk is no reason not to train.
            path = Path(tempfile.mkdtemp(prefix="fedrec-kernels-")) / name
            made(path)
    return path
