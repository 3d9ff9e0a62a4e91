"""Whether a run is done: the one comparison of a run's folder with the run that is wanted there.

A run is current if its folder holds every file and its run.json names the wanted method, paper, protocol,
seed, settings, split and records, and current code. Engines and devices are not compared: any of them trains
the same run. A split that exists is compared, unless its protocol has been edited since: then Snakemake makes
it again.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fedrec.config.methods import setting_text
from fedrec.errors import StorageError, first_lines
from fedrec.files.atomic import canonical_json
from fedrec.files.checked_json import read_checked_json
from fedrec.plan.code_matching import CodeMatcher
from fedrec.plan.runs import DIVERGED, FILES, MODEL, NOT_KEPT, SMALL, STATE, SUMMARY, RunId, lacks_model

_HASHES = ("split", "interactions")
_OF_SPLIT = ("dataset", "protocol", *_HASHES)
"""What the file of a split states, and a run on it too."""
_IGNORED = ("sources", "code")
"""Sources of settings decide no number; `CodeMatcher` compares the code."""
_MOST_CHANGES = 5
"""How many changed settings a message lists."""


@dataclass(frozen=True)
class RunSpec:
    """A run that is wanted: its folder, and everything that a finished run there must agree with."""

    folder: Path
    method: str
    paper: str
    seed: int
    settings: Mapping[str, Any]
    records: tuple[str, ...]
    split: Path
    """The file of its split; it is not compared while this file does not exist."""
    may_diverge: bool
    protocol: Mapping[str, Any] | None = None
    """Every setting of its protocol; None for the protocol that its split states."""
    model: str = SMALL
    """Which models are wanted, one of `MODELS`: without such a one, a run is incomplete."""


class RunPlan(Protocol):
    """Anything that specifies runs, as a project does."""

    def spec(self, run: RunId) -> RunSpec:
        """The specification of a run."""
        ...


@dataclass(frozen=True)
class RunMatch:
    """A run's folder, compared with the run that is wanted there."""

    summary: Mapping[str, Any]
    """The content of run.json; empty if it does not exist or cannot be read."""
    missing: tuple[str, ...] = ()
    """Files that do not exist."""
    differences: tuple[str, ...] = ()
    """Differences from the wanted run, in words."""
    damage: str = ""
    """Why run.json cannot be read."""

    @property
    def is_current(self) -> bool:
        """Whether the run need not be trained."""
        return not (self.missing or self.differences or self.damage)

    @property
    def is_outdated(self) -> bool:
        """Whether the folder holds a run.json, but not the wanted run, whole."""
        return not self.is_current and SUMMARY not in self.missing

    @property
    def reason(self) -> str:
        """Why the run is not current, as a sentence; empty if it is."""
        if self.missing:
            return "it is not finished."
        if self.damage:
            return f"its {SUMMARY} cannot be read: {self.damage}."
        return f"it differs from the plan in {'; '.join(self.differences)}." if self.differences else ""


class RunMatcher:
    """Compares finished runs with wanted ones; reads each fingerprint and what each split states once."""

    def __init__(self) -> None:
        self.code = CodeMatcher()
        self._splits: dict[Path, Mapping[str, Any]] = {}

    def match(self, spec: RunSpec) -> RunMatch:
        """Compare the folder of a run with its specification."""
        try:
            summary = read_checked_json(spec.folder / SUMMARY)
        except FileNotFoundError:
            return RunMatch({}, (SUMMARY,))
        except (StorageError, ValueError) as error:
            return RunMatch({}, damage=str(error))
        missing = [file for file in FILES if not (spec.folder / file).is_file()]
        if summary.get(MODEL) == NOT_KEPT:
            # An empty file may stand for it: Snakemake wants one.
            missing = [file for file in missing if file != STATE]
            missing += [STATE] if lacks_model(summary, spec.model) else []
        return RunMatch(summary, tuple(missing), tuple(self.differences(spec, summary)))

    def is_current(self, spec: RunSpec) -> bool:
        """Whether a run is done."""
        return self.match(spec).is_current

    def differences(self, spec: RunSpec, summary: Mapping[str, Any]) -> Iterator[str]:
        """Differences of a run.json from the wanted run, in words."""
        wanted: dict[str, Any] = {
            "method": spec.method, "paper": spec.paper, "seed": spec.seed, "settings": spec.settings,
        }  # fmt: skip
        if spec.protocol is not None:
            wanted["protocol"] = spec.protocol
        yield from identity_differences(summary, {**wanted, **self._split_of(spec)}, self.code)
        if DIVERGED in summary and not spec.may_diverge:
            yield "that it diverged"
        unrecorded = sorted(set(spec.records) - set(summary.get("record", ())))
        if unrecorded:
            yield f"its records ({', '.join(unrecorded)} missing)"

    def has_split(self, spec: RunSpec) -> bool:
        """Whether the split of a run is here and follows the wanted protocol."""
        return bool(self._split_of(spec))

    def _split_of(self, spec: RunSpec) -> Mapping[str, Any]:
        """What the split of a run states; nothing if it is not here or follows another protocol."""
        stated = self._stated(spec.split)
        is_other = spec.protocol is not None and stated.get("protocol") != spec.protocol
        return {} if is_other else stated

    def _stated(self, split: Path) -> Mapping[str, Any]:
        """What the file of a split states of itself; nothing if it does not exist or cannot be read."""
        if split not in self._splits:
            # Imported here: most plans are made before any run exists, and importing pyarrow takes a while.
            from fedrec.files.parquet import read_metadata

            try:
                about: Mapping[str, Any] = read_metadata(split)
            except StorageError:
                about = {}
            self._splits[split] = {key: about[key] for key in _OF_SPLIT if key in about}
        return self._splits[split]


def unfinished(plan: RunPlan, runs: Iterable[RunId]) -> list[RunId]:
    """The runs that are to be trained: missing, incomplete or outdated ones."""
    matcher = RunMatcher()
    return [run for run in runs if not matcher.is_current(plan.spec(run))]


def identity_differences(
    summary: Mapping[str, Any], wanted: Mapping[str, Any], code: CodeMatcher
) -> Iterator[str]:
    """Differences of a run.json from an identity, in words; the code is always compared."""
    same_method = summary.get("method") == wanted["method"]
    for key, value in wanted.items():
        stored = summary.get(key)
        if key in _IGNORED or canonical_json(stored) == canonical_json(value):
            continue
        if key in _HASHES:
            yield f"its {key}"
        elif not isinstance(value, Mapping):
            yield _change_text(key, stored, value)
        elif not isinstance(stored, Mapping):
            yield f"its {key}"
        elif key == "protocol":
            yield f"its protocol: {_changes_text(stored, value)}"
        elif same_method:  # another method has other settings
            yield _changes_text(stored, value)
    if not code.is_current_run(summary, wanted["method"]):
        yield "its code"


def _changes_text(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    changed = [
        name
        for name in {**there, **here}
        if canonical_json(there.get(name)) != canonical_json(here.get(name))
    ]
    texts = [_change_text(name, there.get(name), here.get(name)) for name in changed]
    return ", ".join(first_lines(texts, _MOST_CHANGES, indent=""))


def _change_text(name: str, there: object, here: object) -> str:
    return f"{name} ({setting_text(there)} there, {setting_text(here)} here)"
