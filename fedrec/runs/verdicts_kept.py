"""Verdicts on engines, kept on disk so that each comparison is made once on a machine."""

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedrec.errors import StorageError
from fedrec.files.atomic import canonical_json
from fedrec.files.sealed import read_sealed, write_sealed
from fedrec.native.cache import CACHE

_ASKED = "asked"


class KeptVerdicts:
    """Verdicts by what they depend on; a file that is damaged, edited or of another question is ignored."""

    def __init__(self) -> None:
        named = os.environ.get(CACHE)
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        self._folder = Path(named) / "checks" if named else home / "fedrec" / "checks"

    def found(self, asked: Mapping[str, Any]) -> dict[str, Any] | None:
        """The verdict on what is `asked`; None where none is kept."""
        try:
            content = read_sealed(self._path(asked))
        except (OSError, ValueError, StorageError):
            return None
        return content if content.pop(_ASKED, None) == asked else None

    def keep(self, asked: Mapping[str, Any], verdict: Mapping[str, Any]) -> None:
        """Write a verdict down, where that can be done."""
        with suppress(StorageError):
            write_sealed(self._path(asked), {**verdict, _ASKED: asked})

    def _path(self, asked: Mapping[str, Any]) -> Path:
        return self._folder / f"{hashlib.sha256(canonical_json(asked).encode()).hexdigest()}.json"
