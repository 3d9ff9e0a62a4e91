"""Counts that decide how often negative sampling draws each item of a user; they contain no row of data."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEAKING_POOL = "exclude_all"
"""The pool of negatives that excludes held-out items."""


@dataclass(frozen=True)
class SamplingCounts:
    """For every user: its training rows, the size of its pool, whether its test item is also in training."""

    rows: NDArray[np.int64]
    pool: NDArray[np.int64]
    seen: NDArray[np.bool_]

    @classmethod
    def of_split(
        cls, user: NDArray[np.int32], item: NDArray[np.int32], part: NDArray[np.str_], items: int
    ) -> "SamplingCounts":
        """Count from the columns of a split whose pool has the items without any row of the user."""
        users, index = np.unique(user, return_inverse=True)
        pair = index.astype(np.int64) * items + item
        known = np.bincount(_distinct(np.sort(pair)) // items, minlength=len(users))
        test = np.empty(len(users), dtype=np.int64)
        test[index[part == "test"]] = pair[part == "test"]
        train = part == "train"
        rows = np.bincount(index[train], minlength=len(users))
        return cls(rows, items - known, _among(test, np.sort(pair[train])))

    @classmethod
    def of_shape(
        cls, user: NDArray[np.int32], pool: NDArray[np.int64], seen: NDArray[np.bool_]
    ) -> "SamplingCounts":
        """Count from columns with one row per training row; `pool` and `seen` repeat for each user."""
        _, first, rows = np.unique(user, return_index=True, return_counts=True)
        return cls(rows, pool[first], seen[first])


# Pairs are sorted once: on sorted arrays these functions are much faster than numpy's, which hash every pair.


def _distinct(ordered: NDArray[np.int64]) -> NDArray[np.int64]:
    """The distinct values of a sorted array."""
    firsts: NDArray[np.int64] = ordered[np.diff(ordered, prepend=-1) != 0]
    return firsts


def _among(wanted: NDArray[np.int64], ordered: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each wanted value is in the sorted array."""
    index = np.searchsorted(ordered, wanted)
    found: NDArray[np.bool_] = np.append(ordered, -1)[index] == wanted
    return found
