"""Whether a finished run is the one that a plan means, by what its `run.json` says of itself."""

from collections.abc import Mapping
from typing import Any

from fedrec.config.methods import resolve
from fedrec.config.modules import modules_of
from fedrec.errors import ConfigurationError
from fedrec.files.atomic import canonical_json
from fedrec.plan.fingerprint import run_fingerprint


class TodaysCode:
    """Whether finished runs are of the code that is here; fingerprints are worked out once for many."""

    def __init__(self) -> None:
        self._codes: dict[tuple[str, ...], str | None] = {}

    def __call__(self, summary: Mapping[str, Any], method: str) -> bool:
        """Whether what a run.json says of its code and engine is so here, for a run of `method`."""
        return summary.get("code") == self._code(method, str(summary.get("engine")))

    def _code(self, method: str, engine: str) -> str | None:
        """The fingerprint that a run of an engine has here; None where there is no such engine or method."""
        key = (*modules_of(method), engine)
        if key not in self._codes:
            try:
                self._codes[key] = run_fingerprint(method, engine)
            except FileNotFoundError:
                self._codes[key] = None
        return self._codes[key]


def has_todays_settings(summary: Mapping[str, Any], methods: Mapping[str, Any]) -> bool:
    """Whether a run has the settings that its name stands for by `methods`."""
    try:
        values, _, _ = resolve(methods, summary["method"], summary["paper"], summary["dataset"])
    except ConfigurationError:
        # A method or setting that is no more.
        return False
    return canonical_json(values) == canonical_json(summary["settings"])


class Agreement:
    """Compares settings and code of finished runs with those that are here."""

    def __init__(self) -> None:
        self._is_of_todays_code = TodaysCode()

    def holds(self, there: Mapping[str, Any], method: str, settings: Mapping[str, Any]) -> bool:
        """Whether a summary is of a run of `method` with `settings`, trained by the code that is here."""
        same = canonical_json(there.get("settings")) == canonical_json(settings)
        return same and self._is_of_todays_code(there, method)
