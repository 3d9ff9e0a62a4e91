"""The order in which numpy's quicksort leaves equal values: that of version 1.24, on any machine.

Papers' code sorts a user's rows by time with pandas' default, numpy's `argsort(kind="quicksort")`. It is not
stable, so which of several rows with the latest time comes first, and is held out, is decided by the
algorithm alone: a median of three splits ranges longer than 16, an insertion sort does the rest. Newer
versions sort otherwise on some processors; here it is as it was.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_SHORT = 16
"""Ranges of at most this many values are sorted by insertion."""


def unstable_order(values: Sequence[int]) -> list[int]:
    """The places of the values in ascending order, equal ones as the algorithm happens to leave them.

    Raises `RecursionError` where splits are so uneven that numpy would go over to another algorithm.
    """
    order = list(range(len(values)))
    waiting = [(0, len(values) - 1, 2 * max(0, len(values).bit_length() - 1))]
    while waiting:
        first, last, depth = waiting.pop()
        if depth < 0:
            raise RecursionError(
                "numpy's quicksort would leave these times to a heap sort, which fedrec does not reproduce"
            )
        while last - first >= _SHORT:
            middle = _split(values, order, first, last)
            depth -= 1
            if middle - first < last - middle:
                waiting.append((middle + 1, last, depth))
                last = middle - 1
            else:
                waiting.append((first, middle - 1, depth))
                first = middle + 1
        _insert(values, order, first, last)
    return order


def _split(values: Sequence[int], order: list[int], first: int, last: int) -> int:
    """Bring what is smaller than the median of three before it and what is larger behind; its place."""
    middle = first + (last - first >> 1)
    for low, high in ((first, middle), (middle, last), (first, middle)):
        if values[order[high]] < values[order[low]]:
            order[low], order[high] = order[high], order[low]
    pivot = values[order[middle]]
    up, down = first, last - 1
    order[middle], order[down] = order[down], order[middle]
    while True:
        up += 1
        while values[order[up]] < pivot:
            up += 1
        down -= 1
        while pivot < values[order[down]]:
            down -= 1
        if up >= down:
            break
        order[up], order[down] = order[down], order[up]
    order[up], order[last - 1] = order[last - 1], order[up]
    return up


def _insert(values: Sequence[int], order: list[int], first: int, last: int) -> None:
    for index in range(first + 1, last + 1):
        moved, free = order[index], index
        while free > first and values[moved] < values[order[free - 1]]:
            order[free] = order[free - 1]
            free -= 1
        order[free] = moved


def rows_sorted_by_time(
    user: NDArray[np.int32], time: NDArray[np.int64], row: NDArray[np.int64]
) -> NDArray[np.int64]:
    """For each interaction its row once every user's rows, as they stand in the file, were sorted by time."""
    by_user = np.lexsort((row, user))
    starts = np.flatnonzero(np.diff(user[by_user], prepend=-1))
    order = np.empty(len(user), dtype=np.int64)
    for start, own in zip(starts.tolist(), np.split(by_user, starts[1:]), strict=True):
        order[own[unstable_order(time[own].tolist())]] = np.arange(start, start + len(own))
    return order
