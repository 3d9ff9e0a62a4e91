"""Whether one method is better than another by more than chance: over users, and over seeds.

Everything is paired: the same user, or the same seed, under both methods. Draws come from
`numpy.random.Generator(PCG64(seed))`, not from `fedrec.random.with_numpy`, which draws by user and round: the
same numbers and seed give the same result under the same version of numpy.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from fedrec.errors import ComparisonError

EXACT_PAIRS = 20
"""Up to so many pairs that differ, a randomisation test goes through all 2^pairs ways to flip signs."""
ALPHA = 0.05
RESAMPLES = 10_000
LEAST_P = 2 / (RESAMPLES + 1)
"""The smallest p that so many resampled means can give (`p_of`)."""
_AT_ONCE = 2**20  # numbers drawn at once, 8 MiB
_KEPT = 2**27  # bytes of draws that are kept for others on as many users
_FEW = 64  # distinct values whose numbers are drawn at once; of more, each user's
_ROUNDING = 1e-12  # sums this near, relative to the sum of magnitudes, are equal

Floats = NDArray[np.float64]
_Weights: TypeAlias = NDArray[np.uint8]
_Draws: TypeAlias = Callable[[np.random.Generator, int, int], _Weights]
"""What draws the weights of so many users, so many rows of them."""


@dataclass(frozen=True)
class Comparison:
    """Two methods on the same users; positive numbers speak for the first."""

    difference: float
    """Mean over users of the first method's value less the second's."""
    low: float
    high: float
    """Percentile bootstrap interval of `difference`, over users."""
    effect: float
    """Matched-pairs rank-biserial correlation: the sum of ranks of the magnitudes of differences for the
    first method less the sum of those against it, as a share of all ranks; -1 to 1, 0 without any
    difference. Users without a difference have no rank."""
    wilcoxon: float
    """Two-sided p of Wilcoxon's signed-rank test. Users without a difference are left out (Wilcoxon's own
    rule); 1 where none is left."""
    randomisation: float
    """Two-sided p of the randomisation test of the mean, which flips the signs of differences: exact where
    at most `EXACT_PAIRS` users have a difference, else (b + 1) / (m + 1) of m draws, b of them as far
    from 0 as what was seen."""
    users: int


@dataclass(frozen=True)
class SeedComparison:
    """Two methods on the same seeds; positive numbers speak for the first."""

    difference: float
    """Mean over seeds of the first method's value less the second's."""
    randomisation: float
    """Two-sided p of the randomisation test of the mean, as in `Comparison`."""
    seeds: int
    smallest: float
    """The smallest p that so many seeds can give, 2 / 2^seeds: reached where all agree."""
    enough: bool
    """Whether so many seeds can give a p of at most `ALPHA`."""
    needed: int
    """The smallest number of seeds that can."""


def compare(
    a: ArrayLike, b: ArrayLike, *, seed: int = 0, resamples: int = RESAMPLES, level: float = 0.95
) -> Comparison:
    """Compare values of users under two methods; the same place in `a` and `b` is the same user."""
    differences = _paired(a, b, "users")
    low, high = bootstrap_interval(differences, seed=seed, resamples=resamples, level=level)
    return Comparison(
        difference=float(differences.mean()),
        low=low,
        high=high,
        effect=_rank_biserial(differences),
        wilcoxon=_wilcoxon(differences),
        randomisation=_sign_flip(differences, seed, resamples),
        users=len(differences),
    )


def over_seeds(a: ArrayLike, b: ArrayLike) -> SeedComparison:
    """Compare the values of two methods over seeds; the same place in `a` and `b` is the same seed."""
    differences = _paired(a, b, "seeds")
    smallest = _smallest(len(differences))
    return SeedComparison(
        difference=float(differences.mean()),
        randomisation=_sign_flip(differences, seed=0, resamples=RESAMPLES),
        seeds=len(differences),
        smallest=smallest,
        enough=smallest <= ALPHA,
        needed=least_seeds(),
    )


def least_seeds(alpha: float = ALPHA) -> int:
    """The smallest number of seeds whose randomisation test can give a p of at most `alpha`."""
    assert alpha > 0, "no number of seeds gives a p of 0"
    return next(seeds for seeds in count(1) if _smallest(seeds) <= alpha)


def bootstrap_interval(
    differences: ArrayLike, *, seed: int = 0, resamples: int = RESAMPLES, level: float = 0.95
) -> tuple[float, float]:
    """The percentile bootstrap interval of the mean over users."""
    assert 0 < level < 1, "a level is a share"
    of_users = _finite(differences, "differences")
    return interval_of(resampled_means(of_users[None], seed=seed, resamples=resamples), level)


def interval_of(means: Floats, level: float) -> tuple[float, float]:
    """The interval that holds a share of resampled means, with equally many to either side of it."""
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def p_of(means: Floats, value: float) -> float:
    """Two-sided p of the hypothesis that the mean is `value`, by resampled means.

    Twice the share of those that lie on the rarer side of it; at least 2 / (resamples + 1), never 0.
    """
    rarer = min(int((means <= value).sum()), int((means >= value).sum()))
    return min(1.0, 2 * (rarer + 1) / (len(means) + 1))


def resampled_means(differences: Floats, *, seed: int = 0, resamples: int = RESAMPLES) -> Floats:
    """Means over resampled users and, where there are several, resampled seeds: one row per seed.

    Both are drawn with replacement, users and seeds apart from each other, so that a mean tells of other
    users and of other seeds at once. With one row users alone are resampled.

    Values of users are few distinct numbers, unless there are many seeds. How often a resample holds each of
    few is multinomial, so that is drawn, instead of the resample. Where there are many, all that are compared
    on so many users share their resamples: drawing takes longer than adding up.
    """
    assert resamples > 0, "an interval needs resamples"
    seeds = len(differences)
    of_users = differences[0] if seeds == 1 else differences.T
    values, times = np.unique(of_users, axis=0, return_counts=True)
    if len(values) > _FEW:
        sums = _shared_sums(_resamples, of_users, seed, resamples)
    else:
        sums = _sums_of_few(values, times, seed, resamples)
    means = np.concatenate(list(sums)) / len(of_users)
    if seeds == 1:
        return means
    draw = np.random.Generator(np.random.PCG64([seed, seeds]))
    shares = draw.multinomial(seeds, [1 / seeds] * seeds, resamples) / seeds
    return np.asarray((means * shares).sum(axis=1))


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values adjusted for their number by Holm's step-down rule, in the order they came in."""
    wrong = [p for p in p_values if not 0 <= p <= 1]
    if wrong:
        raise ComparisonError(f"{wrong[0]} is no p-value: give Holm's rule numbers from 0 to 1.")
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for done, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - done) * p_values[place]))
        adjusted[place] = largest
    return adjusted


