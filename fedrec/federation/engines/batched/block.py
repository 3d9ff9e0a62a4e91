"""Many clients in one round, as one long tensor per parameter.

Of a table only the rows of sampled items are held, since training moves no other row
(`Method.dense` holds them all), except by SGD's weight decay, which multiplies them by one
factor per client, and by `rewrite`: those are events of the block's `History`. Adam moves a row
whose moments are not zero even where the mini-batch has no sample of it, so all held rows step
together: exactly what torch.optim does on the whole table. `Schedule` cuts the mini-batches,
`Delivery` ends the round.
"""

from collections.abc import Iterator, Mapping
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from fedrec.errors import FederationError
from fedrec.federation.draws import halves, shuffled
from fedrec.federation.engines.batched.deliver import Delivery
from fedrec.federation.engines.batched.optimiser import BlockOptimiser
from fedrec.federation.engines.batched.replay import History, Rewritten, Scaled, Uploaded
from fedrec.federation.engines.batched.schedule import Schedule
from fedrec.federation.engines.engine import Task, check_finite
from fedrec.federation.model.method import Half, Loss, RowsOf, Step
from fedrec.federation.model.parameters import Parameter
from fedrec.federation.model.weights import GatheredRows, HeldRows, Values, powers
from fedrec.federation.server.products import approach_products


