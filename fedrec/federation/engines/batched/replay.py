"""A log of the operations that change rows outside a block, replayed where whole tables are needed.

While clients train, a block stores only the active rows of a table. An operation that changes other rows is
logged as an event. `Replay` applies the events to whole tables, some clients at a time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedrec.federation.engines.batched.block import Block
from fedrec.federation.model.client import UploadTransform
from fedrec.federation.model.tables import GatheredRows, LazyValues, Values, sampled
from fedrec.federation.model.weights import RowsOf

CHUNK, _CHUNK_ON_GPU = 1 << 24, 1 << 27
"""Elements of whole tables that are processed at once; more on a GPU, since each launch costs time."""


@dataclass(frozen=True)
class Scaled:
    """Event: rows outside the block were multiplied by `factor` (clients)."""

    name: str
    factor: Tensor


@dataclass(frozen=True)
class Rewritten:
    """Event: a table was replaced row by row. `others` are the values other than tables at that time."""

    name: str
    rows: RowsOf
    others: dict[str, Tensor]


@dataclass(frozen=True)
class Uploaded:
    """Event: a parameter was uploaded. For a table, `values` has the active rows; `factor` as in `Scaled`."""

    name: str
    into: str
    values: Tensor
    factor: Tensor | None
    transform: UploadTransform | None = None


class EveryRow(Values):
    """View that a table's rewrite receives: values other than tables, and tables with all their rows."""

    def __init__(self, others: Mapping[str, Tensor], tables: LazyValues, every: Tensor) -> None:
        """Keep `every`, all items of each client (clients, items): the only index of these tables."""
        super().__init__(others)
        self._tables = tables
        self._every = every

    def __missing__(self, name: str) -> GatheredRows:
        if name == "own":
            # Rows of training items are active; a row outside the block belongs to no training item.
            return GatheredRows(self._every, torch.zeros(*self._every.shape, 1, device=self._every.device))
        return GatheredRows(self._every, self._tables[name])


class Replay:
    """The events of a block's round, in order."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.events: list[Scaled | Rewritten | Uploaded] = []

    def uploads(self, *, tables: bool) -> list[Uploaded]:
        """The uploads of tables, or of all other parameters."""
        uploads = [event for event in self.events if isinstance(event, Uploaded)]
        return [event for event in uploads if self.block.parameter(event.name).table == tables]

    def chunks(self) -> Iterator[slice]:
        """Slices of consecutive clients whose whole tables are processed at once."""
        block = self.block
        widths = [part.shape[1] for part in block.task.state.parameters.values() if part.table]
        chunk = _CHUNK_ON_GPU if block.device.type == "cuda" else CHUNK
        at_once = max(1, chunk // (block.task.clients.items * max(1, sum(widths))))
        for first in range(0, len(block.who), at_once):
            yield slice(first, min(first + at_once, len(block.who)))

    @property
    def rewritten(self) -> set[str]:
        """The tables that were replaced row by row."""
        return {event.name for event in self.events if isinstance(event, Rewritten)}

    def start_tables(self, name: str, clients: slice) -> Tensor:
        """The whole tables with which some clients started the round: (clients, items, d).

        A table that all clients share is stored once: the leading axis has a stride of 0.
        """
        task, who = self.block.task, self.block.who[clients]
        if task.starts_from_own_copy(name):
            return task.state.client_tensors[name].whole(who)
        common = task.state.shared.get(name, task.state.initial[name])
        return common.expand(len(who), -1, -1) if len(who) > 1 else common.unsqueeze(0).clone()

    def tables(self, clients: slice) -> LazyValues:
        """The whole tables with which some clients started the round, by name, looked up at first use."""
        return LazyValues(lambda name: self.start_tables(name, clients))

    def apply(self, event: Scaled | Rewritten | Uploaded, clients: slice, tables: LazyValues) -> None:
        """Apply an event to whole tables."""
        if isinstance(event, Scaled):
            factor = event.factor[clients, None, None].to(tables[event.name].dtype)
            tables[event.name] = tables[event.name] * factor
        elif isinstance(event, Rewritten):
            others = {name: value[clients] for name, value in event.others.items()}
            every = torch.arange(self.block.task.clients.items, device=self.block.device)
            every = every.expand(clients.stop - clients.start, -1)
            with torch.no_grad():
                tables[event.name] = event.rows(EveryRow(others, tables, every), sampled(every))

    def outside(self, name: str, clients: slice) -> Tensor:
        """Whole tables of some clients with current values in the rows outside the block only."""
        tables, rewritten = self.tables(clients), self.rewritten
        for event in self.events:
            if rewritten or event.name == name:
                self.apply(event, clients, tables)
        return tables[name]

    def current_tables(self, name: str, clients: slice) -> Tensor:
        """The whole tables of some clients with their current values."""
        return self.with_active_rows(self.outside(name, clients), self.block.values[name], clients)

    def with_active_rows(self, tables: Tensor, values: Tensor, clients: slice) -> Tensor:
        """Write the active rows of `values` into the whole `tables` of some clients; return the tables.

        A table that all clients share is copied first.
        """
        filled = tables.contiguous() if tables.stride(0) == 0 else tables
        client, item, mine = self.active_rows(clients)
        filled[client, item] = values[mine]
        return filled

    def active_rows(self, clients: slice) -> tuple[Tensor, Tensor, slice]:
        """The active rows of some clients: index of the client among them, item, and slice in the block."""
        mine = self.block.rows_of(clients)
        return self.block.row_client[mine] - clients.start, self.block.row_item[mine], mine
