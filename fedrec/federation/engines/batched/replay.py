"""A log of operations on rows outside a block, replayed on whole tables where those are needed.

Of a table only the rows of sampled items are held while clients train. Everything that moves
other rows is an event: it is logged, and replayed some clients at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fedrec.federation.engines.batched.block import Block
from fedrec.federation.model.client import Through
from fedrec.federation.model.tables import PlainTable, Values
from fedrec.federation.model.weights import RowsOf

CHUNK = 1 << 24
"""Numbers of whole tables that are worked on at once."""


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
    """A parameter was uploaded with these values (held rows of a table); `factor` as in `Scaled`."""

    name: str
    into: str
    values: Tensor
    factor: Tensor
    through: Through | None = None


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
        at_once = max(1, CHUNK // (block.task.clients.items * max(1, sum(widths))))
        for first in range(0, len(block.who), at_once):
            yield slice(first, min(first + at_once, len(block.who)))

    def started(self, clients: slice) -> dict[str, Tensor]:
        """The whole tables some clients of the block started the round from."""
        task, who = self.block.task, self.block.who[clients]
        return {
            name: task.state.kept[name].whole(who)
            if task.starts_alone(name)
            else task.state.shared.get(name, task.state.initial[name]).expand(len(who), -1, -1)
            for name, part in task.state.parameters.items()
            if part.table
        }

    def repeat(self, event: Scaled | Rewritten | Uploaded, clients: slice, tables: dict[str, Tensor]) -> None:
        """Do to whole tables what an event did to rows outside the block."""
        if isinstance(event, Scaled):
            factor = event.factor[clients, None, None].to(tables[event.name].dtype)
            tables[event.name] = tables[event.name] * factor
        elif isinstance(event, Rewritten):
            others = {name: value[clients] for name, value in event.others.items()}
            view = Values(others | {name: PlainTable(table) for name, table in tables.items()})
            every = torch.arange(self.block.task.clients.items, device=self.block.device)
            every = every.expand(clients.stop - clients.start, -1)
            with torch.no_grad():
                tables[event.name] = event.rows(view, every)

    def present(self, name: str, clients: slice) -> Tensor:
        """The whole tables of some clients of the block as they are now."""
        tables = self.started(clients)
        for event in self.events:
            self.repeat(event, clients, tables)
        return self.with_held_rows(tables[name], self.block.values[name], clients)

    def with_held_rows(self, tables: Tensor, values: Tensor, clients: slice) -> Tensor:
        """Whole tables of some clients whose held rows are those of `values`."""
        block, filled = self.block, tables.clone()
        mine = block.rows_of(clients)
        filled[block.row_client[mine] - clients.start, block.row_item[mine]] = values[mine]
        return filled
