"""The progress of a run in training, and its checkpoint: the file from which a killed run resumes."""

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
"""Seconds until the first checkpoint is due; it is written after a round."""
_RANKS = "ranks/"
_SHARE = 30
"""Inverse of the largest share of time for checkpoints: one second in 30."""
_BYTES_PER_SECOND = 2.5e8
"""Expected speed of writing the first checkpoint."""


@dataclass
class Progress:
    """The progress of a run: its curve, its times, and the ranks at the reported rounds."""

    curve: list[dict[str, float]] = field(default_factory=list)
    timing: list[dict[str, float]] = field(default_factory=list)
    round_of: dict[str, int] = field(default_factory=dict)
    ranks: dict[str, Tensor] = field(default_factory=dict)
    """Ranks at each reported round: (clients, 4), for validation and test, then both in the catalogue."""

    @property
    def rounds(self) -> int:
        """Rounds done."""
        return len(self.curve)


class Checkpoints:
    """The checkpoint of one run, with its identity and its records.

    One is due soon after the start, and then every `seconds`, unless that would slow down the run.
    """

    def __init__(
        self, folder: Path, identity: Mapping[str, Any], records: Sequence[str], seconds: float
    ) -> None:
        self.path = folder / CHECKPOINT
        self.saved_round = 0
        """The round whose state the file has; 0 if there is no checkpoint of this run."""
        self._belongs = {"identity": canonical_json(identity), "record": list(records)}
        self._seconds = seconds
        self._since = time.monotonic()
        self._due_at = self._since + min(_FIRST_AFTER, seconds)
        self._took: float | None = None

    def found(self) -> tuple[dict[str, Tensor], Progress] | None:
        """The learner's tensors and the progress in this run's checkpoint; None if there is none.

        A damaged checkpoint, or one of another run, is ignored with a message.
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
        self.saved_round = progress.rounds
        return tensors, progress

    @property
    def rounds_saved(self) -> int:
        """The rounds of this run's checkpoint, read from its metadata; 0 if there is no readable one."""
        try:
            note = json.loads(noted_in(self.path))
            return len(note["curve"]) if self._is_of(note) else 0
        except (StorageError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            # `found` reports the damage when it reads the file.
            return 0

    def _is_of(self, stored: Mapping[str, Any]) -> bool:
        """Whether the metadata of a checkpoint belongs to this run."""
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
        """Whether the next checkpoint is due."""
        return time.monotonic() >= self._due_at

    def is_worth(self, tensors: Mapping[str, Tensor], shares: int = 1, files: int = 1) -> bool:
        """Whether a due checkpoint takes only a small share of the time; otherwise postpone it.

        The checkpoint has `shares` parts of the size of `tensors`, one per process, and is written to `files`
        files. With 0 seconds between checkpoints, every one is written.
        """
        if not self._seconds:
            return True
        takes = shares * sum(tensor.nbytes for tensor in tensors.values()) / _BYTES_PER_SECOND
        self._due_at = self._since + _SHARE * files * (takes if self._took is None else self._took)
        return self.is_due

    def save(self, tensors: Mapping[str, Tensor], progress: Progress) -> None:
        """Write the learner's tensors and the progress."""
        started = time.monotonic()
        note = self._belongs | {
            "curve": progress.curve,
            "timing": progress.timing,
            "round_of": progress.round_of,
        }
        ranks = {f"{_RANKS}{name}": value for name, value in progress.ranks.items()}
        save_tensors(self.path, {**tensors, **ranks}, json.dumps(note))
        self.saved_round = progress.rounds
        self._since = time.monotonic()
        self._took = self._since - started
        self._due_at = self._since + self._seconds

    def said(self) -> str:
        """Message after a stop: which round is saved, and how to continue."""
        if not self.saved_round:
            return "no checkpoint was written yet. The same command starts from round 1."
        return (
            f"the checkpoint of round {self.saved_round} is kept. Type the same command again to "
            "continue from it."
        )

    @property
    def written_at(self) -> str:
        """Local time at which the file was written."""
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.path.stat().st_mtime))

    def remove(self) -> None:
        """Remove the file, once the run is finished."""
        self.path.unlink(missing_ok=True)
