"""Sets and tables over pairs of client and item, linear in the pairs they hold.

A pair is one number, client x items + item: sorted, they are found by bisection on any device. Of all
clients x items few are ever met, and a table of all of them would not fit for a million clients.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

_LARGEST_KEY = 2**63 - 1
_WORTH_SORTING = 16
"""Where fewer than one pair in so many is counted, they are sorted; else all pairs are gone through."""
_STRETCHES_PER_PAIR = 8
"""At least, and fewer than twice as many; a byte each, where a pair's number takes eight."""


def keys(client: Tensor, item: Tensor, items: int) -> Tensor:
    """The number of each pair; `client` and `item` broadcast."""
    return torch.add(item, client, alpha=items)


def check_keys(clients: int, items: int) -> None:
    """Raise `OverflowError` where pairs of so many clients and items have no numbers of 64 bits."""
    if clients * items > _LARGEST_KEY:
        raise OverflowError(f"{clients:,} clients x {items:,} items are more pairs than 64 bits can number")


def aranges(sizes: Tensor, total: int | None = None) -> Tensor:
    """0, 1, ... for each size, one after the other; a GPU is not waited for where their `total` is known."""
    ends = sizes.cumsum(0)
    if total is None:
        total = int(ends[-1]) if len(ends) else 0
    start = torch.repeat_interleave(ends - sizes, sizes, output_size=total)
    return torch.arange(total, device=sizes.device) - start


@dataclass(frozen=True)
class PairSet:
    """Some pairs of client and item: `key` holds their numbers, sorted, each once.

    `filled` tells for each stretch of `2 ** shift` numbers whether any of them is held. Most pairs that
    are asked for are not in the set, and are done with there.
    """

    clients: int
    items: int
    key: Tensor
    shift: int
    filled: Tensor

    @classmethod
    def of(cls, client: Tensor, item: Tensor, clients: int, items: int) -> Self:
        """The set of these pairs, in any order, some perhaps given twice."""
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
        """Start index in `key` of the pairs of each client, and finally the end index."""
        everyone = torch.arange(self.clients + 1, device=self.key.device)
        return torch.searchsorted(self.key, everyone * self.items)

    def sizes(self) -> Tensor:
        """Number of items of each client."""
        return self.start.diff()

    def subset(self, who: Tensor) -> Self:
        """The pairs of the clients `who` (sorted), who are numbered by their index in `who`."""
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
    """Whole numbers, clients x items, of which most are zero and not held.

    Entries lie in a few sorted runs, each at least twice as long as the next, and a number is the sum of
    its entries in all runs: what is added costs a sort of its own, and is merged into longer runs only
    when as much has come together.
    """

    def __init__(self, clients: int, items: int, device: torch.device) -> None:
        check_keys(clients, items)
        self.items = items
        self.clients = clients
        self.device = device
        self._runs: list[tuple[Tensor, Tensor]] = []

    def get(self, client: Tensor, item: Tensor) -> Tensor:
        """The number of each pair; `client` and `item` broadcast."""
        wanted = keys(client, item, self.items)
        total = torch.zeros_like(wanted)
        for key, value in self._runs:
            at, known = _positions(key, wanted)
            total[known] += value[at[known]]
        return total

    def add(self, client: Tensor, item: Tensor, value: Tensor) -> None:
        """Add `value` to the numbers of some pairs, in any order; what a pair is given twice is added up."""
        if not len(client):
            return
        key = keys(client, item, self.items)
        if not (key[1:] > key[:-1]).all():
            key, group = key.unique(return_inverse=True)
            value = value.new_zeros(len(key)).index_add_(0, group, value)
        self._append(key, value)

    def count(self, client: Tensor, item: Tensor) -> None:
        """Increment the number of each pair, as often as it is given."""
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
        """Non-zero entries of the clients `who`: index in `who`, item and number.

        Sorted by index and item.
        """
        parts = []
        for key, value in self._runs:
            at, rank = _of_clients(key, who, self.items)
            parts.append((keys(rank, key[at] % self.items, self.items), value[at]))
        key, value = _merged_all(parts, self.device)
        return key // self.items, key % self.items, value

    def clear(self, who: Tensor) -> None:
        """Let all numbers of the clients `who` be zero."""
        for key, value in self._runs:
            # Zeros are dropped when runs are merged: nothing is moved for one block of clients.
            value[_of_clients(key, who, self.items)[0]] = 0

    def sums(self) -> Tensor:
        """The sum of each client's numbers."""
        total = torch.zeros(self.clients, dtype=torch.int64, device=self.device)
        for key, value in self._runs:
            total.index_add_(0, key // self.items, value)
        return total

    def tensors(self) -> dict[str, Tensor]:
        """Everything, as one run: the same numbers are the same bytes, however they came about."""
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
    """Index in the sorted `key` of each wanted number, and whether it is present."""
    if not len(key):
        return torch.zeros_like(wanted), torch.zeros_like(wanted, dtype=torch.bool)
    at = torch.searchsorted(key, wanted)
    return at, key[at.clamp(max=len(key) - 1)] == wanted


def _of_clients(key: Tensor, who: Tensor, items: int) -> tuple[Tensor, Tensor]:
    """Indices in the sorted `key` of the pairs of the clients `who`, and the index in `who` of each."""
    first = torch.searchsorted(key, who * items)
    size = torch.searchsorted(key, (who + 1) * items) - first
    rank = torch.repeat_interleave(torch.arange(len(who), device=who.device), size)
    return first[rank] + aranges(size), rank


def _merged(key: Tensor, value: Tensor, other: Tensor, added: Tensor) -> tuple[Tensor, Tensor]:
    """One run of two; what adds up to zero is dropped."""
    at, known = _positions(key, other)
    shared = known.nonzero().squeeze(1)
    value = value.index_add(0, at[shared], added[shared])
    kept = value != 0
    if not kept.all():
        key, value = key[kept], value[kept]
        at = torch.searchsorted(key, other)
    new = (~known & (added != 0)).nonzero().squeeze(1)
    # A new key stands behind the old ones below it and the new ones before it.
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
