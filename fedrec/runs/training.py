"""Train a run on a split: rounds, evaluation, checkpoints, and the record at the end.

A run that was killed and resumed gives the same files as an uninterrupted one, except for times.
"""

import io
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from fedrec.errors import StoppedError
from fedrec.evaluation.metrics import METRICS, metrics_of
from fedrec.evaluation.scoring import HELD_OUT_PARTS, candidate_ranks, catalogue_ranks
from fedrec.federation.clients import Clients
from fedrec.federation.collectives import SINGLE, Communicator
from fedrec.federation.learner import Learner, Report
from fedrec.federation.shards import merge_state, split_state
from fedrec.progress import RoundProgress
from fedrec.runs.checkpoint import Checkpoints, Progress
from fedrec.runs.device import measured_of
from fedrec.runs.record import REPORTED, RunRecord
from fedrec.runs.stopping import StopRequest, stoppable

_BYTES = 4  # of a number that is sent
_QUICK = 2.0
"""Seconds of a round up to which a stop waits for its end."""


@dataclass(frozen=True)
class Training:
    """A run in training: its clients, learner, number of rounds and identity."""

    clients: Clients
    learner: Learner
    rounds: int
    out: Path
    identity: dict[str, Any]
    """Everything that decides the result; a checkpoint with another identity is ignored."""
    checkpoint_seconds: float = 30.0
    records: tuple[str, ...] = ()
    """Records of the learner in addition to its state; they decide the content of checkpoints, no number."""
    remarks: Mapping[str, Any] = field(default_factory=dict)
    """What run.json says besides, such as whose settings these also are; decides nothing."""
    communicator: Communicator = SINGLE
    """The processes that train it together, each its own clients; the first one writes files."""

    def train(self) -> dict[str, Any]:
        """Train to the last round, from a checkpoint if there is one, and write the results.

        A signal to stop raises `StoppedError`, which reports the saved round.
        """
        checkpoints = Checkpoints(self.out, self.identity, self.records, self.checkpoint_seconds)
        progress = self._resumed(checkpoints)
        stream = None if self.communicator.is_root else io.StringIO()
        display = RoundProgress(self.identity["method"], self.rounds, progress.rounds, stream)
        with stoppable() as stop:
            try:
                self._go_on(progress, checkpoints, display, stop)
                display.close()
                summary = self._write(progress)
            except KeyboardInterrupt:
                display.close()
                raise StoppedError(checkpoints.said(), stop.status) from None
        if self.communicator.is_root:
            checkpoints.remove()
        return summary

    def _go_on(
        self, progress: Progress, checkpoints: Checkpoints, display: RoundProgress, stop: StopRequest
    ) -> None:
        """Train the remaining rounds."""
        for round_ in range(progress.rounds + 1, self.rounds + 1):
            started = time.monotonic()
            report = self.learner.train_round(round_)
            self._evaluate(round_, report, progress)
            seconds = report.local_seconds + report.server_seconds
            display.update(report.loss, progress.curve[-1]["validation_hr@10"], seconds)
            signal, is_due = self._agreed(stop, checkpoints)
            if round_ < self.rounds and (signal is not None or is_due):
                self._keep(progress, checkpoints, is_last=signal is not None)
                if signal is not None:
                    stop.signal = signal
                    raise KeyboardInterrupt
            stop.rounds_are_quick = self.communicator.broadcast(time.monotonic() - started < _QUICK)

    def _agreed(self, stop: StopRequest, checkpoints: Checkpoints) -> tuple[int | None, bool]:
        """The signal by which any process was asked to stop, and whether a checkpoint is due."""
        told = self.communicator.all_gather_object((stop.signal, checkpoints.is_due))
        return next((signal for signal, _ in told if signal is not None), None), told[0][1]

    def _keep(self, progress: Progress, checkpoints: Checkpoints, *, is_last: bool) -> None:
        """Write a checkpoint, if it takes only a small share of the time, or before a stop."""
        tensors = self.learner.tensors()
        if not is_last and not self.communicator.broadcast(
            checkpoints.is_worth(tensors, self.communicator.size)
        ):
            return
        parts = self.communicator.gather(tensors)
        if self.communicator.is_root:
            checkpoints.save(merge_state(parts), progress)
        # Nobody goes on, or ends, before the file is there: where one ends the others are ended.
        self.communicator.broadcast(None)

    def _resumed(self, checkpoints: Checkpoints) -> Progress:
        """The progress of a checkpoint of this very run, which the learner takes up; or none."""
        tensors, progress = (checkpoints.found() if self.communicator.is_root else None) or ({}, Progress())
        # Ranks of all clients stay with the process that writes them.
        rounds = self.communicator.broadcast((progress.curve, progress.timing, progress.round_of))
        if not rounds[0]:
            return progress
        self.learner.load(self.communicator.scatter(lambda: split_state(tensors, self.communicator)))
        if not self.communicator.is_root:
            return Progress(*rounds)
        print(
            f"{self.identity['method']}: continues after round {progress.rounds} of {self.rounds}, from the "
            f"checkpoint of {checkpoints.written_at}.",
            file=sys.stderr,
        )
        return progress

    def _evaluate(self, round_: int, report: Report, progress: Progress) -> None:
        # One copy for all ranks, so that the CPU waits for a GPU once.
        by_part = [candidate_ranks(self.learner, self.clients, part) for part in HELD_OUT_PARTS]
        sampled = torch.stack(by_part, dim=1).cpu()
        row: dict[str, float] = {"round": round_, "loss": report.loss}
        for everyones in self._collected(sampled):
            for part, ranks in zip(HELD_OUT_PARTS, everyones.unbind(1), strict=True):
                row |= {f"{part}_{name}": value for name, value in metrics_of(ranks.numpy()).items()}
        progress.curve.append(self.communicator.broadcast(row))
        progress.timing.append(_timing(round_, report))
        reported = [name for name in REPORTED if self._is_reported(name, round_, progress)]
        if reported:
            whole = catalogue_ranks(self.learner, self.clients)
            in_catalogue = torch.stack([whole[part] for part in HELD_OUT_PARTS], dim=1).cpu()
            progress.round_of |= dict.fromkeys(reported, round_)
            for ranks in self._collected(torch.cat((sampled, in_catalogue), dim=1)):
                progress.ranks |= dict.fromkeys(reported, ranks)

    def _collected(self, own: torch.Tensor) -> list[torch.Tensor]:
        """The rows of all processes, one process after the other, where files are written; elsewhere none."""
        parts = [part["own"] for part in self.communicator.gather({"own": own})]
        return parts if len(parts) < 2 else [torch.cat(parts)]

    def _is_reported(self, reported: str, round_: int, progress: Progress) -> bool:
        """Whether this round becomes the reported one: the best so far, and of ties the latest."""
        if reported == "last":
            return round_ == self.rounds
        key = f"{reported.removeprefix('best_')}_hr@10"
        return all(progress.curve[-1][key] >= row[key] for row in progress.curve)

    def _write(self, progress: Progress) -> dict[str, Any]:
        summary = (
            self.identity
            | ({"record": list(self.records)} if self.records else {})
            | dict(self.remarks)
            | self.learner.notes(self.rounds)
            | {
                "rounds": {name: progress.round_of[name] for name in REPORTED},
                "metrics": {name: _metrics_at(progress, name) for name in REPORTED},
                "measured": self._measured(progress),
            }
        )
        parts = self.communicator.gather(self.learner.tensors())
        for users in self._collected(self.clients.user.cpu()):
            RunRecord.write(
                self.out,
                self.identity,
                curve=_columns(progress.curve),
                timing=_columns(progress.timing),
                ranks=_ranks_table(progress, users),
                tensors=merge_state(parts),
                summary=summary,
            )
        return summary

    def _measured(self, progress: Progress) -> dict[str, Any]:
        """Measurements: the time of the first process, and the memory of each process."""
        measured = measured_of(progress.timing, self.clients.device)
        each = self.communicator.all_gather_object(measured["peak_memory_bytes"])
        return measured if len(each) == 1 else measured | {"peak_memory_bytes_of_processes": each}


