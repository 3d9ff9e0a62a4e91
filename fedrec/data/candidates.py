"""The items each held-out item is ranked against, drawn once and frozen.

A user's draws are an endless sequence of items, a function of (seed, user); its candidates
are the first distinct ones it never interacted with. So a list does not depend on other
users, on the number of users drawn at once, or on the machine.
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
"""Users whose candidates are drawn together at least, however many items there are."""
_DRAWS_AT_ONCE = 16 * LANES


@dataclass(frozen=True)
class Candidates:
    """For each user, the items ranked against its validation item and its test item."""

    user: NDArray[np.int32]
    validation: NDArray[np.int32]
    test: NDArray[np.int32]

    def table(self) -> pa.Table:
        """One row per user, with two lists of fixed length."""

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

    Raises `SplitError` naming the users that have too few unseen items.
    """
    users, lengths = np.unique(user, return_counts=True)
    ends = np.cumsum(lengths)
    wanted = candidates_of(protocol)
    drawn = np.empty((len(users), wanted), dtype=np.int32)
    at_once = min(len(users), max(_FEWEST_AT_ONCE, _BITMAP_BYTES // items))
    # One bitmap for all blocks of users, of which each takes back its marks: to clear it would take time by
    # users x items.
    seen = np.zeros((at_once, items), dtype=bool)
    for first in range(0, len(users), at_once):
        block = slice(first, min(first + at_once, len(users)))
        interactions = slice(ends[block][0] - lengths[block][0], ends[block][-1])
        places = np.repeat(np.arange(len(users[block])), lengths[block]), item[interactions]
        seen[places] = True
        _refuse_small_pools(users[block], lengths[block], seen, wanted, protocol, dataset)
        drawn[block] = _first_unseen(protocol.seed, users[block], seen, wanted)
        seen[places] = False
        np.put_along_axis(seen[: len(users[block])], drawn[block], False, axis=1)
    return Candidates(users, drawn[:, : protocol.candidates], drawn[:, -protocol.candidates :])


def candidates_of(protocol: Protocol) -> int:
    """How many unseen items a user needs."""
    return protocol.candidates * (2 if protocol.candidate_lists == "separate" else 1)


def _first_unseen(
    seed: int, users: NDArray[np.int32], seen: NDArray[np.bool_], wanted: int
) -> NDArray[np.int32]:
    """The first `wanted` distinct items of each user's sequence that are not in `seen`.

    Marks what it takes in `seen`. Every user must have `wanted` unseen items.
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
            place = short * items + item
            new = np.flatnonzero(~seen_flat[place] & (count[short] < wanted))
            who = short[new]
            seen_flat[place[new]] = True
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
    # Items met more than once are counted once only where that may matter.
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
