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

_ASKED = "asked"


class EngineCheckCache:
    """Verdicts by what they depend on.

    A file that is damaged, edited, of another question or may be written by others is ignored. A user without
    a home keeps none.
    """

    def __init__(self) -> None:
        self._folder = _folder()

    def found(self, asked: Mapping[str, Any]) -> dict[str, Any] | None:
        """The verdict on what is `asked`; None where none is kept."""
        if self._folder is None:
            return None
        try:
            content = verified(own_bytes(self._folder / _name_of(asked)))
        except (OSError, ValueError):
            return None
        return content if content.pop(_ASKED, None) == asked else None

    def keep(self, asked: Mapping[str, Any], verdict: Mapping[str, Any]) -> None:
        """Write a verdict down, where that can be done."""
        if self._folder is None:
            return
        path = self._folder / _name_of(asked)
        with suppress(StorageError):
            write_checked_json(path, {**verdict, _ASKED: asked})
            close_to_others(path)


def _folder() -> Path | None:
    """The folder of verdicts; None for a user without a home."""
    named, home = os.environ.get(CACHE), os.environ.get("XDG_CACHE_HOME")
    try:
        if named:
            return Path(named).expanduser() / "checks"
        return (Path(home) if home else Path.home() / ".cache") / "fedrec" / "checks"
    except RuntimeError:
        return None


def _name_of(asked: Mapping[str, Any]) -> str:
    return f"{hashlib.sha256(canonical_json(asked).encode()).hexdigest()}.json"
