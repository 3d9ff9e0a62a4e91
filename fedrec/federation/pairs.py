"""Sets and tables over pairs of client and item, whose memory is linear in their number of pairs.

A pair is one number, the key client x items + item. Sorted keys are found by bisection on any device. Few of
all clients x items pairs occur, and for a million clients a dense table would not fit into memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

_LARGEST_KEY = 2**63 - 1
_WORTH_SORTING = 16
"""If fewer than one pair in so many is counted, the keys are sorted; otherwise a dense table counts them."""
_STRETCHES_PER_PAIR = 8
"""Bytes of the bitmap per pair: at least this, less than twice. A key takes eight bytes."""


def keys(client: Tensor, item: Tensor, items: int) -> Tensor:
    """The key of each pair; `client` and `item` broadcast."""
    return torch.add(item, client, alpha=items)


def check_keys(clients: int, items: int) -> None:
    """Raise `OverflowError` if the keys of all pairs exceed 64 bits."""
    if clients * items > _LARGEST_KEY:
        raise OverflowError(f"{clients:,} clients x {items:,} items are more pairs than 64 bits can number")


def aranges(sizes: Tensor, total: int | None = None) -> Tensor:
    """Concatenate 0, 1, ..., size - 1 for each size; if `total` is given, the CPU does not wait for a GPU."""
    ends = sizes.cumsum(0)
    if total is None:
        total = int(ends[-1]) if len(ends) else 0
    start = torch.repeat_interleave(ends - sizes, sizes, output_size=total)
    return torch.arange(total, device=sizes.device) - start


@dataclass(frozen=True)
class PairSet:
    """A set of pairs of client and item: `key` has their keys, sorted and distinct.

    `filled` says for each range of `2 ** shift` keys whether it has any. This settles most queries, since
    most pairs that callers ask for are not in the set.
    """

    clients: int
    items: int
    key: Tensor
    shift: int
    filled: Tensor

    @classmethod
    def of(cls, client: Tensor, item: Tensor, clients: int, items: int) -> Self:
        """Make the set of these pairs, in any order, possibly with duplicates."""
        check_keys(clients, items)
        return cls._of_keys(clients, items, keys(client, item, items).unique())

    def holds(self, client: Tensor, item: Tensor) -> Tensor:
        """Whether each pair is in the set; `client` and `item` broadcast."""
        wanted = keys(client, item, self.items).contiguous()
        held = self.filled[wanted >> self.shift]
        perhaps = held.view(-1).nonzero().squeeze(1)
        held.view(-1)[perhaps] = _positions(self.key, wanted.view(-1)[perhaps])[1]
        return held

    @cached_property
    def start(self) -> Tensor:
        """Index in `key` of each client's first pair, then the end index: (clients + 1)."""
        everyone = torch.arange(self.clients + 1, device=self.key.device)
        return torch.searchsorted(self.key, everyone * self.items)

    def sizes(self) -> Tensor:
        """The number of items of each client."""
        return self.start.diff()

    def subset(self, who: Tensor) -> Self:
        """The pairs of the clients `who` (sorted); a client's index in `who` is its new number."""
        at, rank = _of_clients(self.key, who, self.items)
        return self._of_keys(len(who), self.items, keys(rank, self.key[at] % self.items, self.items))

    @classmethod
    def _of_keys(cls, clients: int, items: int, key: Tensor) -> Self:
        stretches = _STRETCHES_PER_PAIR * max(1, len(key))
        shift = max(0, (clients * items // stretches).bit_length() - 1)
        filled = torch.zeros((clients * items >> shift) + 1, dtype=torch.bool, device=key.device)
        filled[key >> shift] = True
        return cls(clients, items, key, shift, filled)


class PairTable:
    """A sparse table of whole numbers (clients, items), of which most are zero.

    Entries lie in a few sorted runs, each at least twice as long as the next. A number is the sum of its
    entries in all runs. `add` sorts only the new entries; a run is merged into a longer one when it has
    become as long as half of it.
    """

    def __init__(self, clients: int, items: int, device: torch.device) -> None:
        check_keys(clients, items)
        self.items = items
        self.clients = clients
        self.device = device
        self._runs: list[tuple[Tensor, Tensor]] = []

    def get(self, client: Tensor, item: Tensor) -> Tensor:
        """The value of each pair; `client` and `item` broadcast."""
        wanted = keys(client, item, self.items)
        total = torch.zeros_like(wanted)
        for key, value in self._runs:
            at, known = _positions(key, wanted)
            total[known] += value[at[known]]
        return total

    def add(self, client: Tensor, item: Tensor, value: Tensor) -> None:
        """Add `value` to the numbers of some pairs, in any order; the values of duplicates add up."""
        if not len(client):
            return
        key = keys(client, item, self.items)
        if not (key[1:] > key[:-1]).all():
            key, group = key.unique(return_inverse=True)
            value = value.new_zeros(len(key)).index_add_(0, group, value)
        self._append(key, value)

    def count(self, client: Tensor, item: Tensor) -> None:
        """Increment the number of each pair, once per occurrence."""
        if not len(client):
            return
        key = keys(client, item, self.items)
        if self.clients * self.items > _WORTH_SORTING * len(key):
            self._append(*key.unique(return_counts=True))
        else:
            number = torch.bincount(key)
            key = number.nonzero().squeeze(1)
            self._append(key, number[key])

    def entries(self, who: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The non-zero entries of the clients `who`, sorted: index in `who`, item and number."""
        parts = []
        for key, value in self._runs:
            at, rank = _of_clients(key, who, self.items)
            parts.append((keys(rank, key[at] % self.items, self.items), value[at]))
        key, value = _merged_all(parts, self.device)
        return key // self.items, key % self.items, value

    def clear(self, who: Tensor) -> None:
        """Set all numbers of the clients `who` to zero."""
        for key, value in self._runs:
            # Merging drops zeros later, so clearing moves no entry.
            value[_of_clients(key, who, self.items)[0]] = 0

    def sums(self) -> Tensor:
        """The sum of each client's numbers."""
        total = torch.zeros(self.clients, dtype=torch.int64, device=self.device)
        for key, value in self._runs:
            total.index_add_(0, key // self.items, value)
        return total

    def tensors(self) -> dict[str, Tensor]:
        """The table as one run, for a file; equal tables give equal bytes, whatever their history."""
        key, value = _merged_all(self._runs, self.device)
        self._runs = [(key, value)] if len(key) else []
        return {"/key": key, "/value": value}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore from the result of `tensors()`."""
        key, value = (tensors[name].to(self.device) for name in ("/key", "/value"))
        self._runs = [(key, value)] if len(key) else []

    def _append(self, key: Tensor, value: Tensor) -> None:
        self._runs.append((key, value))
        while len(self._runs) > 1 and 2 * len(self._runs[-1][0]) > len(self._runs[-2][0]):
            last = self._runs.pop()
            self._runs[-1] = _merged(*self._runs[-1], *last)


def _positions(key: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """The index in the sorted `key` of each wanted key, and whether it is present."""
    if not len(key):
        return torch.zeros_like(wanted), torch.zeros_like(wanted, dtype=torch.bool)
    at = torch.searchsorted(key, wanted)
    return at, key[at.clamp(max=len(key) - 1)] == wanted


def _of_clients(key: Tensor, who: Tensor, items: int) -> tuple[Tensor, Tensor]:
    """The indices in the sorted `key` of the pairs of the clients `who`, and each one's index in `who`."""
    first = torch.searchsorted(key, who * items)
    size = torch.searchsorted(key, (who + 1) * items) - first
    rank = torch.repeat_interleave(torch.arange(len(who), device=who.device), size)
    return first[rank] + aranges(size), rank


def _merged(key: Tensor, value: Tensor, other: Tensor, added: Tensor) -> tuple[Tensor, Tensor]:
    """Merge two runs, without entries that add up to zero."""
    at, known = _positions(key, other)
    shared = known.nonzero().squeeze(1)
    value = value.index_add(0, at[shared], added[shared])
    kept = value != 0
    if not kept.all():
        key, value = key[kept], value[kept]
        at = torch.searchsorted(key, other)
    new = (~known & (added != 0)).nonzero().squeeze(1)
    # The index of a new key is the number of old keys below it plus the number of new keys before it.
    place = at[new] + torch.arange(len(new), device=key.device)
    is_old = torch.ones(len(key) + len(new), dtype=torch.bool, device=key.device)
    is_old[place] = False
    old_place = is_old.nonzero().squeeze(1)
    whole_key, whole_value = (old.new_empty(len(is_old)) for old in (key, value))
    for whole, old, more in ((whole_key, key, other), (whole_value, value, added)):
        whole.index_copy_(0, old_place, old).index_copy_(0, place, more[new])
    return whole_key, whole_value


def _merged_all(runs: list[tuple[Tensor, Tensor]], device: torch.device) -> tuple[Tensor, Tensor]:
    nothing = torch.empty(0, dtype=torch.int64, device=device)
    key, value = nothing, nothing
    for run in reversed(runs):
        key, value = _merged(*run, key, value)
    return key, value
