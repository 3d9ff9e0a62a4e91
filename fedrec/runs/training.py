"""A training run from a frozen split to its files: rounds, evaluation, checkpoints, results.

    curve.parquet      one row per round: loss and every metric, on validation and test
    ranks.parquet      one row per user and reported round: ranks among candidates and in the catalogue
    timing.parquet     one row per round: seconds, clients, bytes
    state.safetensors  the model after the last round, and below extra/ what else was to be kept
    run.json           every setting, hash and version; written last: a run with it is complete

All but the times are the same whether a run was killed and taken up again or not.
"""

import json
import platform
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from fedrec import __version__
from fedrec.data.split import Split
from fedrec.evaluation.metrics import METRICS, metrics_of
from fedrec.evaluation.ranking import rank_in_catalogue
from fedrec.evaluation.scoring import candidate_ranks, protocol_scores
from fedrec.federation.clients import Clients
from fedrec.federation.learner import Learner, Report
from fedrec.files.atomic import canonical_json, write_text
from fedrec.files.parquet import write_table
from fedrec.files.tensors import load_tensors, save_tensors
from fedrec.progress import RoundProgress

PARTS = ("validation", "test")
REPORTED = ("best_validation", "best_test", "last")
_CHUNK = 1 << 21
"""Scores computed at once when the whole catalogue is ranked: each needs a row of every table, and more."""
_BYTES = 4


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


