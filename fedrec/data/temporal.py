"""Splits by any protocol, those at one time for all users among them: nothing later than it is trained on.

Such a split is the leave-one-out split of fewer interactions: of a user's rows those before the time, and the
first from it on, which is its test item. Users without enough rows on both sides take no part.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrec.config.protocol import Protocol
from fedrec.data.interactions import Interactions, read_interactions_file
from fedrec.data.split import FEWEST_INTERACTIONS, Split, make_split, read_split
from fedrec.errors import SplitError
from fedrec.random.purpose import Purpose
from fedrec.random.with_numpy import draw_at

FEWEST_BEFORE = FEWEST_INTERACTIONS - 1
"""Rows before the time of the cut that a user needs: one for training, one for validation."""


def split_by(interactions: Interactions, protocol: Protocol) -> Split:
    """Split `interactions` by `protocol`, with a cut in time or without.

    Raises `SplitError` as `make_split` does, and where there are no times for a cut, or no user has rows on
    both sides of it.
    """
    if protocol.cut is None:
        return make_split(interactions, protocol)
    split = make_split(interactions_split_by(interactions, protocol), protocol)
    # All users have interactions: those that are in no part of the split are left out.
    return replace(split, dropped=np.setdiff1d(interactions.user, split.user))


def interactions_split_by(interactions: Interactions, protocol: Protocol) -> Interactions:
    """The interactions of which `protocol` holds out each user's last two: all, where it has no cut."""
    if protocol.cut is None:
        return interactions
    before, after = rows_around(interactions, protocol, protocol.cut)
    stays = np.bincount(interactions.user[before], minlength=interactions.users) >= FEWEST_BEFORE
    stays &= np.bincount(interactions.user[after], minlength=interactions.users) > 0
    if not stays.any():
        raise SplitError(
            f"{interactions.dataset}, {protocol.name}: no user has {FEWEST_BEFORE} rows before the cut time "
            f"({protocol.cut} of all rows) and one after it. Change `cut` in the protocol."
        )
    kept = np.concatenate((before, _first_of_users(interactions, after, protocol)))
    return _where(interactions, np.sort(kept[stays[interactions.user[kept]]]))


def rows_around(
    interactions: Interactions, protocol: Protocol, cut: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows before the time that splits off the share `cut` of all rows, and those from it on.

    Repeated pairs count as `protocol` says. Raises `SplitError` where there are no times.
    """
    if not interactions.timed:
        raise SplitError(
            f"{interactions.dataset}, {protocol.name}: the interactions have no times, so no cut time "
            "exists. Use a protocol without `cut`, or a dataset with times."
        )
    rows = _counted_rows(interactions, protocol)
    time = interactions.time[rows]
    is_before = time < np.sort(time)[int(cut * len(time))]
    return rows[is_before], rows[~is_before]


def split_in(folder: Path) -> Split:
    """Read a split; the order of time of one with a cut is found in the interactions beside it, too."""
    split = read_split(folder)
    if split.protocol.cut is None:
        return split
    return replace(split, find_turns=partial(_turns_of_file, split, folder.parent / "interactions.parquet"))


def _turns_of_file(split: Split, path: Path) -> NDArray[np.int64]:
    again = split_by(read_interactions_file(path), split.protocol)
    if again.content_hash() != split.content_hash():
        raise SplitError(f"{path}: does not belong to the split beside it. Make the split again.")
    return again.turns()


def _counted_rows(interactions: Interactions, protocol: Protocol) -> NDArray[np.int64]:
    """The rows that count: all, or of a repeated pair the earliest."""
    if protocol.repeated_pairs == "keep":
        return np.arange(len(interactions))
    pair = interactions.user.astype(np.int64) * interactions.items + interactions.item
    earliest_first = np.lexsort((interactions.row, interactions.time, pair))
    return earliest_first[_begins(pair[earliest_first])]


def _first_of_users(
    interactions: Interactions, rows: NDArray[np.int64], protocol: Protocol
) -> NDArray[np.int64]:
    """Of some rows the earliest of each user. Ties are those of a split, where the smallest is the latest."""
    user, item = interactions.user[rows], interactions.item[rows]
    if protocol.equal_times == "first_row":
        tie = interactions.row_orders.get(protocol.paper or "", interactions.row)[rows]
    else:
        tie = draw_at(protocol.seed, Purpose.TIES, user=user, index=item).astype(np.int64)
    earliest_first = rows[np.lexsort((-item, -tie, interactions.time[rows], user))]
    return earliest_first[_begins(interactions.user[earliest_first])]


def _begins(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether a run of equal neighbours begins here."""
    begins: NDArray[np.bool_] = np.diff(values, prepend=-1) != 0
    return begins


def _where(interactions: Interactions, rows: NDArray[np.int64]) -> Interactions:
    columns = {name: getattr(interactions, name)[rows] for name in ("user", "item", "rating", "time", "row")}
    orders = {paper: order[rows] for paper, order in interactions.row_orders.items()}
    return replace(interactions, **columns, row_orders=orders)
