"""Leave-one-out splits: each user's latest item is for test, the one before for validation.

A split is a pure function of the interactions and the protocol. If times are equal or missing, the protocol
decides which item is latest, never the stability of a sort.
"""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedrec.config.protocol import Protocol
from fedrec.data.candidates import Candidates, candidates_of, draw_candidates
from fedrec.data.interactions import Interactions, read_interactions_file
from fedrec.errors import SplitError
from fedrec.files.parquet import content_hash, read_table, write_table
from fedrec.random.purpose import Purpose
from fedrec.random.with_numpy import draw_at

PARTS = ("train", "validation", "test")
TRAIN, VALIDATION, TEST = range(3)
FEWEST_INTERACTIONS = 3
"""The least interactions of a user: one each for training, validation and test."""
MAX_SHARE_DROPPED = 0.01
"""The largest share of users that may be dropped for having nearly all items. With more, the protocol does
not suit the dataset."""


@dataclass(frozen=True)
class Split:
    """Interactions sorted by user, part and item, and the candidates of each user.

    Users keep their numbers of the interactions. `dropped` lists users outside the split, with too few
    interactions, or with too few unseen items for candidates.
    """

    dataset: str
    protocol: Protocol
    users: int
    items: int
    user: NDArray[np.int32]
    item: NDArray[np.int32]
    part: NDArray[np.int8]
    candidates: Candidates
    dropped: NDArray[np.int32]
    interactions: str
    """The content hash of the interactions."""
    find_turns: Callable[[], NDArray[np.int64]] | None = field(default=None, repr=False, compare=False)
    """The function that computes `turns`, which few methods need; None if times are unknown."""

    def turns(self) -> NDArray[np.int64]:
        """The index of each interaction in its user's order of time, 0 for the oldest; ties as in the split.

        Raise `SplitError` if the dataset has no times, since the order would then be arbitrary.
        """
        if self.find_turns is None:
            raise SplitError(
                f"{self.dataset}, {self.protocol.name}: the order of users' interactions is unknown. Use a "
                "split that was made from interactions, or a method that reads no history."
            )
        return self.find_turns()

    def table(self) -> pa.Table:
        """The table with the columns user, item and part (by name)."""
        names = pa.DictionaryArray.from_arrays(pa.array(self.part), pa.array(PARTS))
        return pa.table({"user": self.user, "item": self.item, "part": names})

    def content_hash(self) -> str:
        """The hash of training, validation and test items and candidates."""
        return content_hash(self.table(), self.candidates.table())

    def pairs_of(self, part: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Users and items of a part: training, validation or test."""
        chosen = self.part == part
        return self.user[chosen], self.item[chosen]


@dataclass(frozen=True)
class _Histories:
    """Interactions sorted by user and item.

    Of a user's interactions with equal times, the one with the smallest tie number is latest. The tie number
    is the row in the file, or with `tie_seed` a random number that does not depend on the row.
    """

    user: NDArray[np.int32]
    item: NDArray[np.int32]
    time: NDArray[np.int64]
    row: NDArray[np.int64]
    tie_seed: int | None

    def where(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> "_Histories":
        """Select interactions."""
        return _Histories(
            self.user[chosen], self.item[chosen], self.time[chosen], self.row[chosen], self.tie_seed
        )

    def ties(self) -> NDArray[np.int64]:
        """The tie number of each interaction; the smallest is the latest."""
        if self.tie_seed is None:
            return self.row
        words = draw_at(self.tie_seed, Purpose.TIES, user=self.user, index=self.item).astype(np.int64)
        # The item breaks ties of equal words; interactions of one pair are interchangeable.
        return (words << 31) | self.item


def make_split(interactions: Interactions, protocol: Protocol) -> Split:
    """Split `interactions` by `protocol`.

    Raise `SplitError` if no user has enough interactions, if too many users have too few unseen items for
    candidates, or if the paper's own order of rows is missing.
    """
    if protocol.paper in interactions.missing_row_orders:
        raise SplitError(
            f"{interactions.dataset}, {protocol.name}: the file with that paper's row order, which breaks "
            f"ties of times, is unavailable. `fedrec fetch {interactions.dataset}` shows why."
        )
    histories, part, dropped = _divided(interactions, protocol)
    user, item, part = _sorted_pairs(histories, part, interactions.items)
    return Split(
        dataset=interactions.dataset,
        protocol=protocol,
        users=interactions.users,
        items=interactions.items,
        user=user,
        item=item,
        part=part,
        candidates=draw_candidates(user, item, interactions.items, protocol, interactions.dataset),
        dropped=dropped,
        interactions=interactions.content_hash(),
        find_turns=partial(_turns, interactions, protocol),
    )


def _divided(
    interactions: Interactions, protocol: Protocol
) -> tuple[_Histories, NDArray[np.int8], NDArray[np.int32]]:
    """The interactions of the split, the part of each, and the dropped users."""
    histories = _histories_of(interactions, protocol)
    histories, too_few_items = _without_short_histories(histories)
    if not len(histories.user):
        raise SplitError(
            f"{interactions.dataset}, {protocol.name}: no user has {FEWEST_INTERACTIONS} rows, one each for "
            "training, validation and test. Use a dataset with more rows per user."
        )
    most_items = interactions.items - candidates_of(protocol)
    histories, too_many_items = _without_full_histories(histories, most_items)
    part = np.zeros(len(histories.user), dtype=np.int8)
    part[_latest(histories)] = TEST
    earlier = np.flatnonzero(part != TEST)
    part[earlier[_latest(histories.where(earlier))]] = VALIDATION
    return histories, part, np.union1d(too_few_items, too_many_items)


def _turns(interactions: Interactions, protocol: Protocol) -> NDArray[np.int64]:
    """The index of each interaction of a split in its user's order of time."""
    if not interactions.timed and protocol.no_times == "random":
        raise SplitError(
            f"{interactions.dataset}, {protocol.name}: the interactions have no times, so their order is "
            "unknown. Use a method that reads no history, or a dataset with times."
        )
    histories, part, _ = _divided(interactions, protocol)
    # Of equal times, the smallest tie number is the latest.
    oldest_first = np.lexsort((-histories.ties(), histories.time, histories.user))
    starts = _starts(histories.user)
    turns = np.empty(len(oldest_first), dtype=np.int64)
    lengths = np.diff(starts, append=len(turns))
    turns[oldest_first] = np.arange(len(turns)) - np.repeat(starts, lengths)
    return turns[np.argsort(_packed(histories, part, interactions.items), kind="stable")]


def _turns_of_file(split_hash: str, path: Path, protocol: Protocol) -> NDArray[np.int64]:
    """The `turns` of a split that was read from a file, from the interactions beside it."""
    interactions = read_interactions_file(path)
    if interactions.content_hash() != split_hash:
        raise SplitError(f"{path}: does not belong to the split beside it. Make the split again.")
    return _turns(interactions, protocol)


def write_split(split: Split, folder: Path) -> None:
    """Write split.parquet and candidates.parquet into `folder`."""
    about: dict[str, Any] = {
        "dataset": split.dataset,
        "protocol": split.protocol.as_dict(),
        "users": split.users,
        "items": split.items,
        "dropped_users": split.dropped.tolist(),
        "interactions": split.interactions,
        "split": split.content_hash(),
    }
    write_table(folder / "split.parquet", split.table(), about)
    write_table(folder / "candidates.parquet", split.candidates.table(), about)


def _protocol(folder: Path, settings: dict[str, Any]) -> Protocol:
    try:
        return Protocol(**settings)
    except TypeError as error:
        raise SplitError(
            f"{folder}: another version of fedrec made this split ({error}). Make it again: snakemake "
            "rebuilds it, or delete the folder and type `fedrec split`."
        ) from None


def read_split(folder: Path) -> Split:
    """Read files of `write_split`; raise an error if one is damaged, or belongs to another split."""
    remedy = f"Delete the folder, then: {how_to_split(folder)}"
    pairs, about = read_table(
        folder / "split.parquet",
        columns=("user", "item", "part"),
        says=("dataset", "protocol", "users", "items", "dropped_users", "interactions", "split"),
        rebuild=remedy,
    )
    listed, about_listed = read_table(
        folder / "candidates.parquet",
        columns=("user", "validation", "test"),
        says=("split",),
        rebuild=remedy,
    )
    split = Split(
        dataset=about["dataset"],
        protocol=_protocol(folder, about["protocol"]),
        users=about["users"],
        items=about["items"],
        user=pairs["user"].to_numpy(),
        item=pairs["item"].to_numpy(),
        part=pairs["part"].combine_chunks().indices.to_numpy(),
        candidates=Candidates.from_table(listed),
        dropped=np.array(about["dropped_users"], dtype=np.int32),
        interactions=about["interactions"],
    )
    split = replace(
        split,
        find_turns=partial(
            _turns_of_file, split.interactions, folder.parent / "interactions.parquet", split.protocol
        ),
    )
    if not about["split"] == about_listed["split"] == split.content_hash():
        raise SplitError(
            f"{folder}: split.parquet and candidates.parquet belong to two different splits. {remedy}"
        )
    return split


def how_to_split(folder: Path) -> str:
    """The commands that make the split in `folder`."""
    goal, data = shlex.quote(str(folder / "split.parquet")), shlex.quote(str(folder.parent))
    return (
        f"snakemake --cores 2 {goal}, or of a prepared dataset: fedrec split --data {data} --protocol "
        f"{folder.name}"
    )


def _histories_of(interactions: Interactions, protocol: Protocol) -> _Histories:
    """The interactions sorted by user and item, with time and tie number by the protocol's rules."""
    pair = interactions.user.astype(np.int64) * interactions.items + interactions.item
    order = np.argsort(pair)
    user, item = interactions.user[order], interactions.item[order]
    timed = interactions.timed or protocol.no_times == "first_appearance"
    time = interactions.time[order] if timed else np.zeros(len(order), dtype=np.int64)
    row = interactions.row_orders.get(protocol.paper or "", interactions.row)[order]
    if protocol.repeated_pairs == "drop":
        starts = _starts(pair[order])
        # An item belongs to the time of its user's first interaction with it.
        user, item, time = user[starts], item[starts], np.minimum.reduceat(time, starts)
        row = np.minimum.reduceat(row, starts)
    random = protocol.equal_times == "random" if timed else protocol.no_times == "random"
    return _Histories(user, item, time, row, protocol.seed if random else None)


def _without_short_histories(histories: _Histories) -> tuple[_Histories, NDArray[np.int32]]:
    lengths = np.diff(_starts(histories.user), append=len(histories.user))
    return _without(histories, lengths < FEWEST_INTERACTIONS)


def _without_full_histories(histories: _Histories, most_items: int) -> tuple[_Histories, NDArray[np.int32]]:
    """Drop the few users with more than `most_items` items; if they are many, all stay."""
    starts = _starts(histories.user)
    changes = np.concatenate(([True], (np.diff(histories.item) != 0) | (np.diff(histories.user) != 0)))
    too_many_items = np.add.reduceat(changes, starts, dtype=np.int64) > most_items
    # `draw_candidates` raises the error that names them.
    return _without(histories, too_many_items & (too_many_items.mean() <= MAX_SHARE_DROPPED))


def _without(histories: _Histories, dropped: NDArray[np.bool_]) -> tuple[_Histories, NDArray[np.int32]]:
    """The interactions of users that stay, and the dropped users."""
    starts = _starts(histories.user)
    if not dropped.any():
        return histories, np.array([], dtype=np.int32)
    stays = np.repeat(~dropped, np.diff(starts, append=len(histories.user)))
    return histories.where(stays), histories.user[starts[dropped]]


def _latest(histories: _Histories) -> NDArray[np.int64]:
    """The index of each user's latest interaction, with ties broken."""
    starts = _starts(histories.user)
    lengths = np.diff(starts, append=len(histories.user))
    newest = np.repeat(np.maximum.reduceat(histories.time, starts), lengths)
    latest = np.flatnonzero(histories.time == newest)
    tied = histories.where(latest)
    ties = tied.ties()
    starts = _starts(tied.user)
    lengths = np.diff(starts, append=len(tied.user))
    first = np.flatnonzero(ties == np.repeat(np.minimum.reduceat(ties, starts), lengths))
    # Repeated pairs share one random tie number, and are interchangeable.
    return latest[first[_starts(tied.user[first])]]


def _sorted_pairs(
    histories: _Histories, part: NDArray[np.int8], items: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int8]]:
    """User, item and part of each interaction, sorted by user, part and item."""
    packed, item = np.divmod(np.sort(_packed(histories, part, items)), items)
    user, part_ = np.divmod(packed, len(PARTS))
    return user.astype(np.int32), item.astype(np.int32), part_.astype(np.int8)


def _packed(histories: _Histories, part: NDArray[np.int8], items: int) -> NDArray[np.int64]:
    """User, part and item of each interaction as one number with the same order."""
    packed: NDArray[np.int64] = (histories.user.astype(np.int64) * len(PARTS) + part) * items + histories.item
    return packed


def _starts(values: NDArray[Any]) -> NDArray[np.int64]:
    """The index at which each run of equal neighbours begins."""
    changes = np.flatnonzero(values[1:] != values[:-1]) + 1
    return np.concatenate(([0], changes)) if len(values) else changes
