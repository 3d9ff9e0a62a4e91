"""Compare the folder of a run with the plan. All commands use `RunMatcher` to decide if a run is finished.

A run is current if three things hold. Its folder has every file. Its run.json has the planned method, paper,
protocol, seed, settings, split and records. Its code is current (`fedrec.plan.code_matching`).

fedrec does not compare engines and devices, because a run may use any of them. It compares the split only if
the split's file exists and follows the planned protocol. After an edit of the protocol, the file of the split
is outdated until Snakemake makes it again. Until then the run's own protocol, in its run.json, decides.
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
"""Keys in the metadata of a split's file that a run.json repeats."""
_IGNORED = ("sources", "code")
"""Keys that are not compared as values: sources decide no number, and `CodeMatcher` compares the code."""
_MOST_CHANGES = 5
"""Changed settings that a message lists."""


@dataclass(frozen=True)
class RunSpec:
    """Specification of a planned run: its folder, and everything that a finished run there must match."""

    folder: Path
    method: str
    paper: str
    seed: int
    settings: Mapping[str, Any]
    records: tuple[str, ...]
    split: Path
    """The file of its split. A run is not compared with a split that does not exist."""
    may_diverge: bool
    protocol: Mapping[str, Any] | None = None
    """Every setting of its protocol; None to accept the protocol in its split's file."""
    model: str = SMALL
    """The models that must exist, one of `MODELS`; a run without a required model is incomplete."""


class RunPlan(Protocol):
    """An object that specifies runs, such as a project."""

    def spec(self, run: RunId) -> RunSpec:
        """The specification of a run."""
        ...


@dataclass(frozen=True)
class RunMatch:
    """Result of comparing a run's folder with its specification."""

    summary: Mapping[str, Any]
    """The content of run.json; empty if it does not exist or cannot be read."""
    missing: tuple[str, ...] = ()
    """Names of missing files."""
    differences: tuple[str, ...] = ()
    """Differences from the specification, as text."""
    damage: str = ""
    """Reason why run.json cannot be read; empty if it can."""

    @property
    def is_current(self) -> bool:
        """Whether the run is finished as planned, so that it need not be trained."""
        return not (self.missing or self.differences or self.damage)

    @property
    def is_outdated(self) -> bool:
        """Whether the folder has a run.json, but its run is another one, incomplete or damaged."""
        return not self.is_current and SUMMARY not in self.missing

    @property
    def reason(self) -> str:
        """Reason why the run is not current, as a sentence; empty if it is."""
        if self.missing:
            return "it is not finished."
        if self.damage:
            return f"its {SUMMARY} cannot be read: {self.damage}."
        return f"it differs from the plan in {'; '.join(self.differences)}." if self.differences else ""


class RunMatcher:
    """Compare finished runs with specifications; read each fingerprint and each split's metadata once."""

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
            # Snakemake requires the file, which may then be empty: only `lacks_model` decides.
            missing = [file for file in missing if file != STATE]
            missing += [STATE] if lacks_model(summary, spec.model) else []
        return RunMatch(summary, tuple(missing), tuple(self.differences(spec, summary)))

    def is_current(self, spec: RunSpec) -> bool:
        """Whether the folder has the specified run, finished."""
        return self.match(spec).is_current

    def differences(self, spec: RunSpec, summary: Mapping[str, Any]) -> Iterator[str]:
        """Yield the differences of a run.json from the specification, as text."""
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
        """Whether the split of a run exists and follows the specified protocol."""
        return bool(self._split_of(spec))

    def _split_of(self, spec: RunSpec) -> Mapping[str, Any]:
        """Metadata of a run's split; empty if it does not exist or follows another protocol."""
        stated = self._stated(spec.split)
        is_other = spec.protocol is not None and stated.get("protocol") != spec.protocol
        return {} if is_other else stated

    def _stated(self, split: Path) -> Mapping[str, Any]:
        """Metadata of a split's file; empty if it does not exist or cannot be read."""
        if split not in self._splits:
            # Imported here: most plans are made before any run exists, and importing pyarrow is slow.
            from fedrec.files.parquet import read_metadata

            try:
                about: Mapping[str, Any] = read_metadata(split)
            except StorageError:
                about = {}
            self._splits[split] = {key: about[key] for key in _OF_SPLIT if key in about}
        return self._splits[split]


def unfinished(plan: RunPlan, runs: Iterable[RunId]) -> list[RunId]:
    """The runs to train: missing, incomplete or outdated ones."""
    matcher = RunMatcher()
    return [run for run in runs if not matcher.is_current(plan.spec(run))]


def identity_differences(
    summary: Mapping[str, Any], wanted: Mapping[str, Any], code: CodeMatcher
) -> Iterator[str]:
    """Yield as text each value in `wanted` that a run.json does not have, and the code if it is outdated."""
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


def _changes_text(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    changed = [
        name
        for name in {**stored, **wanted}
        if canonical_json(stored.get(name)) != canonical_json(wanted.get(name))
    ]
    texts = [_change_text(name, stored.get(name), wanted.get(name)) for name in changed]
    return ", ".join(first_lines(texts, _MOST_CHANGES, indent=""))


def _change_text(name: str, stored: object, wanted: object) -> str:
    return f"{name} ({setting_text(stored)} there, {setting_text(wanted)} here)"