def _paired(a: ArrayLike, b: ArrayLike, pairs: str) -> Floats:
    first, second = _finite(a, "first values"), _finite(b, "second values")
    if len(first) != len(second):
        raise ComparisonError(
            f"{len(first)} {pairs} cannot be paired with {len(second)}: "
            f"give both methods' values of the same {pairs}, in the same order."
        )
    return first - second


def _finite(numbers: ArrayLike, name: str) -> Floats:
    values = np.asarray(numbers, dtype=np.float64)
    if values.ndim != 1 or not len(values):
        raise ComparisonError(f"The {name} have shape {values.shape}: give one row of numbers, not empty.")
    if not np.isfinite(values).all():
        place = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ComparisonError(f"The {name} have {values[place]} at place {place}: give finite numbers.")
    return values


def _rank_biserial(differences: Floats) -> float:
    some = differences[differences != 0]
    if not len(some):
        return 0.0
    ranks = stats.rankdata(np.abs(some))
    return float((np.sign(some) * ranks).sum() / ranks.sum())


def _wilcoxon(differences: Floats) -> float:
    some = differences[differences != 0]
    return float(stats.wilcoxon(some).pvalue) if len(some) else 1.0


def _sign_flip(differences: Floats, seed: int, resamples: int) -> float:
    # A flipped zero is a zero: leaving out users without a difference changes no sum.
    some = differences[differences != 0]
    seen = abs(float(some.sum())) - _ROUNDING * float(np.abs(some).sum())
    if len(some) <= EXACT_PAIRS:
        return float((np.abs(_every_sum(some)) >= seen).mean())
    as_far = sum(int((np.abs(sums) >= seen).sum()) for sums in _drawn_sums(differences, seed, resamples))
    return (as_far + 1) / (resamples + 1)


