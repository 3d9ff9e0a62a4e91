"""The validation result of finished trials, by which a search selects those that it trains further."""

from collections.abc import Callable

from fedrec.config.methods import resolve
from fedrec.plan.run_matching import RunMatcher, RunSpec
from fedrec.plan.runs import RunId
from fedrec.plan.workspace import Workspace

CHOSEN_BY = "ndcg@10"
"""The metric by which trials are compared, on validation."""
AT = "best_validation"
"""The round at which they are."""


def validation_reached(workspace: Workspace) -> Callable[[RunId], float | None]:
    """A function that returns the validation result of a trial; None if the trial is not done."""
    matcher = RunMatcher()

    def reached(run: RunId) -> float | None:
        match = matcher.match(_trial(workspace, run))
        return float(match.summary["metrics"][AT]["validation"][CHOSEN_BY]) if match.is_current else None

    return reached


def _trial(workspace: Workspace, run: RunId) -> RunSpec:
    """A trial as a search wants it: targets, which decide on records, are not known before the search."""
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
        needs_model=False,
    )
