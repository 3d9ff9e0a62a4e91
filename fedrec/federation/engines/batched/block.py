"""The data of many clients in one round: one long tensor per parameter.

Of a table only the rows of sampled items are held, since training moves no other row but by one
factor per client (SGD's weight decay) or by a rewrite; see `replay`. Where a program needs whole
tables, all rows are held. Clients are sorted by their number of mini-batches, most first.
"""

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from fedrec.federation.engines.engine import Task, check_clients_finite
from fedrec.federation.held_rows import held_rows
from fedrec.federation.model.parameters import Parameter
from fedrec.federation.table_rows import take_rows


class Block:
    """Some clients in one round: what they hold, and what training has made of it so far."""

    def __init__(self, task: Task, chosen: Tensor, sample: Tensor, most: int) -> None:
        """`chosen` are indices into the task's clients, `sample` their samples, client by client, no more
        than `most` of one.
        """
        self.task = task
        self.most = most
        self.who = task.who[chosen]
        self.number = task.clients.number(self.who)
        """What each draws by."""
        self.size = task.samples.size[chosen]
        self.device = self.who.device
        self.labels = task.samples.label[sample]
        clients = torch.arange(len(chosen) + 1, device=self.device)
        self.rank = torch.repeat_interleave(clients[:-1], self.size, output_size=len(sample))
        self.row_item, self.row_client, self.slot = self._held_rows(task.samples.item[sample])
        """Item and client of each held row, and the index of each sample's row."""
        self.row_start = torch.searchsorted(self.row_client, clients)
        """Where each client's held rows begin, and where the last one's end."""
        self.values = {name: self._downloaded(name) for name in task.state.visible}
        self.start = {
            name: self.values[name].clone() for name in task.state.shared if self.parameter(name).table
        }
        self.factor = {name: self.ones() for name in self.values if self.parameter(name).table}
        """What rows outside the block were multiplied by, one number per client."""
        self.scaled: set[str] = set()
        """The tables of which that may not be 1."""
        self.moments: dict[tuple[str, str], Tensor] = {}
        """Adam's moments and steps that outlast the round, by parameter and part."""
        self.derived: dict[str, Tensor] = {}
        self.epochs_done = 0
        self.last_loss = torch.full((len(chosen),), task.no_loss, device=self.device)

    def __len__(self) -> int:
        return len(self.who)

    @cached_property
    def row_end(self) -> list[int]:
        """Where each client's held rows end."""
        ends: list[int] = self.row_start[1:].tolist()
        return ends

    @property
    def most_rows(self) -> int:
        """No client holds more rows of a table."""
        items = self.task.clients.items
        return items if self.task.needs.whole_tables else min(items, self.most)

    def parameter(self, name: str) -> Parameter:
        """The description of a parameter."""
        return self.task.state.parameters[name]

    def length(self, name: str, clients: int) -> int:
        """How much of a parameter's leading axis belongs to the first `clients`."""
        return int(self.row_end[clients - 1]) if self.parameter(name).table else clients

    def rows_of(self, clients: slice) -> slice:
        """The held rows of neighbouring clients."""
        first = int(self.row_end[clients.start - 1]) if clients.start else 0
        return slice(first, int(self.row_end[clients.stop - 1]))

    def ones(self) -> Tensor:
        """A factor of 1 per client."""
        return torch.ones(len(self.who), dtype=torch.float64, device=self.device)

    def changing(self) -> Iterator[tuple[str, Tensor, bool]]:
        """Everything training changes: its key, its value, and whether it has a leading axis of rows."""
        for name, value in self.values.items():
            yield name, value, self.parameter(name).table
        for name, factor in self.factor.items():
            yield f"{name}/factor", factor, False
        for (name, part), moment in self.moments.items():
            yield f"{name}/{part}", moment, part != "steps" and self.parameter(name).table

    def check(self) -> None:
        """Raise `DivergenceError` if a client left the finite numbers."""
        # A sum is finite only where every number is: a block without a broken one is done with here.
        sums = [value.sum().double() for value in (*self.values.values(), self.last_loss)]
        if torch.stack(sums).isfinite().all():
            return
        broken = {}
        for name, value in self.values.items():
            bad = ~value.flatten(1).isfinite().all(1)
            if self.parameter(name).table:
                bad = torch.bincount(self.row_client[bad], minlength=len(self.who)) > 0
            broken[name] = torch.where(bad, torch.nan, 0.0).unsqueeze(1)
        check_clients_finite(self.task, self.who, self.last_loss, broken)

    def _held_rows(self, item: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        items = self.task.clients.items
        if self.task.needs.whole_tables:
            clients = len(self.who)
            row_item = torch.arange(items, device=self.device).repeat(clients)
            row_client = torch.arange(clients, device=self.device).repeat_interleave(items)
            return row_item, row_client, self.rank * items + item
        return held_rows(item, self.size, items)

    def _downloaded(self, name: str) -> Tensor:
        """A fresh copy of what the clients start from."""
        state, parameter = self.task.state, self.parameter(name)
        if self.task.starts_alone(name):
            kept = state.kept[name]
            if parameter.table:
                return kept.rows(self.who[self.row_client], self.row_item)
            return kept.whole(self.who)
        value = state.shared.get(name, state.initial[name])
        return take_rows(value, self.row_item) if parameter.table else value.repeat(len(self.who), 1, 1)
