"""Rank the scores of another system on a stored split, and write the ranks as a record.

The record has one round, which all rules report. It has ranks among all items if all items have scores. It
has no model.
"""

import math
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from typing_extensions import override

from fedrec import __version__
from fedrec.config.modules import method_names
from fedrec.config.protocol import OWN
from fedrec.data.split import Split
from fedrec.errors import ConfigurationError, ResultError
from fedrec.evaluation.metrics import metrics_of
from fedrec.evaluation.scoring import HELD_OUT_PARTS, candidate_ranks, catalogue_ranks
from fedrec.federation.clients import Clients
from fedrec.federation.learner import Learner, Report
from fedrec.plan.evaluated import EVALUATED_FOLDER
from fedrec.plan.fingerprint import code_fingerprint
from fedrec.plan.runs import FILES, MODEL, NOT_KEPT, SUMMARY
from fedrec.random.purpose import Purpose
from fedrec.runs.folder import clear_folder
from fedrec.runs.record import IN_CATALOGUE, REPORTED, SCORE_SOURCE, RunRecord
from fedrec.runs.score_files import Ids, ScoreFile, read_scores
from fedrec.runs.splits import split_of

EVALUATED = Path("results", EVALUATED_FOLDER)
"""The default folder of these records, apart from the runs that the workflow trains."""
_TRAINED = (
    "another system: fedrec did not train it and cannot check its training data, nor how its settings and "
    "these scores were chosen"
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_DECIDING = ("dataset", "method", "protocol", "split", "code")
"""Keys that decide the ranks, in addition to the scores."""


class EvaluatedScores(Learner):
    """A learner with given scores and no model."""

    logits = False

    def __init__(self, given: ScoreFile, clients: Clients) -> None:
        self._given = given
        self._users = clients.user.numpy()

    @override
    def train_round(self, round_: int) -> Report:
        """Report nothing: the other system has trained already."""
        return Report(math.nan, 0, 0, 0, math.nan, math.nan)

    @override
    def scores(self, who: Tensor, items: Tensor) -> Tensor:
        users = self._users[who.numpy()][:, None]
        return torch.from_numpy(np.ascontiguousarray(self._given.of(users, items.numpy())))

    @override
    def tensors(self) -> dict[str, Tensor]:
        """Return no state: the other system has it."""
        return {}

    @override
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        assert not tensors, "another system keeps its own state"

    @override
    def negative_draws(self, round_: int) -> list[tuple[Tensor, Purpose]]:
        return []


def evaluate_scores(
    scores: object,
    data: str | Path,
    protocol: str,
    *,
    name: str,
    out: str | Path | None = None,
    ids: str = "original",
    note: str = "",
) -> RunRecord:
    """Rank the scores of another system by a protocol, and write the record.

    `fedrec.evaluate` documents the arguments. An existing record of the same scores is overwritten.
    """
    _check_name(name)
    data = Path(data)
    split = split_of(data, protocol, OWN)
    folder = Path(out) if out is not None else EVALUATED / split.dataset / split.protocol.name / name
    given = read_scores(scores, Ids.of(ids, data, split), split)
    source = {
        "name": name,
        "file": str(scores) if isinstance(scores, str | Path) else f"a {type(scores).__name__} in memory",
        "sha256": given.checksum,
        "ids": ids,
        "scores": "the whole catalogue" if given.in_catalogue else "held-out items and candidates",
        **({"note": note} if note else {}),
    }
    identity = {
        "dataset": split.dataset,
        "method": name,
        "paper": OWN,
        "protocol": split.protocol.as_dict(),
        "seed": 0,
        "settings": {},
        "sources": {},
        "split": split.content_hash(),
        "interactions": split.interactions,
        "code": code_fingerprint("fedrec.evaluation.scoring"),
        SCORE_SOURCE: source,
    }
    _check_folder(folder, identity)
    return _written(folder, identity, _ranks(given, split), os.path.relpath(data, folder))


def _check_name(name: str) -> None:
    """Raise `ConfigurationError` unless `name` is valid for a folder, and is not a method."""
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"--name {name}: not a valid name for a folder. Use letters, digits, dots, dashes and "
            "underscores."
        )
    if name.casefold() in method_names():
        raise ConfigurationError(
            f"--name {name}: fedrec has a method with this name. Choose another: {name}-of-my-library."
        )


