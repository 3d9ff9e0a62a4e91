"""Draws of (user, item) pairs compared with the draws that a sampler without a leak would make.

The model of a sampler: user u draws item i at the rate a_u b_i, if i is in its pool. A uniform sampler has
the same b for all items; one that prefers popular items has larger b for these. Both a and b are fitted only
to comparable pairs, which are neither in training nor held out. So the expected draws of a held-out item come
from the draws of the same item by users without a row of it.

The test compares two counts: the draws of the tested pairs, and those of comparable pairs of the same items.
Given their sum, the first is binomial under the model. A sampler without replacement varies less, so p is too
large and never too small. A sampler that repeats its draws varies more: then several draws count as one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import special

from fedrec.audit.draw_log import DrawLog

_MOST_STEPS, _CLOSE = 500, 1e-10
"""The most steps of the fit, and the relative change at which it ends."""
_INTERVAL = 0.95

_Floats = NDArray[np.float64]
_Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Pairs:
    """Distinct pairs of user and item, sorted."""

    user: _Integers
    item: _Integers
    items: int

    @classmethod
    def of(cls, user: NDArray[np.integer], item: NDArray[np.integer], items: int) -> Self:
        """The distinct pairs among given ones."""
        return cls.of_keys(user.astype(np.int64) * items + item, items)

    @classmethod
    def of_keys(cls, key: _Integers, items: int) -> Self:
        """The pairs of numbers that `key` gives."""
        user, item = np.divmod(np.unique(key), items)
        return cls(user, item, items)

    @property
    def key(self) -> _Integers:
        """One number for each pair, in the order of pairs."""
        return self.user * self.items + self.item

    def without(self, others: "Pairs") -> "Pairs":
        """The pairs that are not among `others`."""
        return Pairs.of_keys(np.setdiff1d(self.key, others.key), self.items)

    def joined(self, others: "Pairs") -> "Pairs":
        """The pairs together with `others`."""
        return Pairs.of_keys(np.concatenate((self.key, others.key)), self.items)


@dataclass(frozen=True)
class KindOfItem:
    """The draws of one kind of item, such as each user's training items."""

    pairs: int
    """The number of pairs of user and item."""
    draws: int
    expected: float
    """Expected draws by the comparable pairs of the same items."""
    uniform: float
    """Expected draws if each user drew uniformly from its comparable items."""
    ratio: float
    """Draws divided by expected draws; 1 if none is expected."""
    low: float
    high: float | None
    """The 95 % interval of `ratio`; None if it has no upper end."""
    p: float
    """The probability of so few draws if these pairs were drawn like comparable ones."""
    strength: float
    """The probability of no draw at all under such a sampler; above the test's level, the log is too
    short."""


