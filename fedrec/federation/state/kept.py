"""What clients keep from round to round, one value each: dense, or only the rows that ever changed."""

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

_SLAB = 1 << 18
"""Rows of one piece of a row store: it grows without ever being copied."""


class Kept(Protocol):
    """One parameter of every client. `who` are clients; for tables `item` goes along with it."""

    def whole(self, who: Tensor) -> Tensor:
        """The values of some clients, on a leading client axis."""

    def put(self, who: Tensor, values: Tensor) -> None:
        """Replace the values of some clients."""

    def alter(self, who: Tensor, change: Callable[[Tensor], None]) -> None:
        """Let `change` replace the values of some clients (sorted), one flat vector each, in place."""

    def rows(self, who: Tensor, item: Tensor) -> Tensor:
        """Rows of a table, each of its client; `who` and `item` have one shape."""

    def put_rows(self, who: Tensor, item: Tensor, rows: Tensor) -> None:
        """Replace rows of a table; no pair of client and item comes twice."""

    def scale(self, who: Tensor, factor: Tensor) -> None:
        """Multiply all rows of each client by its factor."""

    def restart(self, who: Tensor, value: Tensor) -> None:
        """Let some clients hold `value`, one and the same for all of them."""

    def tensors(self) -> dict[str, Tensor]:
        """Everything, by a suffix of the parameter's name, for a file."""

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `tensors` once gave."""


class DenseKept:
    """Every number of every client."""

    def __init__(self, value: Tensor, clients: int) -> None:
        self.value = value.expand(clients, *value.shape).clone()

    def whole(self, who: Tensor) -> Tensor:
        """See `Kept`."""
        return self.value[who]

    def put(self, who: Tensor, values: Tensor) -> None:
        """See `Kept`."""
        self.value[who] = values

    def alter(self, who: Tensor, change: Callable[[Tensor], None]) -> None:
        """See `Kept`; the values of all clients are not copied."""
        everyone = len(who) == len(self.value)
        some = self.value if everyone else self.value[who]
        change(some.view(len(who), -1))
        if not everyone:
            self.value[who] = some

    def rows(self, who: Tensor, item: Tensor) -> Tensor:
        """See `Kept`."""
        items = self.value.shape[1]
        return functional.embedding(who * items + item, self.value.flatten(0, 1))

    def put_rows(self, who: Tensor, item: Tensor, rows: Tensor) -> None:
        """See `Kept`."""
        self.value[who, item] = rows

    def scale(self, who: Tensor, factor: Tensor) -> None:
        """See `Kept`."""
        everyone = torch.ones(len(self.value), dtype=self.value.dtype, device=self.value.device)
        everyone[who] = factor.to(self.value.dtype)
        self.value.mul_(everyone[:, None, None])

    def restart(self, who: Tensor, value: Tensor) -> None:
        """See `Kept`."""
        self.value[who] = value

    def tensors(self) -> dict[str, Tensor]:
        """See `Kept`."""
        return {"": self.value}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """See `Kept`."""
        self.value = tensors[""].to(self.value.device)


class RowsKept:
    """A table of every client as "common start x one factor + the rows that changed".

    A client's start is one of a few whole tables (`bases`), since clients begin from what the
    server had in some round. Of n x m x d numbers only changed rows are held, and n x m places.
    """

    def __init__(self, value: Tensor, clients: int) -> None:
        device = value.device
        self.bases = value.unsqueeze(0).clone()
        self.version = torch.zeros(clients, dtype=torch.int64, device=device)
        self.factor = torch.ones(clients, dtype=torch.float64, device=device)
        self.place = torch.full((clients, len(value)), -1, dtype=torch.int32, device=device)
        self.slabs: list[Tensor] = []
        self.used = 0
        self.free = torch.empty(0, dtype=torch.int64, device=device)

    def whole(self, who: Tensor) -> Tensor:
        """See `Kept`."""
        item = torch.arange(self.place.shape[1], device=who.device)
        return self.rows(who.unsqueeze(1).expand(-1, len(item)), item.expand(len(who), -1))

    def put(self, who: Tensor, values: Tensor) -> None:
        """See `Kept`."""
        items = self.place.shape[1]
        item = torch.arange(items, device=who.device).repeat(len(who))
        self.put_rows(who.repeat_interleave(items), item, values.flatten(0, 1))

    def alter(self, who: Tensor, change: Callable[[Tensor], None]) -> None:
        """See `Kept`."""
        some = self.whole(who)
        change(some.flatten(1))
        self.put(who, some)

    def rows(self, who: Tensor, item: Tensor) -> Tensor:
        """See `Kept`."""
        flat_who, flat_item = who.reshape(-1), item.reshape(-1)
        base = self.bases[self.version[flat_who], flat_item]
        found = base.mul_(self.factor[flat_who].to(base.dtype).unsqueeze(1))
        place = self.place[flat_who, flat_item].long()
        changed = place >= 0
        found[changed] = self._read(place[changed])
        return found.reshape(*who.shape, -1)

    def put_rows(self, who: Tensor, item: Tensor, rows: Tensor) -> None:
        """See `Kept`."""
        place = self.place[who, item].long()
        new = place < 0
        place[new] = self._allocate(int(new.sum()))
        self.place[who, item] = place.int()
        for slab, inside, row in self._by_slab(place):
            slab[row] = rows[inside]

    def scale(self, who: Tensor, factor: Tensor) -> None:
        """See `Kept`."""
        self.factor[who] *= factor.double()
        for client, by in zip(who.split(256), factor.split(256), strict=True):
            place = self.place[client].long()
            changed = place >= 0
            rate = by.unsqueeze(1).expand_as(place)[changed].to(self.bases.dtype).unsqueeze(1)
            for slab, inside, row in self._by_slab(place[changed]):
                slab[row] *= rate[inside]

    def restart(self, who: Tensor, value: Tensor) -> None:
        """See `Kept`."""
        place = self.place[who].long()
        self.free = torch.cat((self.free, place[place >= 0]))
        self.place[who] = -1
        self.factor[who] = 1
        self.version[who] = len(self.bases)
        self.bases = torch.cat((self.bases, value.unsqueeze(0)))
        alive, self.version = torch.unique(self.version, return_inverse=True)
        self.bases = self.bases[alive]

    def tensors(self) -> dict[str, Tensor]:
        """See `Kept`; pieces as they are, since the rows of all clients may fill half the memory."""
        return {
            "/bases": self.bases,
            "/version": self.version,
            "/factor": self.factor,
            "/place": self.place,
            "/used": torch.tensor(self.used),
            "/free": self.free,
        } | {f"/slab{number:05d}": slab for number, slab in enumerate(self.slabs)}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """See `Kept`."""
        device = self.place.device
        self.bases, self.version, self.factor, self.place, self.free = (
            tensors[f"/{name}"].to(device) for name in ("bases", "version", "factor", "place", "free")
        )
        self.used = int(tensors["/used"])
        names = sorted(name for name in tensors if name.startswith("/slab"))
        self.slabs = [tensors[name].to(device) for name in names]

    def _read(self, place: Tensor) -> Tensor:
        found = self.bases.new_empty(len(place), self.bases.shape[2])
        for slab, inside, row in self._by_slab(place):
            found[inside] = slab[row]
        return found

    def _by_slab(self, place: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Each slab, which of `place` lie in it, and their rows there."""
        order = torch.argsort(place)
        counts = torch.bincount(place // _SLAB, minlength=len(self.slabs)).tolist()
        for slab, inside in zip(self.slabs, order.split(counts), strict=True):
            yield slab, inside, place[inside] % _SLAB

    def _allocate(self, count: int) -> Tensor:
        reused, self.free = self.free[:count], self.free[count:]
        fresh = count - len(reused)
        new = torch.arange(self.used, self.used + fresh, device=self.place.device)
        self.used += fresh
        while self.used > _SLAB * len(self.slabs):
            # Zeros, and not whatever memory held: slabs go into files.
            self.slabs.append(self.bases.new_zeros(_SLAB, self.bases.shape[2]))
        return torch.cat((reused, new))