def _check_folder(folder: Path, identity: Mapping[str, Any]) -> None:
    """Raise `ResultError` if the folder has anything but a record of the same scores."""
    if not folder.exists():
        return
    advice = "Give another folder: --out FOLDER."
    if not folder.is_dir():
        raise ResultError(f"{folder}: is a file, not a folder. {advice}")
    other_files = sorted(
        path.name for path in folder.iterdir() if path.name not in FILES and path.name[0] != "."
    )
    if other_files:
        raise ResultError(f"{folder}: contains other files, for example {other_files[0]}. {advice}")
    clear_folder(folder)
    if not (folder / SUMMARY).exists():
        return
    try:
        stored = RunRecord(folder).summary
    except ResultError as error:
        raise ResultError(f"{error} {advice} Or delete it.") from None
    differing = [key for key in _DECIDING if stored.get(key) != identity[key]]
    if stored.get(SCORE_SOURCE, {}).get("sha256") != identity[SCORE_SOURCE]["sha256"]:
        differing.append("scores")
    if differing:
        raise ResultError(
            f"{folder}: contains the record of {stored['method']} on {stored['dataset']}, which differs in "
            f"{', '.join(differing)}. {advice} Or delete it."
        )


def _ranks(given: ScoreFile, split: Split) -> pa.Table:
    """One row per user: ranks among candidates and, if all items have scores, in the catalogue."""
    clients = Clients.of_split(split, torch.device("cpu"))
    learner = EvaluatedScores(given, clients)
    ranks = {f"{part}_rank": candidate_ranks(learner, clients, part) for part in HELD_OUT_PARTS}
    if given.in_catalogue:
        whole = catalogue_ranks(learner, clients)
        ranks |= {f"{part}_rank_in_catalogue": whole[part] for part in HELD_OUT_PARTS}
    columns = {name: values.numpy() for name, values in ranks.items()}
    return pa.table({"user": clients.user.numpy().astype(np.int32), **columns})


def _written(folder: Path, identity: Mapping[str, Any], ranks: pa.Table, data: str) -> RunRecord:
    """Write the files of the record: one round, which every rule reports."""
    metrics = {part: metrics_of(ranks[f"{part}_rank"].to_numpy()) for part in HELD_OUT_PARTS}
    row = {f"{part}_{name}": value for part, values in metrics.items() for name, value in values.items()}
    summary = {
        **identity,
        SCORE_SOURCE: {
            **identity[SCORE_SOURCE],
            "trained_by": _TRAINED,
            "fedrec": __version__,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        },
        MODEL: NOT_KEPT,
        "data": data,
        "rounds": dict.fromkeys(REPORTED, 1),
        "metrics": dict.fromkeys(REPORTED, metrics),
    }
    if IN_CATALOGUE in ranks.column_names:
        summary["exact_metrics"] = {
            part: metrics_of(ranks[f"{part}_rank_in_catalogue"].to_numpy()) for part in HELD_OUT_PARTS
        }
    at = [pa.array([rule] * len(ranks)) for rule in REPORTED]
    return RunRecord.write(
        folder,
        identity,
        curve=pa.table({"round": [1], "loss": [math.nan], **{name: [value] for name, value in row.items()}}),
        timing=pa.table({"round": pa.array([], pa.int64())}),
        ranks=pa.concat_tables([ranks.add_column(0, "at", rule) for rule in at]),
        tensors={},
        summary=summary,
    )