@dataclass(frozen=True)
class DrawRates:
    """The rates of users and items, fitted to comparable pairs."""

    log: DrawLog
    user: _Floats
    item: _Floats
    uniform: _Floats
    """The rate of each user for any item under a uniform sampler."""
    of_user: _Integers
    of_item: _Integers
    """Draws of comparable pairs by item; `of_user` has them by user."""
    is_uniform: bool
    bundle: float
    """The variance of a pair's draws relative to independent draws, at least 1."""

    @classmethod
    def fitted(cls, log: DrawLog, excluded: Pairs, users: NDArray[np.integer], *, is_uniform: bool) -> Self:
        """Fit rates to the draws of `users` outside the `excluded` pairs."""
        items, everyone = excluded.items, int(users.max()) + 1
        drawn = Pairs(log.user, log.item, items)
        comparable = ~np.isin(drawn.key, excluded.key)
        user, item, count = log.user[comparable], log.item[comparable], log.count[comparable]
        of_user = np.bincount(user, count, everyone).astype(np.int64)
        of_item = np.bincount(item, count, items).astype(np.int64)
        uniform = _shares(of_user, items - np.bincount(excluded.user, minlength=everyone))
        rate, weight = uniform, np.ones(items)
        if not is_uniform:
            rate, weight = _fit(of_user, of_item, excluded)
        expected = rate[user] * weight[item]
        squares = (rate**2).sum() * (weight**2).sum()
        squares -= (rate[excluded.user] ** 2 * weight[excluded.item] ** 2).sum()
        varies = (count.astype(float) ** 2).sum() - 2 * (count * expected).sum() + squares
        bundle = max(1.0, float(varies) / max(1, int(count.sum())))
        return cls(log, rate, weight, uniform, of_user, of_item, is_uniform, bundle)

    def kind(self, pairs: Pairs) -> KindOfItem:
        """Compare the draws of some pairs with those expected."""
        key = Pairs(self.log.user, self.log.item, pairs.items).key
        draws = int(self.log.count[np.isin(key, pairs.key)].sum())
        expected = float((self.user[pairs.user] * self.item[pairs.item]).sum())
        others = (
            self.of_user[np.unique(pairs.user)] if self.is_uniform else self.of_item[np.unique(pairs.item)]
        )
        compared = _Compared(draws / self.bundle, int(others.sum()) / self.bundle, expected / self.bundle)
        low, high = compared.interval()
        return KindOfItem(
            pairs=len(pairs.user),
            draws=draws,
            expected=expected,
            uniform=float(self.uniform[pairs.user].sum()),
            ratio=draws / expected if expected else 1.0,
            low=low,
            high=high,
            p=compared.chance_of_fewer(compared.draws),
            strength=compared.chance_of_fewer(0),
        )


@dataclass(frozen=True)
class _Compared:
    """Draws of tested and of comparable pairs, and the expected draws of the tested ones."""

    draws: float
    others: float
    expected: float

    def chance_of_fewer(self, draws: float) -> float:
        """The binomial probability of at most so many draws among all."""
        if not self.expected or not self.others:
            return 1.0
        share = self.others / (self.others + self.expected)
        return float(special.betainc(self.others, draws + 1, share))

    def interval(self) -> tuple[float, float | None]:
        """The Clopper-Pearson interval of the ratio of draws to expected draws."""
        if not self.expected or not self.others:
            return 0.0, None
        tail = (1 - _INTERVAL) / 2
        low = special.betaincinv(self.draws, self.others + 1, tail) if self.draws else 0.0
        high = special.betaincinv(self.draws + 1, self.others, 1 - tail)
        scale = self.others / self.expected
        return float(scale * low / (1 - low)), float(scale * high / (1 - high))


def _fit(of_user: _Integers, of_item: _Integers, excluded: Pairs) -> tuple[_Floats, _Floats]:
    """Fit the rates under which expected draws equal draws, for each user and each item."""
    weight = of_item / max(1, int(of_item.sum()))
    rate = np.zeros(len(of_user))
    for _ in range(_MOST_STEPS):
        before = weight
        rate = _shares(of_user, _rest(weight, excluded.item, excluded.user, len(of_user)))
        weight = _shares(of_item, _rest(rate, excluded.user, excluded.item, len(of_item)))
        if np.abs(weight - before).max(initial=0) <= _CLOSE * weight.max(initial=0):
            break
    return rate, weight


def _rest(values: _Floats, excluded: _Integers, whose: _Integers, length: int) -> _Floats:
    """The sum of all values minus the excluded ones, for each of `length` rows."""
    rest: _Floats = values.sum() - np.bincount(whose, values[excluded], length)
    return rest


def _shares(draws: _Integers, over: NDArray[np.floating | np.integer]) -> _Floats:
    """Draws divided by the weight that they spread over; 0 without draws."""
    shares: _Floats = np.divide(draws, over, out=np.zeros(len(draws)), where=draws > 0)
    return shares


def all_pairs(pairs: Iterable[Pairs]) -> Pairs:
    """Join pairs of several kinds."""
    first, *others = pairs
    for other in others:
        first = first.joined(other)
    return first
