"""Whether a finished run is the one that a plan means, by what its `run.json` says of itself."""

from collections.abc import Mapping
from typing import Any

from fedrec.config.modules import modules_of
from fedrec.files.atomic import canonical_json
from fedrec.plan.fingerprint import run_fingerprint


class Agreement:
    """Compares settings and code of finished runs with those that are here; code is hashed once for many."""

    def __init__(self) -> None:
        self._codes: dict[tuple[str, ...], str | None] = {}

    def holds(self, there: Mapping[str, Any], method: str, settings: Mapping[str, Any]) -> bool:
        """Whether a summary is of a run of `method` with `settings`, trained by the code that is here."""
        return canonical_json(there.get("settings")) == canonical_json(settings) and (
            there.get("code") == self._code(method, str(there.get("engine")))
        )

    def _code(self, method: str, engine: str) -> str | None:
        """The fingerprint that a run of an engine has here; None where there is no such engine."""
        key = (*modules_of(method), engine)
        if key not in self._codes:
            try:
                self._codes[key] = run_fingerprint(method, engine)
            except FileNotFoundError:
                self._codes[key] = None
        return self._codes[key]
