"""A small synthetic dataset for demonstrations and tests without a network; `population` makes large ones.

Users and items belong to taste groups. A user mostly picks items of its own group, popular ones more often,
and sometimes any item. So popularity helps, and similar users help much more. Tastes are few and simple, so
that sound methods learn them in the few rounds of a demonstration. The best method here need not be the best
on real data. All arithmetic is on integers: the same seed gives the same interactions on every machine.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedrec.config.catalogue import Synthetic
from fedrec.config.population import Population
from fedrec.data.parse import INTERACTION_SCHEMA
from fedrec.data.population import population_interactions
from fedrec.random.purpose import LANES, Purpose
from fedrec.random.with_numpy import below, draws

_SHORTEST_HISTORY = 15
"""The least items of a user, and the most further ones."""
_MOST_FURTHER_ITEMS = 15
_OWN_TASTE_PERCENT = 94
_WEIGHT_SCALE = 10_000
_HEAD_SOFTENING = 5
"""The weight of the item of rank r is scale / (r + softening)."""
_FIRST_TIME = 1_600_000_000  # seconds since 1970
_LONGEST_PAUSE = 90_000  # seconds
_DRAWS_PER_PICK = LANES


def synthetic_interactions(settings: Synthetic | Population) -> pl.DataFrame:
    """Generate the synthetic interactions in the form of `fedrec.data.parse.read_interactions`."""
    return _typed(_of_population(settings) if isinstance(settings, Population) else _of_tastes(settings))


def _typed(table: pl.DataFrame) -> pl.DataFrame:
    return table.with_columns(row=pl.int_range(pl.len())).with_columns(
        pl.col(name).cast(kind) for name, kind in INTERACTION_SCHEMA.items()
    )


def _of_population(settings: Population) -> pl.DataFrame:
    made = population_interactions(settings, "population")
    columns = {"user": made.user, "item": made.item, "rating": made.rating, "time": made.time}
    return pl.DataFrame(columns).with_columns(pl.col("user", "item").cast(pl.Int64) + 1)


def _of_tastes(settings: Synthetic) -> pl.DataFrame:
    taste_of_item = np.arange(settings.items) % settings.tastes
    # Ranks inside taste groups: items 0..tastes-1 are first in their groups, and so on.
    weights = _WEIGHT_SCALE // (np.arange(settings.items) // settings.tastes + _HEAD_SOFTENING)
    columns: dict[str, list[NDArray[np.int64]]] = {"user": [], "item": [], "rating": [], "time": []}
    for user in range(settings.users):
        own_weights = np.where(taste_of_item == user % settings.tastes, weights, 0)
        items, ratings, times = _history(settings.seed, user, own_weights, weights)
        columns["user"].append(np.full(len(items), user + 1))
        columns["item"].append(items + 1)
        columns["rating"].append(ratings)
        columns["time"].append(times)
    return pl.DataFrame({name: np.concatenate(parts) for name, parts in columns.items()})


def synthetic_titles(settings: Synthetic | Population) -> pl.DataFrame:
    """A title for every item: taste group and rank, or its number without tastes."""
    numbers = range(settings.items)
    if isinstance(settings, Population):
        titles = [f"No. {number + 1}" for number in numbers]
    else:
        titles = [f"Taste {n % settings.tastes + 1}, No. {n // settings.tastes + 1}" for n in numbers]
    return pl.DataFrame({"item": [str(number + 1) for number in numbers], "title": titles})


def _history(
    seed: int, user: int, own: NDArray[np.int64], everything: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """One user's distinct items in the order of picking, with ratings and times."""
    own_ends, all_ends = np.cumsum(own), np.cumsum(everything)
    header = draws(seed, Purpose.SYNTHETIC, user=user, first=0, count=LANES)
    wanted = min(_SHORTEST_HISTORY + int(below(header[0], _MOST_FURTHER_ITEMS + 1)), len(everything) // 2)
    time = _FIRST_TIME + int(below(header[1], 300 * _LONGEST_PAUSE))
    items: list[int] = []
    ratings: list[int] = []
    times: list[int] = []
    pick = LANES
    while len(items) < wanted:
        kind, place, rating, pause = draws(
            seed, Purpose.SYNTHETIC, user=user, first=pick, count=_DRAWS_PER_PICK
        )
        pick += _DRAWS_PER_PICK
        # If a taste group is smaller than a user's history, the rest comes from all items.
        own_left = 5 * np.count_nonzero(own[items]) < 4 * np.count_nonzero(own)
        ends = own_ends if own_left and below(kind, 100) < _OWN_TASTE_PERCENT else all_ends
        item = int(np.searchsorted(ends, below(place, int(ends[-1])), side="right"))
        if item not in items:
            time += int(below(pause, _LONGEST_PAUSE))
            items.append(item)
            ratings.append(3 + int(below(rating, 3)))
            times.append(time)
    return np.array(items), np.array(ratings), np.array(times)
