"""The validation result of finished trials. A search selects the trials to train further by it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedrec.config.methods import resolve
from fedrec.plan.run_matching import RunMatcher, RunSpec
from fedrec.plan.runs import NEVER, RunId
from fedrec.plan.workspace import Workspace

_CUTOFF = 10
SELECTION_METRIC = f"ndcg@{_CUTOFF}"
"""The metric that compares trials, on validation."""
SELECTION_ROUND = "best_validation"
"""The reported round that compares them."""


def trial_validation(workspace: Workspace, *, exact: bool) -> Callable[[RunId], float | None]:
    """A function that returns the validation result of a trial; None if the trial is not done."""
    matcher = RunMatcher()

    def result_of(run: RunId) -> float | None:
        spec = _trial(workspace, run)
        match = matcher.match(spec)
        return validation_result(spec.folder, match.summary, exact=exact) if match.is_current else None

    return result_of


def validation_result(folder: Path, summary: Mapping[str, Any], *, exact: bool) -> float:
    """The validation result of a finished trial: among sampled candidates, or exactly, among all items."""
    if not exact:
        return float(summary["metrics"][SELECTION_ROUND]["validation"][SELECTION_METRIC])
    # Imported here: most plans read no table, and importing pyarrow is slow.
    from fedrec.files.parquet import read_table

    table, _ = read_table(folder / "ranks.parquet")
    ranks = (
        table["validation_rank_in_catalogue"]
        .to_numpy()[table["at"].to_numpy() == SELECTION_ROUND]
        .astype(np.float64)
    )
    # The same formula as in fedrec.evaluation.metrics, which planning does not import.
    return float(np.where(ranks <= _CUTOFF, 1 / np.log2(ranks + 1), 0.0).mean())


def _trial(workspace: Workspace, run: RunId) -> RunSpec:
    """The specification of a trial, without records: they depend on targets, which need the search first."""
    settings, _, _ = resolve(workspace.methods, run.method, run.paper, run.dataset)
    return RunSpec(
        folder=workspace.results / run.folder,
        method=run.method,
        paper=run.paper,
        seed=run.seed,
        settings=settings,
        records=(),
        split=workspace.results / run.split / "split.parquet",
        may_diverge=True,
        protocol=workspace.protocol(run.protocol).as_dict(),
        model=NEVER,
    )
