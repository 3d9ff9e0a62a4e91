"""Sparse client state of an item table, which stores only the rows that have changed."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from fedrec.federation.pairs import PairTable
from fedrec.federation.state.client_tensor import ClientTensor

_SLAB = 1 << 18
"""Number of rows in a slab. A store grows slab by slab without a copy."""


class SparseRowsTensor(ClientTensor):
    """A table of every client as "common start x factor + changed rows".

    The start of a client is one of a few whole tables (`bases`), the server's table of some round. Only
    changed rows of the (clients, items, d) numbers are stored, in `slabs`. `slot` maps a pair of client and
    item to the position of its row, counted from 1.
    """

    def __init__(self, value: Tensor, clients: int) -> None:
        device = value.device
        self.bases = value.unsqueeze(0).clone()
        self.version = torch.zeros(clients, dtype=torch.int64, device=device)
        self.factor = torch.ones(clients, dtype=torch.float64, device=device)
        self.slot = PairTable(clients, len(value), device)
        self.slabs: list[Tensor] = []
        self.used = 0
        self.free = torch.empty(0, dtype=torch.int64, device=device)

    @override
    def whole(self, who: Tensor) -> Tensor:
        tables = self.bases[self.version[who]]
        tables.mul_(self.factor[who].to(tables.dtype)[:, None, None])
        index, item, slot = self.slot.entries(who)
        tables[index, item] = self._read(slot - 1)
        return tables

    @override
    def view(self, span: slice) -> Tensor:
        return self.whole(torch.arange(span.start, span.stop, device=self.version.device))

    @override
    def put(self, who: Tensor, values: Tensor) -> None:
        items = self.bases.shape[1]
        item = torch.arange(items, device=who.device).repeat(len(who))
        self.put_rows(who.repeat_interleave(items), item, values.flatten(0, 1))

    @override
    def modify(self, who: Tensor, change: Callable[[Tensor], None]) -> None:
        some = self.whole(who)
        change(some.flatten(1))
        self.put(who, some)

    @override
    def rows(self, who: Tensor, item: Tensor) -> Tensor:
        start = self.version[who] * self.bases.shape[1] + item
        rows = functional.embedding(start.reshape(-1), self.bases.flatten(0, 1))
        if (self.factor != 1).any():
            rows.mul_(self.factor[who].to(rows.dtype).reshape(-1, 1))
        place = self.slot.get(who, item).reshape(-1) - 1
        changed = (place >= 0).nonzero().squeeze(1)
        rows.index_copy_(0, changed, self._read(place[changed]))
        return rows.reshape(*who.shape, -1)

    @override
    def put_rows(self, who: Tensor, item: Tensor, rows: Tensor) -> None:
        place = self.slot.get(who, item) - 1
        new = place < 0
        place[new] = self._allocate(int(new.sum()))
        self.slot.add(who[new], item[new], place[new] + 1)
        for slab, inside, row in self._by_slab(place):
            slab[row] = rows[inside]

    @override
    def scale(self, who: Tensor, factor: Tensor) -> None:
        self.factor[who] *= factor.double()
        for clients, by in zip(who.split(256), factor.split(256), strict=True):
            index, _, slot = self.slot.entries(clients)
            rate = by[index].to(self.bases.dtype).unsqueeze(1)
            for slab, inside, row in self._by_slab(slot - 1):
                slab[row] *= rate[inside]

    @override
    def fill(self, who: Tensor, value: Tensor) -> None:
        self.free = torch.cat((self.free, self.slot.entries(who)[2] - 1))
        self.slot.clear(who)
        self.factor[who] = 1
        if not torch.equal(self.bases[-1], value):
            # Only the first block of clients in a round adds a base.
            self.bases = torch.cat((self.bases, value.unsqueeze(0)))
        self.version[who] = len(self.bases) - 1
        alive, self.version = torch.unique(self.version, return_inverse=True)
        self.bases = self.bases[alive]

    @override
    def tensors(self) -> dict[str, Tensor]:
        slot = self.slot.tensors()
        return _stored(
            self.bases,
            self.slabs,
            version=self.version,
            factor=self.factor,
            used=self.used,
            free=self.free,
            key=slot["/key"],
            value=slot["/value"],
        )

    @override
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        device = self.bases.device
        self.bases, self.version, self.factor, self.free = (
            tensors[f"/{name}"].to(device) for name in ("bases", "version", "factor", "free")
        )
        self.used = int(tensors["/used"])
        self.slot.load({name.removeprefix("/slot"): value for name, value in tensors.items()})
        self.slabs = [slab.to(device) for slab in _slabs(tensors)]

    def _read(self, place: Tensor) -> Tensor:
        rows = self.bases.new_empty(len(place), self.bases.shape[2])
        for slab, inside, row in self._by_slab(place):
            rows[inside] = slab[row]
        return rows

    def _by_slab(self, place: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Each slab with any row of `place`, the indices of these in `place`, and their rows in the slab."""
        # New rows, or all rows of some clients, are usually in order.
        in_order = bool((place[1:] > place[:-1]).all())
        order = torch.arange(len(place), device=place.device) if in_order else torch.argsort(place)
        counts = torch.bincount(place // _SLAB, minlength=len(self.slabs)).tolist()
        for slab, inside in zip(self.slabs, order.split(counts), strict=True):
            if len(inside):
                yield slab, inside, place[inside] % _SLAB

    def _allocate(self, count: int) -> Tensor:
        reused, self.free = self.free[:count], self.free[count:]
        fresh = count - len(reused)
        new = torch.arange(self.used, self.used + fresh, device=self.bases.device)
        self.used += fresh
        while self.used > _SLAB * len(self.slabs):
            # Zeros instead of uninitialised memory, because files store slabs.
            self.slabs.append(self.bases.new_zeros(_SLAB, self.bases.shape[2]))
        return torch.cat((reused, new))


def merge_rows(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Merge the file contents of the stores of all `parts` into those of one store."""
    bases: list[Tensor] = []
    columns: dict[str, list[Tensor]] = {name: [] for name in ("version", "factor", "free", "key", "value")}
    slabs: list[Tensor] = []
    clients = used = 0
    for part in parts:
        first = _SLAB * len(slabs)
        # Rows at the end of a slab are free if another slab follows.
        columns["free"] += [torch.arange(used, first), part["/free"] + first]
        number = torch.tensor([_index_in(bases, base) for base in part["/bases"]])
        columns["version"].append(number[part["/version"]])
        columns["factor"].append(part["/factor"])
        columns["key"].append(part["/slot/key"] + clients * part["/bases"].shape[1])
        columns["value"].append(part["/slot/value"] + first)
        slabs += _slabs(part)
        clients += len(part["/version"])
        used = first + int(part["/used"])
    whole = {name: torch.cat(each) for name, each in columns.items()}
    return _stored(torch.stack(bases), slabs, used=used, **whole)


def split_rows(whole: Mapping[str, Tensor], some: slice) -> dict[str, Tensor]:
    """Select the file contents of consecutive clients from those of a store of all clients."""
    bases, key = whole["/bases"], whole["/slot/key"]
    items = bases.shape[1]
    first, last = torch.searchsorted(key, torch.tensor([some.start * items, some.stop * items])).tolist()
    place = whole["/slot/value"][first:last] - 1
    rows = bases.new_empty(len(place), bases.shape[2])
    for number, slab in enumerate(_slabs(whole)):
        inside = place // _SLAB == number
        rows[inside] = slab[place[inside] % _SLAB]
    slabs = [functional.pad(part, (0, 0, 0, _SLAB - len(part))) for part in rows.split(_SLAB) if len(part)]
    return _stored(
        bases,
        slabs,
        version=whole["/version"][some],
        factor=whole["/factor"][some],
        used=len(rows),
        free=place[:0],
        key=key[first:last] - some.start * items,
        value=torch.arange(1, len(rows) + 1),
    )


def _index_in(bases: list[Tensor], base: Tensor) -> int:
    """The index of a table in `bases`; a new table is appended."""
    for number, known in enumerate(bases):
        if torch.equal(known, base):
            return number
    bases.append(base)
    return len(bases) - 1


def _slabs(tensors: Mapping[str, Tensor]) -> list[Tensor]:
    return [tensors[name] for name in sorted(tensors) if name.startswith("/slab")]


def _stored(
    bases: Tensor,
    slabs: Sequence[Tensor],
    *,
    version: Tensor,
    factor: Tensor,
    used: int,
    free: Tensor,
    key: Tensor,
    value: Tensor,
) -> dict[str, Tensor]:
    """The tensors of a store in a file."""
    # Slabs without a copy, because the rows of all clients may fill half of the memory.
    return {
        "/bases": bases, "/version": version, "/factor": factor, "/used": torch.tensor(used), "/free": free,
        "/slot/key": key, "/slot/value": value,
        **{f"/slab{number:05d}": slab for number, slab in enumerate(slabs)},
    }  # fmt: skip
