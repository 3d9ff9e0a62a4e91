"""Paired tests and intervals over users and over seeds: is one method better than another by more than
chance?

Draws come from `numpy.random.Generator(PCG64(seed))`, since `fedrec.random.with_numpy` draws by user and
round. The same values and seed give the same result under the same version of numpy.
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
"""With at most so many differing pairs, a randomisation test computes all 2^pairs sign flips."""
ALPHA = 0.05
RESAMPLES = 10_000
LEAST_P = 2 / (RESAMPLES + 1)
"""The smallest p of `p_of` with this number of resamples."""
_AT_ONCE = 2**20  # numbers drawn at once, 8 MiB
_CACHED_BYTES = 2**27  # bytes of cached draws for comparisons on as many users
_FEW = 64  # up to so many distinct values, counts of values are drawn; beyond, users
_ROUNDING = 1e-12  # sums that differ by less, relative to the sum of magnitudes, are equal

Floats = NDArray[np.float64]
_Weights: TypeAlias = NDArray[np.uint8]
_Draws: TypeAlias = Callable[[np.random.Generator, int, int], _Weights]
"""Draws weights `(rows, users)` from a generator, the number of users and the number of rows."""


@dataclass(frozen=True)
class Comparison:
    """Two methods on the same users; positive numbers favour the first."""

    difference: float
    """Mean over users of the first method's value minus the second's."""
    low: float
    high: float
    """Percentile bootstrap interval of `difference`, over users."""
    effect: float
    """Matched-pairs rank-biserial correlation: the sum of ranks of the magnitudes of differences for the
    first method less the sum of those against it, as a share of all ranks; -1 to 1, 0 without any
    difference. Users without a difference have no rank."""
    wilcoxon: float
    """Two-sided p of Wilcoxon's signed-rank test. Users without a difference are left out (Wilcoxon's own
    rule); 1 if none is left."""
    randomisation: float
    """Two-sided p of the randomisation test of the mean, which flips the signs of differences: exact where
    at most `EXACT_PAIRS` users have a difference, else (b + 1) / (m + 1) of m draws, b of them as far
    from 0 as what was seen."""
    users: int


@dataclass(frozen=True)
class SeedComparison:
    """Two methods on the same seeds; positive numbers favour the first."""

    difference: float
    """Mean over seeds of the first method's value minus the second's."""
    randomisation: float
    """Two-sided p of the randomisation test of the mean, as in `Comparison`."""
    seeds: int
    smallest: float
    """The smallest possible p, 2 / 2^seeds, if all seeds agree in sign."""
    enough: bool
    """Whether this number of seeds can give a p of at most `ALPHA`."""
    needed: int
    """The smallest number of seeds that can give a p of at most `ALPHA`."""


def compare(
    a: ArrayLike, b: ArrayLike, *, seed: int = 0, resamples: int = RESAMPLES, level: float = 0.95
) -> Comparison:
    """Compare values of users under two methods; equal indices of `a` and `b` are the same user."""
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
    """Compare the values of two methods over seeds; equal indices of `a` and `b` are the same seed."""
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
    """The central interval that holds a share of resampled means."""
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def p_of(means: Floats, value: float) -> float:
    """Two-sided p of the hypothesis that the mean is `value`, by resampled means.

    Twice the share of means on the rarer side of `value`; at least 2 / (resamples + 1), never 0.
    """
    rarer = min(int((means <= value).sum()), int((means >= value).sum()))
    return min(1.0, 2 * (rarer + 1) / (len(means) + 1))


def resampled_means(differences: Floats, *, seed: int = 0, resamples: int = RESAMPLES) -> Floats:
    """Means over resampled users and seeds, from values `(seeds, users)`.

    Users and seeds are drawn independently with replacement, so the means vary with both. With one row, only
    users are resampled.

    Few distinct values: the counts of values in a resample are multinomial, and are drawn directly. Many
    distinct values: comparisons on the same number of users share their resamples, since drawing takes longer
    than adding.
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
    """The p-values adjusted by Holm's step-down rule, in their original order."""
    wrong = [p for p in p_values if not 0 <= p <= 1]
    if wrong:
        raise ComparisonError(f"{wrong[0]} is no p-value: give numbers from 0 to 1.")
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for done, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - done) * p_values[index]))
        adjusted[index] = largest
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
    # Flipping a zero changes no sum, so users without a difference are left out.
    some = differences[differences != 0]
    seen = abs(float(some.sum())) - _ROUNDING * float(np.abs(some).sum())
    if len(some) <= EXACT_PAIRS:
        return float((np.abs(_every_sum(some)) >= seen).mean())
    as_far = sum(int((np.abs(sums) >= seen).sum()) for sums in _drawn_sums(differences, seed, resamples))
    return (as_far + 1) / (resamples + 1)


def _every_sum(differences: Floats) -> Floats:
    """The sums of all 2^n choices of signs."""
    sums = np.zeros(1)
    for difference in differences:
        sums = np.concatenate([sums + difference, sums - difference])
    return sums


def _drawn_sums(differences: Floats, seed: int, resamples: int) -> Iterator[Floats]:
    """Sums with random signs.

    Few distinct magnitudes: the number of positive signs of each is binomial, and is drawn directly. Many:
    one sign per user is drawn.
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
    """Sums over resampled users from the counts of few distinct values."""
    users = int(times.sum())
    draw = np.random.Generator(np.random.PCG64(seed))
    for part in _parts(resamples, len(values)):
        yield draw.multinomial(users, times / users, part) @ values


def _shared_sums(drawn: _Draws, values: Floats, seed: int, resamples: int) -> Iterator[Floats]:
    """The sums of values weighted by each row of weights that `drawn` gives."""
    users = len(values)
    if users * resamples <= _CACHED_BYTES:
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
    """Cached weights for all comparisons on a number of users."""
    return drawn(np.random.Generator(np.random.PCG64(seed)), users, rows)


def _resamples(draw: np.random.Generator, users: int, rows: int) -> _Weights:
    """The count of each user in each resample: `(resamples, users)`."""
    chosen = (np.bincount(draw.integers(0, users, users), minlength=users) for _ in range(rows))
    return np.stack([times.astype(np.uint8) for times in chosen])


def _flips(draw: np.random.Generator, users: int, rows: int) -> _Weights:
    """Random sign flips, 0 or 1: `(draws, users)`."""
    bytes_ = draw.integers(0, 256, (rows, -(-users // 8)), dtype=np.uint8)
    return np.unpackbits(bytes_, axis=1, count=users)


def _parts(resamples: int, width: int) -> Iterator[int]:
    """The sizes of parts of `count` resamples, so that memory stays bounded."""
    most = max(1, _AT_ONCE // width)
    for start in range(0, resamples, most):
        yield min(most, resamples - start)


def _smallest(seeds: int) -> float:
    return 2.0 ** (1 - seeds)
