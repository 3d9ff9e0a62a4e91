"""A large synthetic dataset to measure growth, generated in time and memory linear in its interactions.

Users are as unequally active as those of MovieLens 1M, and items as unequally popular. A user's items are the
first distinct ones of its own endless sequence of draws, so they do not depend on the number of users
generated at once. There is no taste beyond popularity, so comparing methods on it is meaningless. All
arithmetic is on integers: the same settings give the same interactions on every machine.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedrec.config.population import Population
from fedrec.data.interactions import Interactions
from fedrec.random.purpose import LANES, Purpose
from fedrec.random.with_numpy import below, draw_at, philox

# fmt: off
_ACTIVITY = np.array((
    121, 133, 145, 163, 181, 199, 217, 242, 266, 290, 320, 356, 386, 429, 471, 519, 580, 622, 688, 749, 827,
    912, 1002, 1129, 1256, 1401, 1606, 1824, 2114, 2470, 3071, 4126, 13974,
))
# fmt: on
"""Quantiles of interactions per user of MovieLens 1M, in thousandths of the mean: the minimum, every 32nd
part of users, and the maximum."""
_BETWEEN = 1000
"""Interpolation steps between two quantiles."""
_HEAD = 15
"""In percent of all items: the item of rank r has a probability proportional to 1 / (r + head)^2. With 15,
the top 1 %, 10 % and 50 % of items have 7 %, 46 % and 88 % of the probability; in MovieLens 1M they have 9 %,
44 % and 92 % of the interactions."""
_WEIGHTS = 1 << 29
"""About a fifth of the sum of all weights, which must stay below 2^32."""
_AT_ONCE = 1 << 22
"""Interactions generated at once."""
_FEWEST, _MOST_OF_ITEMS = 3, 2
"""The least interactions of a user, and the divisor of the number of items that gives the most."""
_FIRST_TIME, _PAUSE = 1_600_000_000, 60  # seconds
_SIZES, _PICKS, _NAMES = range(1, 4)
"""The uses of draws of `Purpose.SYNTHETIC`, in place of a round; 0 belongs to the small dataset."""


@dataclass(frozen=True)
class Market:
    """The items by popularity, with the cumulative sum of their weights in `ends`."""

    item: NDArray[np.int32]
    """By rank, the most popular first."""
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, settings: Population) -> "Market":
        """The items of a population, with a random assignment of item numbers to ranks."""
        numbers = np.arange(settings.items, dtype=np.int64)
        names = draw_at(settings.seed, Purpose.SYNTHETIC, user=0, index=numbers, round_=_NAMES)
        away = 100 * numbers + _HEAD * settings.items + 1
        scale = (_WEIGHTS // settings.items) * (100 * settings.items) ** 2
        return cls(
            np.argsort(names, kind="stable").astype(np.int32), np.cumsum(np.maximum(1, scale // away**2))
        )

    def met(self, words: NDArray[np.uint64]) -> NDArray[np.int32]:
        """The item of each random word."""
        return self.item[np.searchsorted(self.ends, below(words, int(self.ends[-1])), side="right")]


def population_interactions(settings: Population, dataset: str) -> Interactions:
    """Generate the interactions of a population, by user and time."""
    sizes = history_sizes(settings)
    market = Market.of(settings)
    item = np.empty(int(sizes.sum()), dtype=np.int32)
    end = 0
    for users in _together(sizes):
        made = _histories(settings.seed, np.arange(users.start, users.stop), sizes[users], market)
        item[end : end + len(made)] = made
        end += len(made)
    return Interactions(
        dataset=dataset,
        users=settings.users,
        items=settings.items,
        timed=True,
        user=np.repeat(np.arange(settings.users, dtype=np.int32), sizes),
        item=item,
        rating=np.ones(end, dtype=np.float32),
        time=_FIRST_TIME + _PAUSE * _counted(sizes),
        row=np.arange(end),
    )


def history_sizes(settings: Population) -> NDArray[np.int64]:
    """The number of interactions of each user; their sum is the requested one, except for the bounds."""
    numbers = np.arange(settings.users)
    words = draw_at(settings.seed, Purpose.SYNTHETIC, user=0, index=numbers, round_=_SIZES)
    part, step = np.divmod(below(words, _BETWEEN * (len(_ACTIVITY) - 1)), _BETWEEN)
    weight = _ACTIVITY[part] * (_BETWEEN - step) + _ACTIVITY[part + 1] * step
    sizes = weight * settings.interactions // int(weight.sum())
    sizes[: settings.interactions - int(sizes.sum())] += 1
    bounded: NDArray[np.int64] = sizes.clip(_FEWEST, settings.items // _MOST_OF_ITEMS)
    return bounded


def _together(sizes: NDArray[np.int64]) -> Iterator[slice]:
    """Blocks of neighbouring users that are generated at once."""
    ends = np.cumsum(sizes)
    first = 0
    while first < len(sizes):
        made = int(ends[first]) - int(sizes[first])
        last = max(first + 1, int(np.searchsorted(ends, made + _AT_ONCE, side="right")))
        yield slice(first, last)
        first = last


def _histories(
    seed: int, users: NDArray[np.int64], sizes: NDArray[np.int64], market: Market
) -> NDArray[np.int32]:
    """The items of some users, by user: the first `sizes` distinct ones of each user's sequence."""
    items = len(market.item)
    # A pair is one number, the index of its user x items + item. Below, `short` are the users who have too
    # few, and `held` their pairs in the order of draws.
    full: list[NDArray[np.int64]] = []
    held, drawn = np.empty(0, dtype=np.int64), np.zeros(len(users), dtype=np.int64)
    short, missing = np.arange(len(users)), sizes
    while len(short):
        # Draw a few more than are missing, since some are repetitions.
        blocks = missing * 5 // (4 * LANES) + 1
        owner = np.repeat(short, blocks)
        words = philox((_counted(blocks) + drawn[owner], users[owner], _PICKS, int(Purpose.SYNTHETIC)), seed)
        drawn[short] += blocks
        pairs = np.concatenate((held, (owner[:, None] * items + market.met(words)).ravel()))
        pairs = pairs[np.sort(np.unique(pairs, return_index=True)[1])]
        pairs = pairs[np.argsort(pairs // items, kind="stable")]
        owner = pairs // items
        count = np.bincount(owner, minlength=len(users))
        enough = count >= sizes
        position = _counted(count)
        full.append(pairs[enough[owner] & (position < sizes[owner])])
        held = pairs[~enough[owner]]
        short = short[~enough[short]]
        missing = (sizes - count)[short]
    pairs = np.concatenate(full)
    pairs = pairs[np.argsort(pairs // items, kind="stable")]
    return (pairs % items).astype(np.int32)


def _counted(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """0, 1, ... for each size, one after the other."""
    ends = np.cumsum(sizes)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - sizes, sizes)
