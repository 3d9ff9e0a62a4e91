"""Whether a finished run is the one that a plan means, by what its `run.json` says of itself."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrec.config.methods import resolve, setting_text
from fedrec.config.modules import modules_of
from fedrec.errors import ConfigurationError, StorageError
from fedrec.files.atomic import canonical_json
from fedrec.plan.fingerprint import PREFERRED_ENGINE, run_fingerprint
from fedrec.plan.runs import DIVERGED

_MOST_CHANGES_TOLD = 5


class TodaysCode:
    """Whether finished runs are of the code that is here; fingerprints are worked out once for many.

    `known` holds those that a plan knows already, by method, for the preferred engine.
    """

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        self._codes: dict[tuple[str, ...], str | None] = {
            (*modules_of(method), PREFERRED_ENGINE): code for method, code in (known or {}).items()
        }

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

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        self._is_of_todays_code = TodaysCode(known)

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


@dataclass(frozen=True)
class WantedRun:
    """What a finished run must be to be taken for the one that is wanted."""

    method: str
    settings: Mapping[str, Any]
    records: tuple[str, ...]
    may_diverge: bool
    split: Path
    """The file of its split."""


class RunComparison:
    """Compares finished runs with those that are wanted; what many need is worked out once."""

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        self._agreement = Agreement(known)
        self._splits: dict[Path, str | None] = {}

    def differences(self, wanted: WantedRun, there: Mapping[str, Any]) -> Iterator[str]:
        """What tells a run.json from that of the run that is wanted, in words.

        Engines and devices are not compared: whichever trained it, it is the same experiment.
        """
        yield from self._agreement.differences(there, wanted.method, wanted.settings)
        if DIVERGED in there and not wanted.may_diverge:
            yield "that it diverged"
        unrecorded = sorted(set(wanted.records) - set(there.get("record", ())))
        if unrecorded:
            yield f"what it recorded (not {', '.join(unrecorded)})"
        if self.split_hash(wanted.split) not in (None, there.get("split")):
            yield "its split"

    def split_hash(self, split: Path) -> str | None:
        """The hash of a split by its file; None where there is none that says so."""
        if split not in self._splits:
            # Imported here: most plans are made where no run lies yet, and pyarrow takes a while to import.
            from fedrec.files.parquet import about_table

            try:
                about: Mapping[str, Any] = about_table(split)
            except StorageError:
                about = {}
            self._splits[split] = about.get("split")
        return self._splits[split]


def told_changes(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """The first few values that differ between two tables of them, in words."""
    changed = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    told = [told_difference(name, there.get(name), here.get(name)) for name in changed[:_MOST_CHANGES_TOLD]]
    more = [f"{len(changed) - len(told)} more"] if len(changed) > len(told) else []
    return ", ".join([*told, *more])


def told_difference(name: str, there: object, here: object) -> str:
    """A value that differs, in words."""
    return f"{name} ({setting_text(there)} there, {setting_text(here)} here)"
