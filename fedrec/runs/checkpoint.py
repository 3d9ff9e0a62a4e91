"""What a run in training has so far, and the file that keeps it in case the run is killed."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from fedrec.errors import StorageError
from fedrec.files.atomic import canonical_json
from fedrec.files.tensors import load_tensors, noted_in, save_tensors

CHECKPOINT = "checkpoint.safetensors"
_FIRST_AFTER = 2.0
"""Seconds until the first checkpoint: where rounds are slow it comes after the first one."""
_RANKS = "ranks/"
_SHARE = 30
"""At most one second in so many goes into checkpoints."""
_BYTES_PER_SECOND = 2.5e8
"""What is expected of the first one."""


@dataclass
class Progress:
    """What a run has so far: its curve, its times, and the ranks at the rounds to report."""

    curve: list[dict[str, float]] = field(default_factory=list)
    timing: list[dict[str, float]] = field(default_factory=list)
    round_of: dict[str, int] = field(default_factory=dict)
    ranks: dict[str, Tensor] = field(default_factory=dict)
    """For each reported round, clients x (validation, test, validation in catalogue, test in catalogue)."""

    @property
    def rounds(self) -> int:
        """Rounds done."""
        return len(self.curve)


class Checkpoints:
    """The checkpoint of one run, with its identity and its records.

    One is due soon after the start, and then every `seconds`, unless the run would be slowed down by that.
    """

    def __init__(
        self, folder: Path, identity: Mapping[str, Any], records: Sequence[str], seconds: float
    ) -> None:
        self.path = folder / CHECKPOINT
        self.kept_round = 0
        """The round whose state the file holds; 0 where there is none of this run."""
        self._belongs = {"identity": canonical_json(identity), "record": list(records)}
        self._seconds = seconds
        self._since = time.monotonic()
        self._due_at = self._since + min(_FIRST_AFTER, seconds)
        self._took: float | None = None

    def found(self) -> tuple[dict[str, Tensor], Progress] | None:
        """The learner's tensors and the progress of a checkpoint of this very run; None where there is none.

        One that is damaged, or another run's, is not taken up, which is said.
        """
        if not self.path.is_file():
            return None
        try:
            tensors, progress = self._read()
        except StorageError as error:
            print(f"{error} Training starts from round 1.", file=sys.stderr)
            return None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            print(
                f"{self.path}: the checkpoint is incomplete ({error!r}). Training starts from round 1.",
                file=sys.stderr,
            )
            return None
        if progress is None:
            print(
                f"{self.path}: the checkpoint belongs to other settings or other code. Training starts "
                "from round 1.",
                file=sys.stderr,
            )
            return None
        self.kept_round = progress.rounds
        return tensors, progress

    @property
    def rounds_noted(self) -> int:
        """How far this very run is by what the file says of itself; 0 where there is none that says so."""
        try:
            stored = json.loads(noted_in(self.path))
            return len(stored["curve"]) if self._is_of(stored) else 0
        except (StorageError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            # What is wrong with it is told when it is read.
            return 0

    def _is_of(self, stored: Mapping[str, Any]) -> bool:
        """Whether a file that says so of itself is of this run."""
        return {key: stored.get(key) for key in self._belongs} == self._belongs

    def _read(self) -> tuple[dict[str, Tensor], Progress | None]:
        tensors, note = load_tensors(self.path, rebuild="fedrec ignores this checkpoint.")
        stored = json.loads(note) if note else {}
        if not self._is_of(stored):
            return {}, None
        ranks = {
            name.removeprefix(_RANKS): tensors.pop(name) for name in list(tensors) if name.startswith(_RANKS)
        }
        return tensors, Progress(stored["curve"], stored["timing"], stored["round_of"], ranks)

    @property
    def is_due(self) -> bool:
        """Whether it is time for the next one."""
        return time.monotonic() >= self._due_at

    def is_worth(self, tensors: Mapping[str, Tensor], shares: int = 1, files: int = 1) -> bool:
        """Whether one that is due would not slow down the run; else, unless all are wanted, it is put off.

        It holds so many shares as large as `tensors`, and is written so many times.
        """
        if not self._seconds:
            return True
        takes = shares * sum(tensor.nbytes for tensor in tensors.values()) / _BYTES_PER_SECOND
        self._due_at = self._since + _SHARE * files * (takes if self._took is None else self._took)
        return self.is_due

    def save(self, tensors: Mapping[str, Tensor], progress: Progress) -> None:
        """Keep what a learner has learnt so far, and the progress."""
        started = time.monotonic()
        note = self._belongs | {
            "curve": progress.curve,
            "timing": progress.timing,
            "round_of": progress.round_of,
        }
        ranks = {f"{_RANKS}{name}": value for name, value in progress.ranks.items()}
        save_tensors(self.path, {**tensors, **ranks}, json.dumps(note))
        self.kept_round = progress.rounds
        self._since = time.monotonic()
        self._took = self._since - started
        self._due_at = self._since + self._seconds

    def said(self) -> str:
        """What is kept, for who stops the run."""
        if not self.kept_round:
            return "no checkpoint was written yet. The same command starts from round 1."
        return (
            f"the checkpoint of round {self.kept_round} is kept. Type the same command again to "
            "continue from it."
        )

    @property
    def written_at(self) -> str:
        """When the file was written."""
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.path.stat().st_mtime))

    def remove(self) -> None:
        """Remove the file: the run is finished."""
        self.path.unlink(missing_ok=True)
