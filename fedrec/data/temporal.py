"""Splits by any protocol, including those that cut all users at one time.

A split with a cut is the leave-one-out split of fewer interactions: a user's rows before the cut time, and
its first row from then on, which is its test item. So no training row is later than the cut. Users without
enough rows on both sides are left out.
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
"""The least rows of a user before the cut time: one for training, one for validation."""


def split_by(interactions: Interactions, protocol: Protocol) -> Split:
    """Split `interactions` by `protocol`, with or without a cut time.

    Raise `SplitError` as `make_split` does, and also if a cut has no times, or no user has rows on both sides
    of it.
    """
    if protocol.cut is None:
        return make_split(interactions, protocol)
    split = make_split(interactions_split_by(interactions, protocol), protocol)
    # All users have interactions, so users without a part are dropped ones.
    return replace(split, dropped=np.setdiff1d(interactions.user, split.user))


def interactions_split_by(interactions: Interactions, protocol: Protocol) -> Interactions:
    """The interactions of which `protocol` holds out each user's last two; all, without a cut."""
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
    rows = np.concatenate((before, _first_of_users(interactions, after, protocol)))
    return _where(interactions, np.sort(rows[stays[interactions.user[rows]]]))


def rows_around(
    interactions: Interactions, protocol: Protocol, cut: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows before the time that has the share `cut` of all rows before it, and the rows from it on.

    Repeated pairs count by the rule of `protocol`. Raise `SplitError` without times.
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
    """Read a split; for one with a cut, `turns` also come from the interactions beside it."""
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
    """The rows that count: all, or only the earliest of a repeated pair."""
    if protocol.repeated_pairs == "keep":
        return np.arange(len(interactions))
    pair = interactions.user.astype(np.int64) * interactions.items + interactions.item
    earliest_first = np.lexsort((interactions.row, interactions.time, pair))
    return earliest_first[_begins(pair[earliest_first])]


def _first_of_users(
    interactions: Interactions, rows: NDArray[np.int64], protocol: Protocol
) -> NDArray[np.int64]:
    """The earliest of the given rows of each user; of equal times, the largest tie number."""
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
