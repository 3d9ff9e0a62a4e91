"""What finished runs reached on validation: all that a plan asks of results, to know which trials go on."""

from collections.abc import Callable

from fedrec.config.methods import resolve
from fedrec.errors import StorageError
from fedrec.files.sealed import read_sealed
from fedrec.plan.agreement import Agreement
from fedrec.plan.runs import SUMMARY, RunId
from fedrec.plan.workspace import Workspace

CHOSEN_BY = "ndcg@10"
"""The metric by which trials are compared, on validation."""
AT = "best_validation"
"""The round at which they are."""


def validation_reached(workspace: Workspace) -> Callable[[RunId], float | None]:
    """Tells what a run reached on validation; None of one that is not finished, or another than is meant."""
    agreement = Agreement()

    def reached(run: RunId) -> float | None:
        try:
            there = read_sealed(workspace.results / run.folder / SUMMARY)
        except (FileNotFoundError, StorageError, ValueError):
            # No run yet, or a damaged one: it is to be trained.
            return None
        settings, _, _ = resolve(workspace.methods, run.method, run.paper, run.dataset)
        if not agreement.holds(there, run.method, settings):
            return None
        return float(there["metrics"][AT]["validation"][CHOSEN_BY])

    return reached
