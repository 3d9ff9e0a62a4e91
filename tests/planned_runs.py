"""Runs of a project that lie among its results, finished, as training writes them."""

from typing import Any

import pyarrow as pa
import torch

from fedrec.files.parquet import write_table
from fedrec.plan.fingerprint import run_fingerprint
from fedrec.plan.project import Project
from fedrec.plan.runs import RunId
from fedrec.runs.record import RunRecord

SPLIT = "abc"


def split(project: Project, run: RunId, content: str = SPLIT) -> None:
    """Let the split of a run be there."""
    table = pa.table({"user": [0, 1]})
    write_table(project.results / run.split / "split.parquet", table, {"split": content})


def finish(project: Project, run: RunId, value: float = 1.0, **changes: Any) -> RunRecord:
    """Let a run be finished, as training writes it; `value` is what it learnt."""
    split(project, run)
    job = project.job(run)
    identity = {
        "dataset": run.dataset,
        "method": run.method,
        "paper": run.paper,
        "protocol": {"name": run.protocol, "round_rule": "last"},
        "seed": run.seed,
        "settings": dict(job.settings),
        "engine": "batched",
        "code": run_fingerprint(run.method, "batched"),
        "split": SPLIT,
    }
    more = {"record": list(job.records), "metrics": {}, "rounds": {}}
    column = pa.table({"x": [value]})
    return RunRecord.write(
        project.results / run.folder,
        identity,
        curve=column,
        timing=column,
        ranks=column,
        tensors={"Q": torch.full((3,), value)},
        summary=identity | more | changes,
    )
