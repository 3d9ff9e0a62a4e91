"""Counts that decide how often negative sampling draws each item of a user; no row of the data."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEAKING_POOL = "exclude_all"
"""The pool of negatives in which held-out items alone are never drawn."""


@dataclass(frozen=True)
class SamplingCounts:
    """Of every user its training rows, the items it may draw, whether its test item is in training too."""

    rows: NDArray[np.int64]
    pool: NDArray[np.int64]
    seen: NDArray[np.bool_]

    @classmethod
    def of_split(
        cls, user: NDArray[np.int32], item: NDArray[np.int32], part: NDArray[np.str_], items: int
    ) -> "SamplingCounts":
        """From the columns of a split under a pool of what no part of a user's rows holds."""
        users, place = np.unique(user, return_inverse=True)
        pair = place.astype(np.int64) * items + item
        known = np.bincount(_distinct(np.sort(pair)) // items, minlength=len(users))
        test = np.empty(len(users), dtype=np.int64)
        test[place[part == "test"]] = pair[part == "test"]
        train = part == "train"
        rows = np.bincount(place[train], minlength=len(users))
        return cls(rows, items - known, _among(test, np.sort(pair[train])))

    @classmethod
    def of_shape(
        cls, user: NDArray[np.int32], pool: NDArray[np.int64], seen: NDArray[np.bool_]
    ) -> "SamplingCounts":
        """From columns with a row for every training row, which all say the same of its user."""
        _, first, rows = np.unique(user, return_index=True, return_counts=True)
        return cls(rows, pool[first], seen[first])


# Sorted once, pairs are told apart and found in a small part of the time that numpy's own functions take,
# which look each of them up in a table of hashes.


def _distinct(ordered: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first of all that are equal."""
    firsts: NDArray[np.int64] = ordered[np.diff(ordered, prepend=-1) != 0]
    return firsts


def _among(wanted: NDArray[np.int64], ordered: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of these are there."""
    place = np.searchsorted(ordered, wanted)
    found: NDArray[np.bool_] = np.append(ordered, -1)[place] == wanted
    return found
