"""Whether a finished run is the one that a plan means, by what its `run.json` says of itself."""

from collections.abc import Iterator, Mapping
from typing import Any

from fedrec.config.methods import setting_text
from fedrec.config.modules import modules_of
from fedrec.files.atomic import canonical_json
from fedrec.plan.fingerprint import run_fingerprint

_MOST_CHANGES_TOLD = 5


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


class Agreement:
    """Compares settings and code of finished runs with those that are here."""

    def __init__(self) -> None:
        self._is_of_todays_code = TodaysCode()

    def holds(self, there: Mapping[str, Any], method: str, settings: Mapping[str, Any]) -> bool:
        """Whether a summary is of a run of `method` with `settings`, trained by the code that is here."""
        return next(self.differences(there, method, settings), None) is None

    def differences(
        self, there: Mapping[str, Any], method: str, settings: Mapping[str, Any]
    ) -> Iterator[str]:
        """What tells the run of a summary from one of `method` with `settings` and this code, in words."""
        other = there.get("settings")
        if canonical_json(other) != canonical_json(settings):
            yield told_changes(other, settings) if isinstance(other, Mapping) else "its settings"
        if not self._is_of_todays_code(there, method):
            yield "its code"


def told_changes(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """The first few values that differ between two tables of them, in words."""
    changed = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    told = [told_difference(name, there.get(name), here.get(name)) for name in changed[:_MOST_CHANGES_TOLD]]
    more = [f"{len(changed) - len(told)} more"] if len(changed) > len(told) else []
    return ", ".join([*told, *more])


def told_difference(name: str, there: object, here: object) -> str:
    """A value that differs, in words."""
    return f"{name} ({setting_text(there)} there, {setting_text(here)} here)"