def _ranks_table(progress: Progress, user: torch.Tensor) -> pa.Table:
    users = user.numpy().astype(np.int32)
    parts = []
    for name in REPORTED:
        validation, test, validation_full, test_full = progress.ranks[name].numpy().T
        parts.append(
            pa.table(
                {
                    "at": pa.array([name] * len(users)),
                    "user": users,
                    "validation_rank": validation,
                    "test_rank": test,
                    "validation_rank_in_catalogue": validation_full,
                    "test_rank_in_catalogue": test_full,
                }
            )
        )
    return pa.concat_tables(parts)


def _columns(rows: list[dict[str, float]]) -> pa.Table:
    return pa.table({name: [row[name] for row in rows] for name in rows[0]})


def _metrics_at(progress: Progress, reported: str) -> dict[str, dict[str, float]]:
    """Every metric of both parts at a reported round."""
    row = progress.curve[progress.round_of[reported] - 1]
    return {part: {name: row[f"{part}_{name}"] for name in METRICS} for part in HELD_OUT_PARTS}


def _timing(round_: int, report: Report) -> dict[str, float]:
    return {
        "round": round_,
        "clients": report.clients,
        "bytes_down_per_client": _BYTES * report.down,
        "bytes_up_per_client": _BYTES * report.up,
        "local_seconds": report.local_seconds,
        "server_seconds": report.server_seconds,
        "slowest_client_seconds": float("nan") if report.slowest is None else report.slowest,
    }
