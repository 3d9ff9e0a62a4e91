"""HR, NDCG and MRR at K from ranks; one held-out item per user."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedrec.errors import ConfigurationError, did_you_mean

CUTOFFS = (5, 10, 20)
_OF_A_HIT: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "hr": np.ones_like,
    "ndcg": lambda rank: 1 / np.log2(1 + rank),
    "mrr": lambda rank: 1 / rank,
}
METRICS = tuple(f"{name}@{cutoff}" for cutoff in CUTOFFS for name in _OF_A_HIT)


def metrics_of(ranks: NDArray[np.float32]) -> dict[str, float]:
    """Compute every metric of `METRICS` as the mean over users."""
    rank = ranks.astype(np.float64)
    of_a_hit = {name: of(rank) for name, of in _OF_A_HIT.items()}
    return {
        f"{name}@{cutoff}": float(np.where(rank <= cutoff, of_a_hit[name], 0.0).mean())
        for cutoff in CUTOFFS
        for name in _OF_A_HIT
    }


def per_user(ranks: NDArray[np.float32], metric: str) -> NDArray[np.float64]:
    """Compute each user's value of `metric`, such as `hr@10`; the metric is their mean.

    A rank up to K is a hit. A hit at rank r adds 1 to HR@K, 1 / log2(1 + r) to NDCG@K and 1 / r to
    MRR@K; a miss adds nothing.
    """
    name, _, cutoff = metric.partition("@")
    if name not in _OF_A_HIT or not cutoff.isdecimal():
        raise ConfigurationError(
            f"unknown metric '{metric}'.{did_you_mean(metric, METRICS)} "
            f"Write one of {', '.join(_OF_A_HIT)}, '@' and a whole number."
        )
    rank = ranks.astype(np.float64)
    return np.where(rank <= int(cutoff), _OF_A_HIT[name](rank), 0.0)


def activity_groups(interactions: NDArray[np.int64], groups: int) -> NDArray[np.int64]:
    """The group of each user, 0 for the least active, in `groups` groups of equal size.

    `interactions` has the number of training interactions of each user. Ties are ordered by user number, so
    that sizes stay equal.
    """
    order = np.argsort(interactions, kind="stable")
    group = np.empty(len(interactions), dtype=np.int64)
    group[order] = np.arange(len(interactions)) * groups // len(interactions)
    return group
