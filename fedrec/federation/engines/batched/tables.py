"""The parameters of a block's clients as a method sees them: by name, tables by their active rows."""

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import NoReturn, cast

import torch
from torch import Tensor
from torch.nn import functional

from fedrec.errors import FederationError
from fedrec.federation.engines.batched.block import Block
from fedrec.federation.engines.batched.replay import Replay
from fedrec.federation.model.history import no_history
from fedrec.federation.model.tables import GatheredRows, Values, index_of
from fedrec.federation.model.weights import Weights
from fedrec.federation.table_sums import per_table_sums, segment_sums


class BlockTable:
    """The active rows of a table of a block's clients; its index counts active rows."""

    def __init__(
        self,
        look_up: Callable[[], Tensor],
        reduced: Callable[[int], Tensor],
        training_sum: Callable[[Tensor], Tensor],
        clients: int | None,
    ) -> None:
        """Take functions for rows and sums, and the number of clients if every row is active, else None."""
        self._look_up = look_up
        self._training_sum = training_sum
        self._reduced = reduced
        self._clients = clients
        self._last: tuple[Tensor, Tensor] | None = None

    def __getitem__(self, items: Tensor) -> Tensor:
        slots = index_of(items)
        # A loss looks up the rows of its mini-batch several times. The cache gathers them, and scatters
        # their gradient, once.
        if self._last is None or self._last[0] is not slots:
            self._last = (slots, functional.embedding(slots, self.rows))
        return self._last[1]

    @cached_property
    def rows(self) -> Tensor:
        """The active rows, looked up at first use: (rows, d)."""
        return self._look_up()

    def training_sum(self) -> Tensor:
        """The sum of the rows of the clients' training items."""
        return self._training_sum(self.rows)

    def whole(self) -> Tensor:
        """All rows: (clients, items, d)."""
        if self._clients is None:
            raise FederationError(
                "a loss reads a whole table, which it did not read when fedrec checked it. A loss must read "
                "the same whole tables whatever the values of its numbers are."
            )
        tables: Tensor = self.rows.unflatten(0, (self._clients, -1))
        return tables

    def squared_norm(self) -> Tensor:
        """The sum of the squares of each client's whole table."""
        return self._reduced(2)

    def row_sum(self) -> Tensor:
        """The sum of the rows of each client's whole table."""
        return self._reduced(1)


class BlockWeights:
    """Makes the `Weights` of a block's clients, and caches sums over their whole tables."""

    def __init__(self, block: Block, replay: Replay) -> None:
        self.block = block
        self.replay = replay
        self._outside: dict[tuple[str, int], Tensor] = {}
        """Sums over the rows outside the block, by table and power, without the table's factor."""
        self._positive: tuple[Tensor, Tensor, list[int]] | None = None

    def of(self, clients: int, trained: Mapping[str, Tensor | GatheredRows]) -> Weights:
        """The parameters of the first `clients`; `trained` replaces some by leaves of the autograd graph."""
        block, values = self.block, Values(self.others(clients))
        values["own"], values["history"] = self._own_items(clients), no_history
        values |= {name: part for name, part in trained.items() if not block.parameter(name).table}
        for name in block.factor:
            part = trained.get(name)
            values[name] = (
                part
                if isinstance(part, GatheredRows)
                else BlockTable(
                    partial(self._active_rows, name, clients, part),
                    partial(self._reduced, name),
                    partial(self._training_sum, clients),
                    clients if block.task.needs.whole_tables else None,
                )
            )
        return cast(Weights, values)

    def _own_items(self, clients: int) -> BlockTable:
        """The table `own`: 1 for training items, 0 for others."""
        block = self.block
        whole = clients if block.task.needs.whole_tables else None
        return BlockTable(lambda: block.own[: int(block.row_end[clients - 1])], _no_sum, _no_sum, whole)

    def _active_rows(self, name: str, clients: int, leaf: Tensor | None) -> Tensor:
        """The active rows of a table of the first `clients`, or the leaf of the graph that replaces them."""
        return self.block.values[name][: self.block.length(name, clients)] if leaf is None else leaf

    def others(self, clients: int) -> dict[str, Tensor]:
        """The values other than tables that a method sees, of the first `clients`."""
        block, state, dtype = self.block, self.block.task.state, torch.get_default_dtype()
        values = {
            name: value[:clients] for name, value in block.values.items() if not block.parameter(name).table
        }
        values |= {name: value[:clients] for name, value in block.derived.items()}
        values["interactions"] = (block.size[:clients] // block.task.samples.group).to(dtype)[:, None, None]
        values["held"] = state.held[block.who[:clients]].to(dtype)[:, None, None]
        return values

    def derive(self) -> None:
        """Recompute the values derived from whole tables."""
        with torch.no_grad():
            self.block.derived = self.block.task.method.derived(self.of(len(self.block), {}))

    def invalidate(self, name: str) -> None:
        """Drop cached sums of a table that a rewrite has changed."""
        self._outside = {key: value for key, value in self._outside.items() if key[0] != name}

    def _reduced(self, name: str, power: int) -> Tensor:
        """A sum over each client's whole table, active rows and others; see `model.tables.reduced`."""
        block = self.block
        active = segment_sums(block.values[name], block.row_start, power)
        factor = block.factor[name].unsqueeze(1)
        if block.task.needs.whole_tables:
            return active.to(torch.get_default_dtype()).unsqueeze(1)
        if (name, power) not in self._outside:
            chunks = [self._sum_outside(name, power, some) for some in self.replay.chunks()]
            self._outside[name, power] = torch.cat(chunks) / factor**power
        total = self._outside[name, power] * factor**power + active
        return total.to(torch.get_default_dtype()).unsqueeze(1)

    def _sum_outside(self, name: str, power: int, clients: slice) -> Tensor:
        """A sum over some clients' rows outside the block: that over all rows minus that over active rows."""
        tables = self.replay.outside(name, clients)
        client, item, _ = self.replay.active_rows(clients)
        # A table that all clients share is summed once.
        several = tables[:1] if tables.stride(0) == 0 else tables
        whole = per_table_sums(several, power).expand(len(tables), -1)
        starts = self.block.row_start[clients.start : clients.stop + 1]
        return whole - segment_sums(tables[client, item], starts - starts[0], power)

    def _training_sum(self, clients: int, rows: Tensor) -> Tensor:
        """The sum of the rows of each client's training items, once per training interaction."""
        block = self.block
        if self._positive is None:
            positive = block.labels == 1
            counts = torch.bincount(block.rank[positive], minlength=len(block))
            self._positive = block.slot[positive], block.rank[positive], counts.cumsum(0).tolist()
        slot, rank, ends = self._positive
        total = rows.new_zeros(clients, rows.shape[1])
        end = ends[clients - 1]
        return total.index_add(0, rank[:end], functional.embedding(slot[:end], rows)).unsqueeze(1)


def _no_sum(*_asked: object) -> NoReturn:
    raise FederationError("w.own has no sums of its rows. Read w.interactions, the number of training items.")