@dataclass(frozen=True)
class Run:
    """A run: what is trained on what, for how long, and what identifies it."""

    split: Split
    clients: Clients
    learner: Learner
    rounds: int
    out: Path
    identity: dict[str, Any]
    """Everything that decides the result; a checkpoint of another identity is not taken up."""
    checkpoint_seconds: float = 30.0
    keep: tuple[str, ...] = ()
    """What the learner keeps besides its state; decides no other number, but what a checkpoint holds."""

    def train(self) -> dict[str, Any]:
        """Train to the last round, from a checkpoint if there is one, and write the results."""
        progress = self._resumed()
        display = RoundProgress(self.identity["method"], self.rounds, progress.rounds)
        saved = time.monotonic()
        for round_ in range(progress.rounds + 1, self.rounds + 1):
            report = self.learner.train_round(round_)
            self._evaluate(round_, report, progress)
            last = progress.curve[-1]
            display.update(
                report.loss, last["validation_hr@10"], report.local_seconds + report.server_seconds
            )
            if time.monotonic() - saved >= self.checkpoint_seconds and round_ < self.rounds:
                self._save(progress)
                saved = time.monotonic()
        display.close()
        return self._write(progress)

    def _evaluate(self, round_: int, report: Report, progress: Progress) -> None:
        sampled = {part: candidate_ranks(self.learner, self.clients, part) for part in PARTS}
        row: dict[str, float] = {"round": round_, "loss": report.loss}
        for part, ranks in sampled.items():
            row |= {f"{part}_{name}": value for name, value in metrics_of(ranks.cpu().numpy()).items()}
        progress.curve.append(row)
        progress.timing.append(_timing(round_, report))
        for reported in REPORTED:
            if self._is_reported(reported, round_, progress):
                progress.round_of[reported] = round_
                progress.ranks[reported] = torch.stack(
                    [*sampled.values(), *self._catalogue_ranks()], dim=1
                ).cpu()

    def _is_reported(self, reported: str, round_: int, progress: Progress) -> bool:
        """Whether this round takes the place: the papers' rule, the latest among equals."""
        if reported == "last":
            return round_ == self.rounds
        key = f"{reported.removeprefix('best_')}_hr@10"
        return all(progress.curve[-1][key] >= row[key] for row in progress.curve)

    def _catalogue_ranks(self) -> Iterator[Tensor]:
        """Ranks among all items outside the training rows and, for test, the validation item."""
        clients = self.clients
        everyone = clients.everyone
        all_items = torch.arange(clients.items, device=clients.device)
        found: dict[str, list[Tensor]] = {part: [] for part in PARTS}
        for who in everyone.split(max(1, _CHUNK // clients.items)):
            scores = protocol_scores(self.learner, clients, who, all_items.expand(len(who), -1))
            excluded = torch.zeros_like(scores, dtype=torch.bool)
            rows = clients.rows[who]
            first, last = int(clients.start[who[0]]), int(clients.start[who[-1] + 1])
            local = torch.repeat_interleave(torch.arange(len(who), device=clients.device), rows)
            excluded[local, clients.train_item[first:last]] = True
            for part in PARTS:
                target = clients.held_out[part][who]
                found[part].append(rank_in_catalogue(scores, target, excluded, self.split.protocol.rank_ties))
                excluded[torch.arange(len(who), device=clients.device), target] = True
        for ranks in found.values():
            yield torch.cat(ranks)

    def _resumed(self) -> Progress:
        """The progress of a checkpoint of this very run, or none."""
        path = self.out / "checkpoint.safetensors"
        if not path.is_file():
            return Progress()
        tensors, note = load_tensors(path)
        stored = json.loads(note)
        if (stored["identity"], stored.get("keep")) != (canonical_json(self.identity), list(self.keep)):
            print(f"{path}: belongs to other settings or code; starting anew.", file=sys.stderr)
            return Progress()
        self.learner.load({name: value for name, value in tensors.items() if not name.startswith("ranks/")})
        ranks = {
            name.removeprefix("ranks/"): value for name, value in tensors.items() if name.startswith("ranks/")
        }
        return Progress(stored["curve"], stored["timing"], stored["round_of"], ranks)

    def _save(self, progress: Progress) -> None:
        note = {
            "identity": canonical_json(self.identity),
            "keep": self.keep,
            "curve": progress.curve,
            "timing": progress.timing,
            "round_of": progress.round_of,
        }
        ranks = {f"ranks/{name}": value for name, value in progress.ranks.items()}
        save_tensors(self.out / "checkpoint.safetensors", self.learner.tensors() | ranks, json.dumps(note))

    def _write(self, progress: Progress) -> dict[str, Any]:
        columns = {name: [row[name] for row in progress.curve] for name in progress.curve[0]}
        write_table(self.out / "curve.parquet", pa.table(columns), self.identity)
        times = {name: [row[name] for row in progress.timing] for name in progress.timing[0]}
        write_table(self.out / "timing.parquet", pa.table(times), self.identity)
        write_table(self.out / "ranks.parquet", self._ranks_table(progress), self.identity)
        save_tensors(self.out / "state.safetensors", self.learner.tensors(), canonical_json(self.identity))
        summary = (
            self.identity
            | ({"keep": list(self.keep)} if self.keep else {})
            | self.learner.notes(self.rounds)
            | {
                "rounds": {name: progress.round_of[name] for name in REPORTED},
                "metrics": {
                    name: {
                        part: {m: progress.curve[progress.round_of[name] - 1][f"{part}_{m}"] for m in METRICS}
                        for part in PARTS
                    }
                    for name in REPORTED
                },
                "measured": {
                    "seconds": sum(row["local_seconds"] + row["server_seconds"] for row in progress.timing),
                    "seconds_per_round": float(
                        np.median([row["local_seconds"] + row["server_seconds"] for row in progress.timing])
                    ),
                    "peak_memory_bytes": _peak_memory(self.clients.device),
                    "device": _device_name(self.clients.device),
                    "versions": {
                        "fedrec": __version__,
                        "python": platform.python_version(),
                        "torch": torch.__version__,
                        "numpy": np.__version__,
                        "pyarrow": pa.__version__,
                    },
                },
            }
        )
        write_text(self.out / "run.json", json.dumps(summary, indent=2) + "\n")
        (self.out / "checkpoint.safetensors").unlink(missing_ok=True)
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


def _peak_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # Linux counts in KiB, macOS in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _device_name(device: torch.device) -> str:
    return (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"cpu ({torch.get_num_threads()} threads)"
    )
