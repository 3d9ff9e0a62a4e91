"""HR, NDCG and MRR at K from ranks; one held-out item per user."""

import numpy as np
from numpy.typing import NDArray

CUTOFFS = (5, 10, 20)
METRICS = tuple(f"{name}@{cutoff}" for cutoff in CUTOFFS for name in ("hr", "ndcg", "mrr"))


def metrics_of(ranks: NDArray[np.float32]) -> dict[str, float]:
    """Every metric of `METRICS`, as the mean over users.

    HR@K is the share of ranks up to K; a hit at rank r adds 1 / log2(1 + r) to NDCG@K and
    1 / r to MRR@K, a miss adds nothing.
    """
    rank = ranks.astype(np.float64)
    found: dict[str, float] = {}
    for cutoff in CUTOFFS:
        hit = rank <= cutoff
        found[f"hr@{cutoff}"] = float(hit.mean())
        found[f"ndcg@{cutoff}"] = float(np.where(hit, 1 / np.log2(1 + rank), 0).mean())
        found[f"mrr@{cutoff}"] = float(np.where(hit, 1 / rank, 0).mean())
    return found


def activity_groups(rows: NDArray[np.int64], groups: int) -> NDArray[np.int64]:
    """The group of each user, 0 for the least active, in `groups` groups of equal size.

    Users with equally many rows are told apart by their number, so that sizes stay equal.
    """
    order = np.argsort(rows, kind="stable")
    group = np.empty(len(rows), dtype=np.int64)
    group[order] = np.arange(len(rows)) * groups // len(rows)
    return group
