"""A log of operations on rows outside a block, replayed on whole tables where those are needed.

Of a table only the rows of sampled items are held while clients train. Everything that moves
other rows is an event: it is logged, and replayed some clients at a time.
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
"""Numbers of whole tables that are worked on at once: a GPU has the memory, and time for few launches."""


@dataclass(frozen=True)
class Scaled:
    """Rows outside the block were multiplied by `factor`, one per client."""

    name: str
    factor: Tensor


@dataclass(frozen=True)
class Rewritten:
    """A table was replaced row by row; `others` are the values beside tables at that time."""

    name: str
    rows: RowsOf
    others: dict[str, Tensor]


@dataclass(frozen=True)
class Uploaded:
    """A parameter was uploaded with these values: of a table its held rows, and a `factor` as in `Scaled`."""

    name: str
    into: str
    values: Tensor
    factor: Tensor | None
    transform: UploadTransform | None = None


class EveryRow(Values):
    """View that a table's rewrite receives: values other than tables, and tables with all their rows."""

    def __init__(self, others: Mapping[str, Tensor], tables: LazyValues, every: Tensor) -> None:
        """`every` are all items of each client, the only index that tables know."""
        super().__init__(others)
        self._tables = tables
        self._every = every

    def __missing__(self, name: str) -> GatheredRows:
        if name == "own":
            # All training items are held: what is not is none of them.
            return GatheredRows(self._every, torch.zeros(*self._every.shape, 1, device=self._every.device))
        return GatheredRows(self._every, self._tables[name])


class Replay:
    """The events of a block's round, in order."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.events: list[Scaled | Rewritten | Uploaded] = []

    def uploads(self, *, tables: bool) -> list[Uploaded]:
        """The uploads of tables, or of everything else."""
        uploads = [event for event in self.events if isinstance(event, Uploaded)]
        return [event for event in uploads if self.block.parameter(event.name).table == tables]

    def chunks(self) -> Iterator[slice]:
        """Neighbouring clients whose whole tables are worked on at once."""
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
        """A whole table some clients of the block started the round from.

        Where it is one for all, it is held once: its leading axis has a stride of 0.
        """
        task, who = self.block.task, self.block.who[clients]
        if task.starts_from_own_copy(name):
            return task.state.client_tensors[name].whole(who)
        common = task.state.shared.get(name, task.state.initial[name])
        return common.expand(len(who), -1, -1) if len(who) > 1 else common.unsqueeze(0).clone()

    def tables(self, clients: slice) -> LazyValues:
        """The whole tables some clients of the block started the round from, by name.

        What a round does not ask for is not looked up.
        """
        return LazyValues(lambda name: self.start_tables(name, clients))

    def apply(self, event: Scaled | Rewritten | Uploaded, clients: slice, tables: LazyValues) -> None:
        """Do to whole tables what an event did to rows outside the block."""
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
        """Tables of some clients of the block whose rows outside the block are as they are now."""
        tables, rewritten = self.tables(clients), self.rewritten
        for event in self.events:
            if rewritten or event.name == name:
                self.apply(event, clients, tables)
        return tables[name]

    def current_tables(self, name: str, clients: slice) -> Tensor:
        """The whole tables of some clients of the block as they are now."""
        return self.with_active_rows(self.outside(name, clients), self.block.values[name], clients)

    def with_active_rows(self, tables: Tensor, values: Tensor, clients: slice) -> Tensor:
        """Whole tables of some clients whose held rows are those of `values`; written into `tables`.

        Nothing else asks for the held rows of `tables`, except where the table is one for all.
        """
        filled = tables.contiguous() if tables.stride(0) == 0 else tables
        client, item, mine = self.active_rows(clients)
        filled[client, item] = values[mine]
        return filled

    def active_rows(self, clients: slice) -> tuple[Tensor, Tensor, slice]:
        """The rows that some clients of the block hold: client among them and item of each, and where."""
        mine = self.block.rows_of(clients)
        return self.block.row_client[mine] - clients.start, self.block.row_item[mine], mine
