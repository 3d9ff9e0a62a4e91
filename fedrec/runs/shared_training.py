"""Train several runs at once whose protocols differ only in the evaluation.

Most steps between a published and the clean protocol change candidates, ties or the reported round, but not
the training samples. Such runs share one training. After every round each run is evaluated by its own
protocol. Each folder has the same bytes as after a separate training.
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
"""The pool of negatives that depends on the candidates."""


def samples_of(split: Path) -> tuple[str, ...]:
    """Key of a split's training samples and held-out items, from the metadata of its files.

    Splits with equal keys can share a training. `StorageError` or `KeyError` if the metadata is incomplete.
    """
    about = read_metadata(split / "split.parquet")
    pool = about["protocol"]["negative_pool"]
    candidates = [read_metadata(split / "candidates.parquet")["content"]] if pool == _BY_CANDIDATES else []
    return (about["content"], str(about["items"]), pool, *candidates)


def evaluated_by(clients: Clients, split: Split) -> Clients:
    """The same clients with the protocol and the candidates of another split with equal samples."""
    other = Clients.of_split(split, clients.device)
    same = replace(clients, protocol=other.protocol, candidates=other.candidates)
    # Reuse the same tensors: other code recognises all clients and the whole catalogue by identity.
    vars(same).update(everyone=clients.everyone, catalogue=clients.catalogue)
    return same


@dataclass(frozen=True)
class SharedTraining(Training):
    """A run in training, and `others` with the same learner. No other run has fewer finished rounds.

    Rounds that a run evaluated before a stop are not evaluated again.
    """

    others: Sequence[Training] = ()
    written: list[dict[str, Any]] = field(default_factory=list)
    """The summaries of the others, once they are written."""
    _checkpoints: list[Checkpoints] = field(default_factory=list)
    _progress: list[Progress] = field(default_factory=list)

    @override
    def _resumed(self, checkpoints: Checkpoints) -> Progress:
        for other in self.others:
            progress = Checkpoints(other.out, other.identity, other.records, other.checkpoint_seconds)
            stored = progress.found()
            self._checkpoints.append(progress)
            self._progress.append(Progress() if stored is None else stored[1])
        if any(progress.rounds < checkpoints.rounds_saved for progress in self._progress):
            # The checkpoint of another run is damaged: that run needs all rounds.
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
        # Each checkpoint is complete, so that every run can resume alone. The first run is saved last: no
        # other run has fewer rounds, whenever the process is killed.
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
