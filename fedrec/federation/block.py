"""Many clients in one round, as one long tensor per parameter.

Clients of a block are sorted by their number of mini-batches, most first. Then those that
still have a mini-batch are always the first ones, their rows and vectors always the first
rows of one long tensor: no client ever steps on padding, and every step is a few operations
on contiguous memory. Of a table only the rows of sampled items are held, since no other row
can change (`Method.dense` holds them all). Adam moves a row whose moments are not zero even
where the mini-batch has no sample of it, so all held rows step together: exactly what
torch.optim does on the whole table.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from torch.optim.adam import adam

from fedrec.errors import FederationError
from fedrec.federation.draws import shuffled
from fedrec.federation.engine import Task, check_finite
from fedrec.federation.method import Loss, Noise, Step
from fedrec.federation.parameters import Parameter


class Rows:
    """The held rows of a table; indexed by places among them."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows

    def __getitem__(self, places: Tensor) -> Tensor:
        return functional.embedding(places, self.rows)


class BlockWeights(Mapping[str, "Rows | Tensor"]):
    """The parameters of the first clients of a block."""

    def __init__(self, values: dict[str, "Rows | Tensor"]) -> None:
        self._values = values

    def __getattr__(self, name: str) -> "Rows | Tensor":
        return self._values[name]

    def __getitem__(self, name: str) -> "Rows | Tensor":
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


@dataclass
class BlockBatch:
    """A mini-batch of each of the first clients; short ones are filled up with weight 0."""

    items: Tensor
    labels: Tensor
    weight: Tensor

    def mean(self, values: Tensor) -> Tensor:
        """The mean over each client's samples."""
        return (values * self.weight).sum(-1)


@dataclass(frozen=True)
class Group:
    """Neighbouring clients of a block with the same number of mini-batches."""

    batches: int
    clients: slice
    rows: slice