class Block:
    """Some clients in one round, sorted by their number of mini-batches, most first."""

    def __init__(self, task: Task, chosen: Tensor, sample: Tensor) -> None:
        """`chosen` are places in the task's clients, `sample` their samples, client by client."""
        self.task = task
        self.round_ = task.round_
        self.who = task.who[chosen]
        self.size = task.samples.size[chosen]
        self.device = self.who.device
        self.labels = task.samples.label[sample]
        self.rank = torch.repeat_interleave(torch.arange(len(chosen), device=self.device), self.size)
        self.row_item, self.row_client, self.slot = self._held_rows(task.samples.item[sample])
        self.values = {name: self._downloaded(name) for name in task.state.visible}
        self.start = {
            name: self.values[name].clone() for name in task.state.shared if self.parameter(name).table
        }
        self.factor = {name: self._ones() for name in self.values if self.parameter(name).table}
        self.derived: dict[str, Tensor] = {}
        self.outside: dict[tuple[str, int], Tensor] = {}
        self.history = History(self)
        self.moments: dict[tuple[str, str], Tensor] = {}
        self.epochs_done = 0
        self.last_loss = torch.full((len(chosen),), task.no_loss, device=self.device)
        self._schedules: dict[Half | None, Schedule] = {}
        self._positive: tuple[Tensor, Tensor, list[int]] | None = None

    def fit(
        self,
        *steps: Step,
        epochs: int,
        loss: Loss,
        early_stop: float | None = None,
        half: Half | None = None,
    ) -> None:
        """See `method.Client.fit`."""
        schedule = self._schedule(half)
        optimisers = [BlockOptimiser(self, step, schedule) for step in steps]
        factor_before = {name: factor.clone() for name, factor in self.factor.items()}
        done = torch.zeros(len(self.who), dtype=torch.bool, device=self.device)
        finished: dict[str, Tensor] = {}
        total = torch.zeros(len(self.who), dtype=torch.float64, device=self.device)
        before = None
        for epoch in range(1, epochs + 1):
            epoch_loss = torch.zeros_like(self.last_loss)
            self._derive()
            for batch in schedule.epoch(self._order(schedule)):
                for optimiser in optimisers:
                    value = optimiser.step(optimiser.rule.loss or loss, batch)
                epoch_loss[: len(value)] += value
            self.last_loss = torch.where(done, self.last_loss, epoch_loss / schedule.batches)
            if early_stop is None:
                continue
            total += epoch_loss
            running = total / (epoch * schedule.batches)
            if before is not None:
                stops = ((running - before).abs() < early_stop * (before + 1e-5)) & ~done
                self._set_aside(stops, finished)
                done |= stops
            before = running
        self._take_back(done, finished)
        for optimiser in optimisers:
            optimiser.store()
        for name, factor in self.factor.items():
            if not torch.equal(factor, factor_before[name]):
                self.history.events.append(Scaled(name, factor / factor_before[name]))

    def rewrite(self, name: str, rows: RowsOf) -> None:
        """See `method.Client.rewrite`."""
        if name in self.task.state.shared or not self.parameter(name).table:
            raise FederationError(f"'{name}' cannot be rewritten: it is shared, or no table.")
        self._derive()
        others = {key: value.clone() for key, value in self._others(len(self.who)).items()}
        self.history.events.append(Rewritten(name, rows, others))
        self.outside = {key: value for key, value in self.outside.items() if key[0] != name}
        weights = self.weights(len(self.who), {})
        counts = torch.bincount(self.row_client, minlength=len(self.who))
        first = counts.cumsum(0) - counts
        column = torch.arange(int(counts.max()), device=self.device)
        inside = column < counts.unsqueeze(1)
        places = first.unsqueeze(1) + torch.where(inside, column, 0)
        with torch.no_grad():
            self.values[name] = rows(weights, places)[inside]

    def upload(self, *names: str, into: str | None = None) -> None:
        """See `method.Client.upload`."""
        for name in names:
            self._upload(name, into or name)

    def upload_products(self, name: str, into: str) -> None:
        """See `method.Client.upload_products`."""
        self._upload(name, into, products=True)

    def approach_products(self, name: str, goal: str, steps: int, rate: float, decay: float) -> None:
        """See `method.Client.approach_products`."""
        if not self.task.method.dense:
            raise FederationError(f"every row of '{name}' moves: the method must say `dense = True`.")
        tables = self.values[name].unflatten(0, (len(self.who), -1))
        moved = approach_products(tables, self.task.server.products(goal), steps, rate, decay)
        self.values[name] = moved.flatten(0, 1)

    def finish(self) -> None:
        """Send the uploads, and store what stays on the clients."""
        Delivery(self).finish()

    def check(self) -> None:
        """Raise `DivergenceError` if a client left the finite numbers."""
        broken = {}
        for name, value in self.values.items():
            bad = ~value.flatten(1).isfinite().all(1)
            if self.parameter(name).table:
                bad = torch.bincount(self.row_client[bad], minlength=len(self.who)) > 0
            broken[name] = torch.where(bad, torch.nan, 0.0).unsqueeze(1)
        check_finite(self.task, self.who, self.last_loss, broken)

    def weights(self, clients: int, trained: Mapping[str, Tensor | GatheredRows]) -> Values:
        """The parameters of the first `clients`; `trained` replaces some by leaves of a graph."""
        values = Values(self._others(clients))
        for name, value in self.values.items():
            part = trained.get(name, value[: self.length(name, clients)])
            if isinstance(part, GatheredRows) or not self.parameter(name).table:
                values[name] = part
            else:
                values[name] = HeldRows(
                    part,
                    partial(self._reduced, name),
                    partial(self._training_sum, part, clients),
                    clients if self.task.method.dense else None,
                )
        return values

    def length(self, name: str, clients: int) -> int:
        """How much of a parameter's leading axis belongs to the first `clients`."""
        return int(self._row_end[clients - 1]) if self.parameter(name).table else clients

    def rows_of(self, clients: slice) -> slice:
        """The held rows of neighbouring clients."""
        first = int(self._row_end[clients.start - 1]) if clients.start else 0
        return slice(first, int(self._row_end[clients.stop - 1]))

    def parameter(self, name: str) -> Parameter:
        """The description of a parameter."""
        return self.task.state.parameters[name]

    def _ones(self) -> Tensor:
        return torch.ones(len(self.who), dtype=torch.float64, device=self.device)

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

    def _schedule(self, half: Half | None) -> Schedule:
        """The mini-batches of all samples, or of a half of each client's training rows."""
        if half not in self._schedules:
            size, slot, labels = self.size, self.slot, self.labels
            if half is not None:
                group = self.task.samples.group
                parts = halves(self.who, size // group, self.task.seed, self.round_)
                chosen = parts[("first", "second").index(half)].repeat_interleave(group)
                size = torch.bincount(self.rank[chosen], minlength=len(size))
                slot, labels = slot[chosen], labels[chosen]
            self._schedules[half] = Schedule(size, slot, labels, self._row_end, self.task.batch_size)
        return self._schedules[half]

    def _order(self, schedule: Schedule) -> Tensor:
        """The order of an epoch's samples."""
        order = shuffled(self.who, schedule.size, self.task.seed, self.round_, self.epochs_done)
        self.epochs_done += 1
        return order

    def _upload(self, name: str, into: str, *, products: bool = False) -> None:
        self.task.server.accept(name, into)
        factor = self.factor[name].clone() if self.parameter(name).table else self._ones()
        self.history.events.append(Uploaded(name, into, self.values[name].clone(), factor, products))

    def _downloaded(self, name: str) -> Tensor:
        """A fresh copy of what the clients start from."""
        state, parameter = self.task.state, self.parameter(name)
        if self.task.starts_alone(name):
            kept = state.kept[name]
            if parameter.table:
                return kept.rows(self.who[self.row_client], self.row_item)
            return kept.whole(self.who)
        value = state.shared.get(name, state.initial[name])
        return value[self.row_item] if parameter.table else value.repeat(len(self.who), 1, 1)

    def _others(self, clients: int) -> dict[str, Tensor]:
        """What a method sees beside tables, of the first `clients`."""
        found = {
            name: value[:clients] for name, value in self.values.items() if not self.parameter(name).table
        }
        found |= {name: value[:clients] for name, value in self.derived.items()}
        state, kind = self.task.state, torch.get_default_dtype()
        found["rows"] = (self.size[:clients] // self.task.samples.group).to(kind)[:, None, None]
        if state.personal:
            found["held"] = state.held[self.who[:clients]].to(kind)[:, None, None]
        return found

    def _derive(self) -> None:
        with torch.no_grad():
            self.derived = self.task.method.derived(self.weights(len(self.who), {}))

    def _reduced(self, name: str, power: int) -> Tensor:
        """A sum over each client's whole table (see `weights.reduced`): held rows, and those outside."""
        held = self._sum_held(powers(self.values[name], power))
        factor = self.factor[name].unsqueeze(1)
        if (name, power) not in self.outside:
            chunks = (self.history.present(name, some) for some in self.history.chunks())
            whole = torch.cat([powers(tables, power).sum(1) for tables in chunks])
            self.outside[name, power] = (whole - held) / factor**power
        total = self.outside[name, power] * factor**power + held
        return total.to(torch.get_default_dtype()).unsqueeze(1)

    def _training_sum(self, rows: Tensor, clients: int) -> Tensor:
        """The sum of the rows of each client's training items, each as often as it was trained on."""
        if self._positive is None:
            positive = self.labels == 1
            counts = torch.bincount(self.rank[positive], minlength=len(self.who))
            self._positive = self.slot[positive], self.rank[positive], counts.cumsum(0).tolist()
        slot, rank, ends = self._positive
        total = rows.new_zeros(clients, rows.shape[1])
        end = ends[clients - 1]
        return total.index_add(0, rank[:end], functional.embedding(slot[:end], rows)).unsqueeze(1)

    def _sum_held(self, rows: Tensor) -> Tensor:
        total = torch.zeros(len(self.who), rows.shape[1], dtype=rows.dtype, device=self.device)
        return total.index_add_(0, self.row_client, rows)

    def _changing(self) -> Iterator[tuple[str, Tensor, bool]]:
        """Everything training changes: its key, its value, and whether it has a leading axis of rows."""
        for name, value in self.values.items():
            yield name, value, self.parameter(name).table
        for name, factor in self.factor.items():
            yield f"{name}/factor", factor, False
        for (name, part), moment in self.moments.items():
            yield f"{name}/{part}", moment, part != "steps" and self.parameter(name).table

    def _set_aside(self, stops: Tensor, finished: dict[str, Tensor]) -> None:
        """Remember the values of clients that stop now; what they compute later is thrown away."""
        if not stops.any():
            return
        for key, value, rows in self._changing():
            mask = stops[self.row_client] if rows else stops
            if key not in finished:
                finished[key] = value.clone()
            finished[key][mask] = value[mask]

    def _take_back(self, done: Tensor, finished: dict[str, Tensor]) -> None:
        """Give the clients that stopped early what was set aside for them."""
        for key, value, rows in self._changing() if finished else ():
            mask = done[self.row_client] if rows else done
            value[mask] = finished[key][mask]
