"""Candidates: the items that each held-out item is ranked against, drawn once.

A user's draws are an endless sequence of items, a function of seed and user. Its candidates are the first
distinct items of the sequence that it never interacted with. So a list depends neither on other users, nor on
the number of users drawn at once, nor on the machine.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedrec.config.protocol import Protocol
from fedrec.errors import SplitError
from fedrec.random.purpose import LANES, Purpose
from fedrec.random.with_numpy import below, draws

_BITMAP_BYTES = 64 * 1024**2
_FEWEST_AT_ONCE = 256
"""The least number of users whose candidates are drawn at once, however many items exist."""
_DRAWS_AT_ONCE = 16 * LANES


@dataclass(frozen=True)
class Candidates:
    """The candidates of each user for its validation item and its test item."""

    user: NDArray[np.int32]
    validation: NDArray[np.int32]
    test: NDArray[np.int32]

    def table(self) -> pa.Table:
        """The table with one row per user and two lists of fixed length."""

        def lists(values: NDArray[np.int32]) -> pa.Array:
            return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])

        return pa.table({"user": self.user, "validation": lists(self.validation), "test": lists(self.test)})

    @classmethod
    def from_table(cls, table: pa.Table) -> Self:
        """The inverse of `table`."""

        def values(name: str) -> NDArray[np.int32]:
            column = table[name].combine_chunks()
            flat: NDArray[np.int32] = column.flatten().to_numpy()
            return flat.reshape(len(table), column.type.list_size)

        return cls(table["user"].to_numpy(), values("validation"), values("test"))


def draw_candidates(
    user: NDArray[np.int32], item: NDArray[np.int32], items: int, protocol: Protocol, dataset: str
) -> Candidates:
    """Draw the lists for every user in `user` (sorted; with `item`, all their interactions).

    Raise `SplitError` if users have too few unseen items.
    """
    users, lengths = np.unique(user, return_counts=True)
    ends = np.cumsum(lengths)
    wanted = candidates_of(protocol)
    drawn = np.empty((len(users), wanted), dtype=np.int32)
    at_once = min(len(users), max(_FEWEST_AT_ONCE, _BITMAP_BYTES // items))
    # All blocks of users share one bitmap, and each block resets its own marks: clearing all would take time
    # proportional to users x items.
    seen = np.zeros((at_once, items), dtype=bool)
    for first in range(0, len(users), at_once):
        block = slice(first, min(first + at_once, len(users)))
        interactions = slice(ends[block][0] - lengths[block][0], ends[block][-1])
        marks = np.repeat(np.arange(len(users[block])), lengths[block]), item[interactions]
        seen[marks] = True
        _refuse_small_pools(users[block], lengths[block], seen, wanted, protocol, dataset)
        drawn[block] = _first_unseen(protocol.seed, users[block], seen, wanted)
        seen[marks] = False
        np.put_along_axis(seen[: len(users[block])], drawn[block], False, axis=1)
    return Candidates(users, drawn[:, : protocol.candidates], drawn[:, -protocol.candidates :])


def candidates_of(protocol: Protocol) -> int:
    """The number of unseen items that a user needs."""
    return protocol.candidates * (2 if protocol.candidate_lists == "separate" else 1)


def _first_unseen(
    seed: int, users: NDArray[np.int32], seen: NDArray[np.bool_], wanted: int
) -> NDArray[np.int32]:
    """The first `wanted` distinct items of each user's sequence that are not in `seen`.

    It marks the chosen items in `seen`. Every user must have `wanted` unseen items.
    """
    items = seen.shape[1]
    seen_flat = seen.ravel()
    taken = np.empty((len(users), wanted), dtype=np.int32)
    count = np.zeros(len(users), dtype=np.int64)
    short = np.arange(len(users))
    first = 0
    while len(short):
        words = draws(seed, Purpose.CANDIDATES, user=users[short], first=first, count=_DRAWS_AT_ONCE)
        for item in np.ascontiguousarray(below(words, items).T):
            pair = short * items + item
            new = np.flatnonzero(~seen_flat[pair] & (count[short] < wanted))
            who = short[new]
            seen_flat[pair[new]] = True
            taken[who, count[who]] = item[new]
            count[who] += 1
        short = short[count[short] < wanted]
        first += _DRAWS_AT_ONCE
    return taken


def _refuse_small_pools(
    users: NDArray[np.int32],
    lengths: NDArray[np.int64],
    seen: NDArray[np.bool_],
    wanted: int,
    protocol: Protocol,
    dataset: str,
) -> None:
    items = seen.shape[1]
    # Repeated items are counted once, but only for users where that may matter.
    perhaps = np.flatnonzero(items - lengths < wanted)
    unseen = items - np.count_nonzero(seen[perhaps], axis=1)
    if (unseen >= wanted).all():
        return
    worst = int(np.argmin(unseen))
    raise SplitError(
        f"{dataset}, {protocol.name}: {np.count_nonzero(unseen < wanted):,} users have too few unrated "
        f"items for {wanted} candidates. User {users[perhaps[worst]]} has {unseen[worst]} of {items} items. "
        f"Lower 'candidates' ({protocol.candidates}) in the protocol, or use a sparser dataset."
    )
