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


def _stated(project: Project, run: RunId) -> dict[str, Any]:
    """What the split of a run states, and the run too."""
    protocol = project.protocol(run.protocol).as_dict()
    return {"dataset": run.dataset, "protocol": protocol, "split": SPLIT, "interactions": "def"}


def split(project: Project, run: RunId, **changes: Any) -> None:
    """Let the split of a run be there."""
    table = pa.table({"user": [0, 1]})
    about = _stated(project, run) | changes
    write_table(project.results / run.split / "split.parquet", table, about)


def finish(project: Project, run: RunId, value: float = 1.0, **changes: Any) -> RunRecord:
    """Let a run be finished, as training writes it; `value` is what it learnt."""
    split(project, run)
    job = project.job(run)
    identity = {
        **_stated(project, run),
        "method": run.method,
        "paper": run.paper,
        "seed": run.seed,
        "settings": dict(job.settings),
        "engine": "batched",
        "code": run_fingerprint(run.method, "batched"),
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
