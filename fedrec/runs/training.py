"""A training run from a frozen split to its record: rounds, evaluation, checkpoints.

All files but the times are the same whether a run was killed and taken up again or not.
"""

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
from fedrec.federation.learner import Learner, Report
from fedrec.progress import RoundProgress
from fedrec.runs.checkpoint import Checkpoints, Progress
from fedrec.runs.device import measured_of
from fedrec.runs.record import REPORTED, RunRecord
from fedrec.runs.stopping import StopRequest, stoppable

_BYTES = 4  # of a number that is sent
_QUICK = 2.0
"""Seconds of a round up to which one that is asked to stop goes on to its end."""


@dataclass(frozen=True)
class Training:
    """A run in training: what is trained on what, for how long, and what identifies it."""

    clients: Clients
    learner: Learner
    rounds: int
    out: Path
    identity: dict[str, Any]
    """Everything that decides the result; a checkpoint of another identity is not taken up."""
    checkpoint_seconds: float = 30.0
    records: tuple[str, ...] = ()
    """What the learner records besides its state; decides no other number, but what a checkpoint holds."""
    remarks: Mapping[str, Any] = field(default_factory=dict)
    """What run.json says besides, such as whose settings these also are; decides nothing."""

    def train(self) -> dict[str, Any]:
        """Train to the last round, from a checkpoint if there is one, and write the results.

        A signal to stop raises `StoppedError`, which says what was kept.
        """
        checkpoints = Checkpoints(self.out, self.identity, self.records, self.checkpoint_seconds)
        progress = self._resumed(checkpoints)
        display = RoundProgress(self.identity["method"], self.rounds, progress.rounds)
        with stoppable() as stop:
            try:
                self._go_on(progress, checkpoints, display, stop)
                display.close()
                summary = self._write(progress)
            except KeyboardInterrupt:
                display.close()
                raise StoppedError(checkpoints.said(), stop.status) from None
        checkpoints.remove()
        return summary

    def _go_on(
        self, progress: Progress, checkpoints: Checkpoints, display: RoundProgress, stop: StopRequest
    ) -> None:
        """Do the rounds that are left."""
        for round_ in range(progress.rounds + 1, self.rounds + 1):
            started = time.monotonic()
            report = self.learner.train_round(round_)
            self._evaluate(round_, report, progress)
            seconds = report.local_seconds + report.server_seconds
            display.update(report.loss, progress.curve[-1]["validation_hr@10"], seconds)
            if round_ < self.rounds and (stop.signal is not None or checkpoints.is_due):
                tensors = self.learner.tensors()
                if stop.signal is not None or checkpoints.is_worth(tensors):
                    checkpoints.save(tensors, progress)
                if stop.signal is not None:
                    raise KeyboardInterrupt
            stop.rounds_are_quick = time.monotonic() - started < _QUICK

    def _resumed(self, checkpoints: Checkpoints) -> Progress:
        """The progress of a checkpoint of this very run, which the learner takes up; or none."""
        found = checkpoints.found()
        if found is None:
            return Progress()
        tensors, progress = found
        self.learner.load(tensors)
        print(
            f"{self.identity['method']}: goes on after round {progress.rounds} of {self.rounds}, from the "
            f"checkpoint of {checkpoints.written_at}.",
            file=sys.stderr,
        )
        return progress

    def _evaluate(self, round_: int, report: Report, progress: Progress) -> None:
        # One copy for all ranks: a GPU is waited for once.
        by_part = [candidate_ranks(self.learner, self.clients, part) for part in HELD_OUT_PARTS]
        sampled = torch.stack(by_part, dim=1).cpu()
        row: dict[str, float] = {"round": round_, "loss": report.loss}
        for part, ranks in zip(HELD_OUT_PARTS, sampled.unbind(1), strict=True):
            row |= {f"{part}_{name}": value for name, value in metrics_of(ranks.numpy()).items()}
        progress.curve.append(row)
        progress.timing.append(_timing(round_, report))
        reported = [name for name in REPORTED if self._is_reported(name, round_, progress)]
        if reported:
            whole = catalogue_ranks(self.learner, self.clients)
            in_catalogue = torch.stack([whole[part] for part in HELD_OUT_PARTS], dim=1).cpu()
            ranks = torch.cat((sampled, in_catalogue), dim=1)
            progress.round_of |= dict.fromkeys(reported, round_)
            progress.ranks |= dict.fromkeys(reported, ranks)

    def _is_reported(self, reported: str, round_: int, progress: Progress) -> bool:
        """Whether this round takes the place: the papers' rule, the latest among equals."""
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
                "measured": measured_of(progress.timing, self.clients.device),
            }
        )
        RunRecord.write(
            self.out,
            self.identity,
            curve=_columns(progress.curve),
            timing=_columns(progress.timing),
            ranks=self._ranks_table(progress),
            tensors=self.learner.tensors(),
            summary=summary,
        )
        return summary

    def _ranks_table(self, progress: Progress) -> pa.Table:
        users = self.clients.user.cpu().numpy().astype(np.int32)
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
