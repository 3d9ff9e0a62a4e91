"""Expected metrics of the draw counter, without a draw: a baseline for clients with own item tables.

Where held-out items are never drawn as negatives, who only remembers what it drew has the held-out item level
with the candidates it never drew, and before all others. With k training rows, n negatives each, T rounds and
a pool of P items, a candidate is never drawn with probability exp(-k n T / P); if z of them are not, the rank
is any of 1 to z + 1. An item that stands in training too was pushed up: its rank is 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from fedrec.runs.sampling_counts import SamplingCounts


@dataclass(frozen=True)
class SamplingScheme:
    """How clients draw negatives, and what the held-out item is ranked against."""

    rounds: int
    negatives: int
    candidates: int


def draw_counter_metrics(
    histories: SamplingCounts, drawing: SamplingScheme, cutoffs: Sequence[int]
) -> dict[str, float]:
    """HR and NDCG at every cutoff, as a mean over users."""
    draws = histories.rows * drawing.negatives * drawing.rounds
    never_drawn = np.where(histories.seen, 0.0, np.exp(-draws / np.maximum(histories.pool, 1)))
    chance = _chances(never_drawn, drawing.candidates)
    ranks = np.arange(1, drawing.candidates + 2)
    expected: dict[str, float] = {}
    for cutoff in cutoffs:
        hit = ranks <= cutoff
        # With z candidates never drawn the gain is the mean over ranks 1 to z + 1.
        for name, gain in (("hr", hit.astype(float)), ("ndcg", hit / np.log2(ranks + 1))):
            expected[f"{name}@{cutoff}"] = float((chance @ (np.cumsum(gain) / ranks)).mean())
    return expected


def _chances(share: NDArray[np.float64], trials: int) -> NDArray[np.float64]:
    """For each user (row), how likely 0, 1 and so on up to all of so many trials succeed (column)."""
    successes, chance = np.arange(trials + 1), share[:, None]
    failures = trials - successes
    ways = special.gammaln(trials + 1) - special.gammaln(successes + 1) - special.gammaln(failures + 1)
    # By logarithms: chances may be so small that their powers are no numbers, on which scipy's own gives up.
    binomial: NDArray[np.float64] = np.exp(
        ways + special.xlogy(successes, chance) + special.xlog1py(failures, -chance)
    )
    return binomial
