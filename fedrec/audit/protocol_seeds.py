"""Means and intervals of a metric over users, training seeds and protocol seeds together.

Another protocol seed draws other candidates, and other held-out items where times are equal. Training seeds
alone do not show how far a number moves with these.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedrec.errors import ComparisonError

_LEVEL = 0.95
_RESAMPLES = 4_000
_AT_ONCE = 250
"""Resamples drawn at once; memory holds as many values for each user."""


@dataclass(frozen=True)
class OverProtocolSeeds:
    """A mean over protocol seeds, training seeds and users, and its interval over all three."""

    value: float
    low: float
    high: float
    users: int
    protocols: int
    runs: int


def over_protocol_seeds(groups: Sequence[NDArray[np.float64]], seed: int = 0) -> OverProtocolSeeds:
    """The mean of values, one array of (training seeds, users) for each protocol seed, and its interval.

    A resample draws protocol seeds, training seeds of each, and users, all with replacement: the same users
    for every run. Each protocol seed weighs the same.
    """
    if len({group.shape[1] for group in groups}) != 1:
        raise ComparisonError(
            "The users differ between protocol seeds: give the values of the users that all have."
        )
    means = np.stack([group.mean(0) for group in groups])
    users = means.shape[1]
    draw = np.random.Generator(np.random.PCG64(seed))
    found = [
        drawn for _ in range(_RESAMPLES // _AT_ONCE) for drawn in _resampled(groups, users, draw, _AT_ONCE)
    ]
    low, high = np.quantile(found, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    runs = sum(len(group) for group in groups)
    return OverProtocolSeeds(float(means.mean()), float(low), float(high), users, len(groups), runs)


def _resampled(
    groups: Sequence[NDArray[np.float64]], users: int, draw: np.random.Generator, resamples: int
) -> NDArray[np.float64]:
    """The means of `count` resamples."""
    times = draw.multinomial(users, np.full(users, 1 / users), resamples)
    of_protocols = draw.multinomial(len(groups), np.full(len(groups), 1 / len(groups)), resamples)
    total = np.zeros(resamples)
    for index, group in enumerate(groups):
        sums = times @ group.T
        seeds = draw.multinomial(len(group), np.full(len(group), 1 / len(group)), resamples)
        total += of_protocols[:, index] * (sums * seeds).sum(1) / len(group)
    mean: NDArray[np.float64] = total / (len(groups) * users)
    return mean
