"""What happened in a round to the rows of tables that a block does not hold, and how to repeat it.

Of a table only the rows of sampled items are held while clients train. Everything that moves
other rows is an event: it is written down, and repeated on whole tables where those are asked
for, some clients at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedrec.federation.model.method import RowsOf
from fedrec.federation.model.weights import ClientTables, Values

if TYPE_CHECKING:
    from fedrec.federation.engines.batched.block import Block

CHUNK = 1 << 24
"""Numbers of whole tables that are worked on at once."""


@dataclass(frozen=True)
class Scaled:
    """Rows that are not held were multiplied by `factor`, one per client."""

    name: str
    factor: Tensor


@dataclass(frozen=True)
class Rewritten:
    """A table was replaced; `others` are the values beside tables at that time."""

    name: str
    rows: RowsOf
    others: dict[str, Tensor]


@dataclass(frozen=True)
class Uploaded:
    """A parameter was uploaded with these values (held rows of a table); `factor` as in `Scaled`.

    Of a table may be sent the products of every two rows instead of the rows.
    """

    name: str
    into: str
    values: Tensor
    factor: Tensor
    products: bool = False


class History:
    """The events of a block's round, in order."""

    def __init__(self, block: "Block") -> None:
        self.block = block
        self.events: list[Scaled | Rewritten | Uploaded] = []

    def uploads(self, *, tables: bool) -> list[Uploaded]:
        """The uploads of tables, or of everything else."""
        found = [event for event in self.events if isinstance(event, Uploaded)]
        return [event for event in found if self.block.parameter(event.name).table == tables]

    def chunks(self) -> Iterator[slice]:
        """Neighbouring clients whose whole tables are worked on at once."""
        block = self.block
        widths = [one.shape[1] for one in block.task.state.parameters.values() if one.table]
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
            for name, one in task.state.parameters.items()
            if one.table
        }

    def repeat(self, event: Scaled | Rewritten | Uploaded, clients: slice, tables: dict[str, Tensor]) -> None:
        """Do to whole tables what an event did to rows that are not held."""
        if isinstance(event, Scaled):
            factor = event.factor[clients, None, None].to(tables[event.name].dtype)
            tables[event.name] = tables[event.name] * factor
        elif isinstance(event, Rewritten):
            others = {name: value[clients] for name, value in event.others.items()}
            view = Values(others | {name: ClientTables(table) for name, table in tables.items()})
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
        block, found = self.block, tables.clone()
        mine = block.rows_of(clients)
        found[block.row_client[mine] - clients.start, block.row_item[mine]] = values[mine]
        return found
