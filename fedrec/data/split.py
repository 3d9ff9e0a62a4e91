"""Leave-one-out: each user's latest item is for test, the one before for validation.

A split is a pure function of the interactions and the protocol. What "latest" means where
times tie or are missing is the protocol's choice, never an accident of a sort.
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
"""One interaction each for training, validation and test."""
MAX_SHARE_DROPPED = 0.01
"""The largest share of users dropped for knowing nearly all items; where more do, the protocol does not suit
the dataset."""


@dataclass(frozen=True)
class Split:
    """Interactions sorted by user, part and item, and the candidates of each user.

    Users keep the numbers they have in the interactions; `dropped` are those with too few
    interactions to be split, or too few unseen items to be candidates, who take no part.
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
    """Content hash of the interactions."""
    find_turns: Callable[[], NDArray[np.int64]] | None = field(default=None, repr=False, compare=False)
    """What finds `turns`, which few methods ask for; None where nothing is known of times."""

    def turns(self) -> NDArray[np.int64]:
        """Of each interaction its place in its user's order of time, 0 for the oldest; ties as in the split.

        Raises `SplitError` where the dataset has no times, so that its order would be an accident.
        """
        if self.find_turns is None:
            raise SplitError(
                f"{self.dataset}, {self.protocol.name}: the order of users' interactions is unknown. Use a "
                "split that was made from interactions, or a method that reads no history."
            )
        return self.find_turns()

    def table(self) -> pa.Table:
        """The columns user, item and part (by name)."""
        names = pa.DictionaryArray.from_arrays(pa.array(self.part), pa.array(PARTS))
        return pa.table({"user": self.user, "item": self.item, "part": names})

    def content_hash(self) -> str:
        """Fingerprint of training, validation and test items and candidates."""
        return content_hash(self.table(), self.candidates.table())

    def pairs_of(self, part: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Users and items of a part: training, validation or test."""
        chosen = self.part == part
        return self.user[chosen], self.item[chosen]


@dataclass(frozen=True)
class _Histories:
    """Interactions sorted by user and item.

    Of interactions with the same user and time, the one with the smallest tie counts as latest: its
    row in the file, or with `tie_seed` a random number that does not depend on that row.
    """

    user: NDArray[np.int32]
    item: NDArray[np.int32]
    time: NDArray[np.int64]
    row: NDArray[np.int64]
    tie_seed: int | None

    def where(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> "_Histories":
        """The chosen interactions."""
        return _Histories(
            self.user[chosen], self.item[chosen], self.time[chosen], self.row[chosen], self.tie_seed
        )

    def ties(self) -> NDArray[np.int64]:
        """The number that settles ties of each interaction: the smallest is the latest."""
        if self.tie_seed is None:
            return self.row
        words = draw_at(self.tie_seed, Purpose.TIES, user=self.user, index=self.item).astype(np.int64)
        # Equal words are settled by the item; interactions of the same pair are alike in all that matters.
        return (words << 31) | self.item


def make_split(interactions: Interactions, protocol: Protocol) -> Split:
    """Split `interactions` by `protocol`.

    Raises `SplitError` if no user has enough interactions, more than a few users have too few unseen items
    for the candidates, or the paper's own order of rows is missing.
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
    """The interactions that take part, the part of each, and the users that take none."""
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
    """The place in its user's order of time of each interaction of a split, in the split's order."""
    if not interactions.timed and protocol.no_times == "random":
        raise SplitError(
            f"{interactions.dataset}, {protocol.name}: the interactions have no times, so their order is "
            "unknown. Use a method that reads no history, or a dataset with times."
        )
    histories, part, _ = _divided(interactions, protocol)
    # Of equal times the smallest tie is the latest.
    oldest_first = np.lexsort((-histories.ties(), histories.time, histories.user))
    starts = _starts(histories.user)
    places = np.empty(len(oldest_first), dtype=np.int64)
    lengths = np.diff(starts, append=len(places))
    places[oldest_first] = np.arange(len(places)) - np.repeat(starts, lengths)
    return places[np.argsort(_packed(histories, part, interactions.items), kind="stable")]


def _turns_of_file(split_hash: str, path: Path, protocol: Protocol) -> NDArray[np.int64]:
    """The same of a split that was read, from the interactions that it was made from."""
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
    """Read back what `write_split` wrote; a file that is damaged, or of another split, is an error."""
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
    """How the split in `folder` is made."""
    asked, data = shlex.quote(str(folder / "split.parquet")), shlex.quote(str(folder.parent))
    return (
        f"snakemake --cores 2 {asked}, or of a prepared dataset: fedrec split --data {data} --protocol "
        f"{folder.name}"
    )


def _histories_of(interactions: Interactions, protocol: Protocol) -> _Histories:
    """The interactions that take part, sorted by user and item, with time and tie as the protocol says."""
    pair = interactions.user.astype(np.int64) * interactions.items + interactions.item
    order = np.argsort(pair)
    user, item = interactions.user[order], interactions.item[order]
    timed = interactions.timed or protocol.no_times == "first_appearance"
    time = interactions.time[order] if timed else np.zeros(len(order), dtype=np.int64)
    row = interactions.row_orders.get(protocol.paper or "", interactions.row)[order]
    if protocol.repeated_pairs == "drop":
        starts = _starts(pair[order])
        # An item belongs to the time the user first met it.
        user, item, time = user[starts], item[starts], np.minimum.reduceat(time, starts)
        row = np.minimum.reduceat(row, starts)
    random = protocol.equal_times == "random" if timed else protocol.no_times == "random"
    return _Histories(user, item, time, row, protocol.seed if random else None)


def _without_short_histories(histories: _Histories) -> tuple[_Histories, NDArray[np.int32]]:
    lengths = np.diff(_starts(histories.user), append=len(histories.user))
    return _without(histories, lengths < FEWEST_INTERACTIONS)


def _without_full_histories(histories: _Histories, most_items: int) -> tuple[_Histories, NDArray[np.int32]]:
    """Without the few users who know more than `most_items`; where they are many, all stay."""
    starts = _starts(histories.user)
    changes = np.concatenate(([True], (np.diff(histories.item) != 0) | (np.diff(histories.user) != 0)))
    too_many_items = np.add.reduceat(changes, starts, dtype=np.int64) > most_items
    # `draw_candidates` says who they are and what to do.
    return _without(histories, too_many_items & (too_many_items.mean() <= MAX_SHARE_DROPPED))


def _without(histories: _Histories, dropped: NDArray[np.bool_]) -> tuple[_Histories, NDArray[np.int32]]:
    """The interactions of the users that stay, and the users that do not."""
    starts = _starts(histories.user)
    if not dropped.any():
        return histories, np.array([], dtype=np.int32)
    stays = np.repeat(~dropped, np.diff(starts, append=len(histories.user)))
    return histories.where(stays), histories.user[starts[dropped]]


def _latest(histories: _Histories) -> NDArray[np.int64]:
    """The index of each user's latest interaction, ties settled."""
    starts = _starts(histories.user)
    lengths = np.diff(starts, append=len(histories.user))
    newest = np.repeat(np.maximum.reduceat(histories.time, starts), lengths)
    latest = np.flatnonzero(histories.time == newest)
    tied = histories.where(latest)
    ties = tied.ties()
    starts = _starts(tied.user)
    lengths = np.diff(starts, append=len(tied.user))
    first = np.flatnonzero(ties == np.repeat(np.minimum.reduceat(ties, starts), lengths))
    # Repeated pairs under random ties share one tie: any of them stands for all.
    return latest[first[_starts(tied.user[first])]]


def _sorted_pairs(
    histories: _Histories, part: NDArray[np.int8], items: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int8]]:
    """User, item and part of each interaction, sorted by user, part and item."""
    packed, item = np.divmod(np.sort(_packed(histories, part, items)), items)
    user, part_ = np.divmod(packed, len(PARTS))
    return user.astype(np.int32), item.astype(np.int32), part_.astype(np.int8)


def _packed(histories: _Histories, part: NDArray[np.int8], items: int) -> NDArray[np.int64]:
    """User, part and item of each interaction as one number, which sorts as they do."""
    packed: NDArray[np.int64] = (histories.user.astype(np.int64) * len(PARTS) + part) * items + histories.item
    return packed


def _starts(values: NDArray[Any]) -> NDArray[np.int64]:
    """Where each run of equal neighbours begins."""
    changes = np.flatnonzero(values[1:] != values[:-1]) + 1
    return np.concatenate(([0], changes)) if len(values) else changes