def _every_sum(differences: Floats) -> Floats:
    """The sum for each way to choose the signs."""
    sums = np.zeros(1)
    for difference in differences:
        sums = np.concatenate([sums + difference, sums - difference])
    return sums


def _drawn_sums(differences: Floats, seed: int, resamples: int) -> Iterator[Floats]:
    """Sums for signs drawn at random.

    Of each of few distinct magnitudes it is drawn how often it is positive, which is binomial; of many, whose
    is.
    """
    magnitudes, times = np.unique(np.abs(differences[differences != 0]), return_counts=True)
    if len(magnitudes) > _FEW:
        for sums in _shared_sums(_flips, differences, seed, resamples):
            yield differences.sum() - 2 * sums
        return
    draw = np.random.Generator(np.random.PCG64(seed))
    for part in _parts(resamples, len(magnitudes)):
        yield (2 * draw.binomial(times, 0.5, (part, len(times))) - times) @ magnitudes


def _sums_of_few(values: Floats, times: NDArray[np.int64], seed: int, resamples: int) -> Iterator[Floats]:
    """Sums over resampled users who have each of few values so many times."""
    users = int(times.sum())
    draw = np.random.Generator(np.random.PCG64(seed))
    for part in _parts(resamples, len(values)):
        yield draw.multinomial(users, times / users, part) @ values


def _shared_sums(drawn: _Draws, values: Floats, seed: int, resamples: int) -> Iterator[Floats]:
    """The sum of values by each of so many rows of weights, as `drawn` draws them."""
    users = len(values)
    if users * resamples <= _KEPT:
        weights, start = _kept(drawn, users, seed, resamples), 0
        for part in _parts(resamples, users):
            yield weights[start : start + part].astype(np.float64) @ values
            start += part
        return
    draw = np.random.Generator(np.random.PCG64(seed))
    for part in _parts(resamples, users):
        yield drawn(draw, users, part).astype(np.float64) @ values


@lru_cache(maxsize=6)
def _kept(drawn: _Draws, users: int, seed: int, rows: int) -> _Weights:
    """Weights for all that are compared on so many users."""
    return drawn(np.random.Generator(np.random.PCG64(seed)), users, rows)


def _resamples(draw: np.random.Generator, users: int, rows: int) -> _Weights:
    """How often each resample holds each user: resamples x users."""
    chosen = (np.bincount(draw.integers(0, users, users), minlength=users) for _ in range(rows))
    return np.stack([times.astype(np.uint8) for times in chosen])


def _flips(draw: np.random.Generator, users: int, rows: int) -> _Weights:
    """Whose sign is flipped: draws x users, 0 or 1."""
    bytes_ = draw.integers(0, 256, (rows, -(-users // 8)), dtype=np.uint8)
    return np.unpackbits(bytes_, axis=1, count=users)


def _parts(resamples: int, width: int) -> Iterator[int]:
    """Numbers of resamples that are drawn at once, so that memory stays bounded."""
    most = max(1, _AT_ONCE // width)
    for start in range(0, resamples, most):
        yield min(most, resamples - start)


def _smallest(seeds: int) -> float:
    return 2.0 ** (1 - seeds)