class Block:
    """Some clients in one round, sorted by their number of mini-batches, most first."""

    def __init__(self, task: Task, chosen: Tensor, sample: Tensor) -> None:
        """`chosen` are places in the task's clients, `sample` their samples, client by client."""
        self.task = task
        self.who = task.who[chosen]
        self.size = task.samples.size[chosen]
        self.device = self.who.device
        self.labels = task.samples.label[sample]
        self.rank = torch.repeat_interleave(torch.arange(len(chosen), device=self.device), self.size)
        self.row_item, self.row_client, self.slot = self._held_rows(task.samples.item[sample])
        self.batches = -(-self.size // task.batch_size)
        self.groups = self._groups()
        self.sample_start = self.size.cumsum(0) - self.size
        self.values = self._download()
        self.start = {name: self.values[name].clone() for name in task.state.shared}
        self.outbox: list[tuple[str, Tensor, Noise | None]] = []
        self.epochs_done = 0
        self.last_loss = torch.full((len(chosen),), torch.nan, device=self.device)

    def fit(self, *steps: Step, epochs: int, loss: Loss, early_stop: float | None = None) -> None:
        """See `method.Client.fit`."""
        for step in steps:
            self._refuse_decay_of_held_rows(step)
        optimisers = [_BlockOptimiser(self, step) for step in steps]
        done = torch.zeros(len(self.who), dtype=torch.bool, device=self.device)
        finished: dict[str, Tensor] = {}
        total = torch.zeros(len(self.who), dtype=torch.float64, device=self.device)
        before = None
        for epoch in range(1, epochs + 1):
            epoch_loss = torch.zeros_like(self.last_loss)
            for batch in self._epoch():
                for optimiser in optimisers:
                    value = optimiser.step(loss, batch)
                epoch_loss[: len(value)] += value
            self.last_loss = torch.where(done, self.last_loss, epoch_loss / self.batches)
            if early_stop is None:
                continue
            total += epoch_loss
            running = total / (epoch * self.batches)
            if before is not None:
                stops = ((running - before).abs() < early_stop * (before + 1e-5)) & ~done
                self._set_aside(stops, finished)
                done |= stops
            before = running
        for name, values in finished.items():
            mask = self._mask(name, done)
            self.values[name][mask] = values[mask]

    def upload(self, *names: str, noise: Noise | None = None) -> None:
        """See `method.Client.upload`."""
        for name in names:
            self.task.server.refuse_private(name)
            self.outbox.append((name, self.values[name] - self.start[name], noise))

    def finish(self) -> None:
        """Send the uploads, and store what stays on the clients."""
        server = self.task.server
        for name, change, noise in self.outbox:
            if self._parameter(name).table:
                server.receive_rows(name, self.who[self.row_client], self.row_item, change)
            else:
                server.receive(name, self.who, change)
            if noise is not None:
                # It falls on every row, so one client at a time; the server's sum cannot tell it apart.
                for who in self.who.split(1):
                    server.receive(name, who, noise(name, who, self._parameter(name).shape))
        for name, kept in self.task.state.kept.items():
            if not self._parameter(name).table:
                kept[self.who] = self.values[name]
                continue
            if name in self.task.state.shared:
                # The untouched rows of a kept copy are the server's.
                kept[self.who] = self.task.state.shared[name]
            kept[self.who[self.row_client], self.row_item] = self.values[name]

    def check(self) -> None:
        """Raise `DivergenceError` if a client left the finite numbers."""
        broken = {}
        for name, value in self.values.items():
            bad = ~value.flatten(1).isfinite().all(1)
            if self._parameter(name).table:
                bad = torch.bincount(self.row_client[bad], minlength=len(self.who)) > 0
            broken[name] = torch.where(bad, torch.nan, 0.0).unsqueeze(1)
        check_finite(self.task, self.who, self.last_loss, broken)

    def weights(self, clients: int, trained: Mapping[str, Tensor]) -> BlockWeights:
        """The parameters of the first `clients`; `trained` replaces some by leaves of a graph."""
        rows = self.first_rows(clients)
        values: dict[str, Rows | Tensor] = {}
        for name, value in self.values.items():
            table = self._parameter(name).table
            part = trained.get(name, value[:rows] if table else value[:clients])
            values[name] = Rows(part) if table else part
        return BlockWeights(values)

    def first_rows(self, clients: int) -> int:
        """The number of held rows of the first `clients`."""
        return int(self._row_end[clients - 1])

    def length(self, name: str, clients: int) -> int:
        """How much of a parameter's leading axis belongs to the first `clients`."""
        return self.first_rows(clients) if self._parameter(name).table else clients

    def parts_of(self, name: str) -> list[int]:
        """How much of a parameter's leading axis belongs to each group."""
        table = self._parameter(name).table
        spans = [group.rows if table else group.clients for group in self.groups]
        return [span.stop - span.start for span in spans]

    def _held_rows(self, item: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Item and client of each held row, and the place of each sample's row."""
        items = self.task.clients.items
        if self.task.method.dense:
            clients = len(self.who)
            row_item = torch.arange(items, device=self.device).repeat(clients)
            row_client = torch.arange(clients, device=self.device).repeat_interleave(items)
            slot = self.rank * items + item
        else:
            pair, slot = torch.unique(self.rank * items + item, return_inverse=True)
            row_client, row_item = pair // items, pair % items
        counts = torch.bincount(row_client, minlength=len(self.who))
        self._row_end = counts.cumsum(0).tolist()
        return row_item, row_client, slot

    def _groups(self) -> list[Group]:
        batches, counts = torch.unique_consecutive(self.batches, return_counts=True)
        groups, first, first_row = [], 0, 0
        for number, count in zip(batches.tolist(), counts.tolist(), strict=True):
            end_row = self.first_rows(first + count)
            groups.append(Group(number, slice(first, first + count), slice(first_row, end_row)))
            first, first_row = first + count, end_row
        return groups

    def _download(self) -> dict[str, Tensor]:
        """Fresh copies of what the clients start from, in the order of the method's parameters."""
        state, values = self.task.state, {}
        for name, parameter in state.parameters.items():
            if name in state.shared:
                value = state.shared[name]
                values[name] = value[self.row_item] if parameter.table else value.repeat(len(self.who), 1, 1)
            elif parameter.table:
                values[name] = state.kept[name][self.who[self.row_client], self.row_item]
            else:
                values[name] = state.kept[name][self.who]
        return values

    def _epoch(self) -> Iterator[BlockBatch]:
        """The mini-batches of one epoch: the first of every client, the second of those that have one, ..."""
        task = self.task
        order = shuffled(self.who, self.size, task.seed, task.round_, self.epochs_done)
        self.epochs_done += 1
        slot, label = self.slot[order], self.labels[order]
        column = torch.arange(task.batch_size, device=self.device)
        for number in range(self.groups[0].batches):
            clients = sum(
                group.clients.stop - group.clients.start for group in self.groups if group.batches > number
            )
            left = (self.size[:clients] - number * task.batch_size).clamp(max=task.batch_size)
            inside = column < left.unsqueeze(1)
            first = self.sample_start[:clients] + number * task.batch_size
            # Filling repeats the client's own first sample: a row it holds, with weight 0.
            place = first.unsqueeze(1) + torch.where(inside, column, 0)
            yield BlockBatch(slot[place], label[place], inside / left.unsqueeze(1))

    def _mask(self, name: str, clients: Tensor) -> Tensor:
        return clients[self.row_client] if self._parameter(name).table else clients

    def _set_aside(self, stops: Tensor, finished: dict[str, Tensor]) -> None:
        """Remember the values of clients that stop now; what they compute later is thrown away."""
        if not stops.any():
            return
        for name, value in self.values.items():
            mask = self._mask(name, stops)
            if name not in finished:
                finished[name] = value.clone()
            finished[name][mask] = value[mask]

    def _refuse_decay_of_held_rows(self, step: Step) -> None:
        decayed = [name for name, rate in step.weight_decay.items() if rate and self._parameter(name).table]
        if decayed and not self.task.method.dense:
            raise FederationError(
                f"weight decay on the table {decayed[0]} moves every row: the method must say `dense = True`."
            )

    def _parameter(self, name: str) -> Parameter:
        return self.task.state.parameters[name]


class _BlockOptimiser:
    """One step of a method for a block: gradients of the first clients, then each group's own update.

    Clients of different groups have done different numbers of steps, which Adam and decaying
    rates depend on; all groups are updated by one call all the same.
    """

    def __init__(self, block: Block, step: Step) -> None:
        self.block = block
        self.rule = step
        self.parts = {name: block.parts_of(name) for name in step.rates}
        self.values = {name: block.values[name].split(parts) for name, parts in self.parts.items()}
        adaptive = step.rates if step.optimiser == "adam" else ()
        self.moments = {
            name: [torch.zeros_like(block.values[name]).split(self.parts[name]) for _ in range(2)]
            for name in adaptive
        }
        self.counts = {
            name: [torch.zeros((), device=block.device) for _ in self.parts[name]] for name in adaptive
        }
        self.group_steps = [0] * len(block.groups)

    def step(self, loss: Loss, batch: BlockBatch) -> Tensor:
        """Do the step on one mini-batch of the first clients; return their losses."""
        clients = len(batch.items)
        block = self.block
        leaves = {
            name: block.values[name][: block.length(name, clients)].detach().requires_grad_()
            for name in self.rule.rates
        }
        losses = loss(block.weights(clients, leaves), batch)
        gradients = torch.autograd.grad(losses.sum(), list(leaves.values()))
        active = sum(group.clients.stop <= clients for group in block.groups)
        with torch.no_grad():
            for name, gradient in zip(leaves, gradients, strict=True):
                self._update(name, gradient.split(self.parts[name][:active]))
        for number in range(active):
            self.group_steps[number] += 1
        return losses.detach()

    def _update(self, name: str, gradients: tuple[Tensor, ...]) -> None:
        """Move the parts of the first groups, each by its gradient."""
        rate, decay = self.rule.rates[name], self.rule.weight_decay.get(name, 0.0)
        if self.rule.batch_decay == 1:
            self._move(name, slice(0, len(gradients)), gradients, rate, decay)
            return
        for number, gradient in enumerate(gradients):
            own = rate * self.rule.batch_decay ** self.group_steps[number]
            self._move(name, slice(number, number + 1), (gradient,), own, decay)

    def _move(
        self, name: str, parts: slice, gradients: tuple[Tensor, ...], rate: float, decay: float
    ) -> None:
        values = list(self.values[name][parts])
        if self.rule.optimiser == "sgd":
            for value, gradient in zip(values, gradients, strict=True):
                value.add_(gradient.add(value, alpha=decay) if decay else gradient, alpha=-rate)
            return
        first, second = (list(moment[parts]) for moment in self.moments[name])
        adam(
            values, list(gradients), first, second, [], self.counts[name][parts],
            fused=True, amsgrad=False, maximize=False,
            beta1=0.9, beta2=0.999, eps=1e-8, lr=rate, weight_decay=decay,
        )  # fmt: skip
