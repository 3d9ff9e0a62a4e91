"""Several runs from one training: their protocols evaluate differently, and clients train on the same data.

Steps from a published protocol to the clean one change candidates, ties or the reported round more often than
samples. Runs that differ in such a step alone are trained once; each is evaluated by its own protocol after
every round and written to its own folder, in the bytes that it has when it is trained by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from typing_extensions import override

from fedrec.data.split import Split
from fedrec.federation.clients import Clients
from fedrec.federation.learner import Report
from fedrec.files.parquet import read_metadata
from fedrec.runs.checkpoint import Checkpoints, Progress
from fedrec.runs.training import Training

_BY_CANDIDATES = "exclude_train_and_candidates"
"""The pool of negatives that depends on what is evaluated."""


def samples_of(split: Path) -> tuple[str, ...]:
    """What decides which samples clients of a split train on, and what is held out, by what its files say.

    Splits with the same words train alike. `StorageError` or `KeyError` where a file does not say it.
    """
    about = read_metadata(split / "split.parquet")
    pool = about["protocol"]["negative_pool"]
    candidates = [read_metadata(split / "candidates.parquet")["content"]] if pool == _BY_CANDIDATES else []
    return (about["content"], str(about["items"]), pool, *candidates)


def evaluated_by(clients: Clients, split: Split) -> Clients:
    """The same clients under the protocol of another split, on which they train alike."""
    other = Clients.of_split(split, clients.device)
    same = replace(clients, protocol=other.protocol, candidates=other.candidates)
    # Whether some clients are neighbours, and items the whole catalogue, is seen by their memory.
    vars(same).update(everyone=clients.everyone, catalogue=clients.catalogue)
    return same


@dataclass(frozen=True)
class SharedTraining(Training):
    """A run in training, and `others` that have the same learner, none of which is less far.

    What one of them has evaluated before it was stopped is not evaluated again.
    """

    others: Sequence[Training] = ()
    written: list[dict[str, Any]] = field(default_factory=list)
    """What the files of the others say, once they are there."""
    _checkpoints: list[Checkpoints] = field(default_factory=list)
    _progress: list[Progress] = field(default_factory=list)

    @override
    def _resumed(self, checkpoints: Checkpoints) -> Progress:
        for other in self.others:
            own = Checkpoints(other.out, other.identity, other.records, other.checkpoint_seconds)
            found = own.found()
            self._checkpoints.append(own)
            self._progress.append(Progress() if found is None else found[1])
        if any(own.rounds < checkpoints.rounds_noted for own in self._progress):
            # The checkpoint of another one is damaged: it needs all rounds.
            return Progress()
        return super()._resumed(checkpoints)

    @override
    def _evaluate(self, round_: int, report: Report, progress: Progress) -> None:
        super()._evaluate(round_, report, progress)
        for other, own in zip(self.others, self._progress, strict=True):
            if own.rounds < round_:
                other._evaluate(round_, report, own)

    @override
    def _keep(self, progress: Progress, checkpoints: Checkpoints, *, is_last: bool) -> None:
        if not self.others:
            super()._keep(progress, checkpoints, is_last=is_last)
            return
        tensors = self.learner.tensors()
        if not is_last and not checkpoints.is_worth(tensors, files=1 + len(self.others)):
            return
        # Each has all of it: whichever of them is asked for next goes on by itself. The first comes last, so
        # that no other is less far wherever this ends.
        for checkpoint, own in zip(self._checkpoints, self._progress, strict=True):
            if own.rounds == progress.rounds:
                checkpoint.save(tensors, own)
        checkpoints.save(tensors, progress)

    @override
    def _write(self, progress: Progress) -> dict[str, Any]:
        for other, own, checkpoint in zip(self.others, self._progress, self._checkpoints, strict=True):
            self.written.append(other._write(own))
            checkpoint.remove()
        return super()._write(progress)
