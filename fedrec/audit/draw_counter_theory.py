"""Expected metrics of draw-counter without sampling: a baseline for clients that keep item tables.

If clients never sample held-out items as negatives, draw-counter ranks the held-out item equal with the
candidates that it never sampled, and before all others. With k training rows, n negatives each, T rounds and
a pool of P items, a candidate is never sampled with probability exp(-k n T / P). If z candidates are not
sampled, the rank is any of 1 to z + 1 with equal probability. A held-out item that is also in training has
rank 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from fedrec.runs.sampling_counts import SamplingCounts


@dataclass(frozen=True)
class SamplingScheme:
    """The sampling of negatives, and the number of candidates."""

    rounds: int
    negatives: int
    candidates: int


def draw_counter_metrics(
    histories: SamplingCounts, drawing: SamplingScheme, cutoffs: Sequence[int]
) -> dict[str, float]:
    """HR and NDCG at every cutoff, mean over users."""
    draws = histories.rows * drawing.negatives * drawing.rounds
    never_drawn = np.where(histories.seen, 0.0, np.exp(-draws / np.maximum(histories.pool, 1)))
    chance = _chances(never_drawn, drawing.candidates)
    ranks = np.arange(1, drawing.candidates + 2)
    expected: dict[str, float] = {}
    for cutoff in cutoffs:
        hit = ranks <= cutoff
        # With z candidates never sampled, the gain is the mean over ranks 1 to z + 1.
        for name, gain in (("hr", hit.astype(float)), ("ndcg", hit / np.log2(ranks + 1))):
            expected[f"{name}@{cutoff}"] = float((chance @ (np.cumsum(gain) / ranks)).mean())
    return expected


def _chances(share: NDArray[np.float64], trials: int) -> NDArray[np.float64]:
    """The binomial probabilities of 0 to `trials` successes: `(users, trials + 1)`."""
    successes, chance = np.arange(trials + 1), share[:, None]
    failures = trials - successes
    ways = special.gammaln(trials + 1) - special.gammaln(successes + 1) - special.gammaln(failures + 1)
    # By logarithms: powers of small probabilities underflow, on which scipy's function fails.
    binomial: NDArray[np.float64] = np.exp(
        ways + special.xlogy(successes, chance) + special.xlog1py(failures, -chance)
    )
    return binomial
