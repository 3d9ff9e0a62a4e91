"""The data of many clients in one round: one long tensor per parameter.

A block stores only the active rows of a table, those of sampled items. Other rows change only by one factor
per client (SGD's weight decay) or by a rewrite; see `replay`. If a program needs whole tables, every row is
active. Clients are sorted by their number of mini-batches, most first.
"""

import math
from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from fedrec.federation.active_rows import ActiveRows, ClientSamples, active_rows
from fedrec.federation.draws import halves
from fedrec.federation.engines.batched.block_layout import BlockLayout
from fedrec.federation.engines.engine import Task, check_clients_finite
from fedrec.federation.model.client import Half
from fedrec.federation.model.history import Past
from fedrec.federation.model.parameters import Parameter
from fedrec.federation.model.tables import LazyValues
from fedrec.federation.pairs import aranges
from fedrec.federation.table_rows import take_rows


class Block:
    """Some clients in one round: their parameters, as trained so far."""

    def __init__(self, task: Task, layout: BlockLayout) -> None:
        self.task = task
        self.layout = layout
        self.who, self.global_index, self.size = layout.who, layout.global_index, layout.size
        """The index, global index and number of samples of each client: (clients)."""
        self.device = self.who.device
        self.row_item, self.row_client, self.row_start, self.own_slot = self._active_rows()
        """The fields of `ActiveRows`."""
        self.values: dict[str, Tensor] = LazyValues(self._downloaded)
        """Parameters by name: a table's active rows (rows, d), looked up at first use, or (clients, ...)."""
        tables = [name for name in task.state.visible if self.parameter(name).table]
        for name in task.state.visible:
            if name not in tables:
                self.values[name] = self._downloaded(name)
        self.factor = dict.fromkeys(tables, layout.ones)
        """By table, the factor by which rows outside the block were multiplied: (clients)."""
        self.scaled: set[str] = set()
        """Tables whose factor may differ from 1."""
        self.moments: dict[tuple[str, str], Tensor] = {}
        """Adam's moments and steps that the state keeps over rounds, by parameter and part."""
        self.derived: dict[str, Tensor] = {}
        self.epochs_done = 0
        self.last_loss = torch.full((len(self),), task.no_loss, device=self.device)

    def __len__(self) -> int:
        return len(self.who)

    @property
    def labels(self) -> Tensor:
        """Label of each sample. All clients share it: each positive precedes its negatives."""
        return self.task.samples.label[: self.layout.samples]

    @property
    def rank(self) -> Tensor:
        """Index in the block of each sample's client."""
        return self.layout.rank

    @cached_property
    def slot(self) -> Tensor:
        """Index of each sample's row among the active rows."""
        return self.row_start[self.rank] + self.own_slot

    @cached_property
    def own(self) -> Tensor:
        """For each active row 1 if it is of a training item of its client, else 0: (rows, 1)."""
        return torch.zeros(len(self.row_item), 1, device=self.device).index_fill_(
            0, self.slot[self.labels == 1], 1
        )

    def samples_of_half(self, half: Half) -> Tensor:
        """Mask of the samples that belong to a half."""
        task = self.task
        group = task.samples.group
        parts = halves(self.global_index, self.size // group, task.seed, task.round_)
        return parts[("first", "second").index(half)].repeat_interleave(group)

    def past_of(self, half: Half | None) -> Past:
        """Histories before the positives of all samples, or of one half of them."""
        return self.past if half is None else self.past.of(self.samples_of_half(half))

    @cached_property
    def past(self) -> Past:
        """History before the positive of each sample."""
        clients, group, rank = self.task.clients, self.task.samples.group, self.rank
        positive = aranges(self.size, self.layout.samples) // group
        turn = clients.turn[clients.start[self.who][rank] + positive]
        counts = self.size // group
        first = (counts.cumsum(0) - counts)[rank]
        chosen = self.labels == 1
        ordered = torch.empty_like(self.slot[chosen])
        ordered[(first + turn)[chosen]] = self.slot[chosen]
        return Past(turn, first, ordered)

    @cached_property
    def row_owner(self) -> Tensor:
        """Index in the task's clients of the owner of each active row."""
        return self.who[self.row_client]

    def start_rows(self, name: str) -> Tensor:
        """The active rows of a shared table as the server sent them: (rows, d)."""
        return take_rows(self.task.state.shared[name], self.row_item)

    @cached_property
    def row_end(self) -> list[int]:
        """End index of each client's active rows."""
        ends: list[int] = self.row_start[1:].tolist()
        return ends

    @property
    def most_rows(self) -> int:
        """Upper bound of the active rows of one client."""
        items = self.task.clients.items
        return items if self.task.needs.whole_tables else min(items, self.layout.most)

    def parameter(self, name: str) -> Parameter:
        """The description of a parameter."""
        return self.task.state.parameters[name]

    def length(self, name: str, clients: int) -> int:
        """Length of the part of a parameter's leading axis that belongs to the first `clients`."""
        return int(self.row_end[clients - 1]) if self.parameter(name).table else clients

    def rows_of(self, clients: slice) -> slice:
        """Slice of the active rows of consecutive clients."""
        first = int(self.row_end[clients.start - 1]) if clients.start else 0
        return slice(first, int(self.row_end[clients.stop - 1]))

    def trained_values(self) -> Iterator[tuple[str, Tensor, bool]]:
        """Everything that training changes: its key, its value, and whether rows are its leading axis."""
        for name, value in self.values.items():
            yield name, value, self.parameter(name).table
        for name, factor in self.factor.items():
            yield f"{name}/factor", factor, False
        for (name, part), moment in self.moments.items():
            yield f"{name}/{part}", moment, part != "steps" and self.parameter(name).table

    def check(self, loss: Tensor) -> float:
        """Return the mean `loss` as a number; raise `DivergenceError` if a client left the finite numbers.

        The CPU waits for a GPU once.
        """
        # A finite sum proves that all its terms are finite.
        *sums, mean = torch.stack([*(value.sum() for value in self.values.values()), loss]).tolist()
        if all(map(math.isfinite, (*sums, mean))):
            return float(mean)
        broken = {}
        for name, value in self.values.items():
            bad = ~value.flatten(1).isfinite().all(1)
            if self.parameter(name).table:
                bad = torch.bincount(self.row_client[bad], minlength=len(self.who)) > 0
            broken[name] = torch.where(bad, torch.nan, 0.0).unsqueeze(1)
        check_clients_finite(self.task, self.who, self.last_loss, broken)
        return float(mean)

    def _active_rows(self) -> ActiveRows:
        items, layout, sampled = self.task.clients.items, self.layout, self.task.samples.item
        if self.task.needs.whole_tables:
            return ActiveRows(*layout.every_row(items), layout.ordered(sampled).int())
        return active_rows(
            ClientSamples(sampled, layout.first, layout.size, layout.start, layout.samples), items
        )

    def _downloaded(self, name: str) -> Tensor:
        """A copy of the values from which the clients start."""
        state, parameter = self.task.state, self.parameter(name)
        if self.task.starts_from_own_copy(name):
            kept = state.client_tensors[name]
            if parameter.table:
                return kept.rows(self.row_owner, self.row_item)
            return kept.whole(self.who)
        value = state.shared.get(name, state.initial[name])
        return take_rows(value, self.row_item) if parameter.table else value.repeat(len(self.who), 1, 1)
