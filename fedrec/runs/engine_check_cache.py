"""A cache of engine checks on disk, so that each comparison is made once on a machine."""

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedrec.errors import StorageError
from fedrec.files.atomic import canonical_json
from fedrec.files.checked_json import verified, write_checked_json
from fedrec.native.cache import CACHE, close_to_others, own_bytes

_KEY = "asked"


class EngineCheckCache:
    """Cached verdicts, by everything that they depend on.

    A file is ignored if it is damaged, edited, has another key, or is writable by other users. Without a home
    folder nothing is cached.
    """

    def __init__(self) -> None:
        self._folder = _folder()

    def found(self, question: Mapping[str, Any]) -> dict[str, Any] | None:
        """The cached verdict for a key; None if there is none."""
        if self._folder is None:
            return None
        try:
            content = verified(own_bytes(self._folder / _name_of(question)))
        except (OSError, ValueError):
            return None
        return content if content.pop(_KEY, None) == question else None

    def keep(self, question: Mapping[str, Any], verdict: Mapping[str, Any]) -> None:
        """Cache a verdict; do nothing if the folder is not writable."""
        if self._folder is None:
            return
        path = self._folder / _name_of(question)
        with suppress(StorageError):
            write_checked_json(path, {**verdict, _KEY: question})
            close_to_others(path)


def _folder() -> Path | None:
    """The folder of verdicts; None for a user without a home folder."""
    named, home = os.environ.get(CACHE), os.environ.get("XDG_CACHE_HOME")
    try:
        if named:
            return Path(named).expanduser() / "checks"
        return (Path(home) if home else Path.home() / ".cache") / "fedrec" / "checks"
    except RuntimeError:
        return None


def _name_of(question: Mapping[str, Any]) -> str:
    return f"{hashlib.sha256(canonical_json(question).encode()).hexdigest()}.json"
