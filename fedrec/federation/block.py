"""Many clients in one round, as one long tensor per parameter.

Clients of a block are sorted by their number of mini-batches, most first. Then those that
still have a mini-batch are always the first ones, their rows and vectors always the first
rows of one long tensor: no client ever steps on padding, and every step is a few operations
on contiguous memory. Of a table only the rows of sampled items are held, since training moves
no other row (`Method.dense` holds them all), except by SGD's weight decay, which multiplies
them by one factor per client, and by `rewrite`, which is repeated on whole tables at the end.
Adam moves a row whose moments are not zero even where the mini-batch has no sample of it, so
all held rows step together: exactly what torch.optim does on the whole table.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from fedrec.errors import FederationError
from fedrec.federation.draws import shuffled
from fedrec.federation.engine import Task, check_finite
from fedrec.federation.kept import Kept
from fedrec.federation.method import Loss, RowsOf, Step
from fedrec.federation.parameters import Parameter
from fedrec.federation.update import BlockOptimiser
from fedrec.federation.weights import ClientTables, GatheredRows, HeldRows, Values, powers

_CHUNK = 1 << 24
"""Numbers of whole tables that are worked on at once."""


@dataclass
class BlockBatch:
    """A mini-batch of each of the first clients; short ones are filled up with weight 0."""

    items: Tensor
    labels: Tensor
    weight: Tensor
    number: int
    """Its place in the epoch, from 0."""

    def mean(self, values: Tensor) -> Tensor:
        """The mean over each client's samples."""
        return (values * self.weight).sum(-1)

    def distinct(self) -> Tensor:
        """See `method.Batch.distinct`."""
        # Filling repeats a client's first sample, behind which the stable sort puts it.
        ordered, order = torch.sort(self.items, dim=1, stable=True)
        first = torch.ones_like(self.weight)
        first[:, 1:] = (ordered[:, 1:] != ordered[:, :-1]).to(first.dtype)
        return torch.zeros_like(first).scatter_(1, order, first)


@dataclass(frozen=True)
class Group:
    """Neighbouring clients of a block with the same number of mini-batches."""

    batches: int
    clients: slice
    rows: slice


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
    """A parameter was uploaded with these values (held rows of a table); `factor` as in `Scaled`."""

    name: str
    into: str
    values: Tensor
    factor: Tensor


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
        self.batches = -(-self.size // task.batch_size)
        self.groups = self._groups()
        self.sample_start = self.size.cumsum(0) - self.size
        self._widths = self._batch_widths()
        self.values = {name: self._downloaded(name) for name in task.state.parameters}
        self.start = {name: self.values[name].clone() for name in task.state.shared}
        self.factor = {name: self._ones() for name, one in task.state.parameters.items() if one.table}
        self.derived: dict[str, Tensor] = {}
        self.outside: dict[tuple[str, int], Tensor] = {}
        self.log: list[Scaled | Rewritten | Uploaded] = []
        self.moments: dict[tuple[str, str], Tensor] = {}
        self.epochs_done = 0
        self.last_loss = torch.full((len(chosen),), torch.nan, device=self.device)

    def fit(self, *steps: Step, epochs: int, loss: Loss, early_stop: float | None = None) -> None:
        """See `method.Client.fit`."""
        optimisers = [BlockOptimiser(self, step) for step in steps]
        factor_before = {name: factor.clone() for name, factor in self.factor.items()}
        done = torch.zeros(len(self.who), dtype=torch.bool, device=self.device)
        finished: dict[str, Tensor] = {}
        total = torch.zeros(len(self.who), dtype=torch.float64, device=self.device)
        before = None
        for epoch in range(1, epochs + 1):
            epoch_loss = torch.zeros_like(self.last_loss)
            self._derive()
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
        self._take_back(done, finished)
        for optimiser in optimisers:
            optimiser.store()
        for name, factor in self.factor.items():
            if not torch.equal(factor, factor_before[name]):
                self.log.append(Scaled(name, factor / factor_before[name]))

    def rewrite(self, name: str, rows: RowsOf) -> None:
        """See `method.Client.rewrite`."""
        if name in self.task.state.shared or not self.parameter(name).table:
            raise FederationError(f"'{name}' cannot be rewritten: it is shared, or no table.")
        self._derive()
        others = {key: value.clone() for key, value in self._others(len(self.who)).items()}
        self.log.append(Rewritten(name, rows, others))
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
            goal = into or name
            self.task.server.refuse(name, goal)
            factor = self.factor[name].clone() if self.parameter(name).table else self._ones()
            self.log.append(Uploaded(name, goal, self.values[name].clone(), factor))

    def finish(self) -> None:
        """Send the uploads, and store what stays on the clients."""
        if any(isinstance(event, Rewritten) or self._is_whole(event) for event in self.log):
            for clients in self._chunks():
                self._replay(clients)
        else:
            for event in self.log:
                if isinstance(event, Uploaded):
                    self._send_changes(event)
            for name, kept in self._kept_tables():
                if not self.task.starts_alone(name):
                    # The rows of a kept copy that are not held are the server's.
                    kept.restart(self.who, self.task.state.shared[name])
                if (self.factor[name] != 1).any():
                    kept.scale(self.who, self.factor[name])
        for name, kept in self.task.state.kept.items():
            if self.parameter(name).place == "personal":
                continue
            if self.parameter(name).table:
                kept.put_rows(self.who[self.row_client], self.row_item, self.values[name])
            else:
                kept.put(self.who, self.values[name])

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
                values[name] = HeldRows(part, partial(self._reduced, name))
        return values

    def length(self, name: str, clients: int) -> int:
        """How much of a parameter's leading axis belongs to the first `clients`."""
        return int(self._row_end[clients - 1]) if self.parameter(name).table else clients

    def parts_of(self, name: str) -> list[int]:
        """How much of a parameter's leading axis belongs to each group."""
        table = self.parameter(name).table
        spans = [group.rows if table else group.clients for group in self.groups]
        return [span.stop - span.start for span in spans]

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

    def _groups(self) -> list[Group]:
        batches, counts = torch.unique_consecutive(self.batches, return_counts=True)
        groups, first, first_row = [], 0, 0
        for number, count in zip(batches.tolist(), counts.tolist(), strict=True):
            end_row = int(self._row_end[first + count - 1])
            groups.append(Group(number, slice(first, first + count), slice(first_row, end_row)))
            first, first_row = first + count, end_row
        return groups

    def _batch_widths(self) -> list[int]:
        """The samples of the longest mini-batch of each number."""
        sizes, longest = self.size.cpu(), self.task.batch_size
        return [
            int((sizes - number * longest).clamp(max=longest).max())
            for number in range(self.groups[0].batches)
        ]

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
        if self.task.state.personal:
            held = self.task.state.held[self.who[:clients]]
            found["held"] = held.to(torch.get_default_dtype())[:, None, None]
        return found

    def _derive(self) -> None:
        with torch.no_grad():
            self.derived = self.task.method.derived(self.weights(len(self.who), {}))

    def _reduced(self, name: str, power: int) -> Tensor:
        """A sum over each client's whole table (see `weights.reduced`): held rows, and those outside."""
        held = self._sum_held(powers(self.values[name], power))
        factor = self.factor[name].unsqueeze(1)
        if (name, power) not in self.outside:
            whole = torch.cat([powers(self._present(name, some), power).sum(1) for some in self._chunks()])
            self.outside[name, power] = (whole - held) / factor**power
        total = self.outside[name, power] * factor**power + held
        return total.to(torch.get_default_dtype()).unsqueeze(1)

    def _sum_held(self, rows: Tensor) -> Tensor:
        total = torch.zeros(len(self.who), rows.shape[1], dtype=rows.dtype, device=self.device)
        return total.index_add_(0, self.row_client, rows)

    def _present(self, name: str, clients: slice) -> Tensor:
        """The whole tables of some clients of the block as they are now."""
        tables = self._started(clients)
        for event in self.log:
            self._repeat(event, clients, tables)
        mine = self._rows_of(clients)
        value = tables[name].clone()
        value[self.row_client[mine] - clients.start, self.row_item[mine]] = self.values[name][mine]
        return value

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
            inside = column[: self._widths[number]] < left.unsqueeze(1)
            first = self.sample_start[:clients] + number * task.batch_size
            # Filling repeats the client's own first sample: a row it holds, with weight 0.
            place = first.unsqueeze(1) + torch.where(inside, column[: inside.shape[1]], 0)
            yield BlockBatch(slot[place], label[place], inside / left.unsqueeze(1), number)

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

    def _kept_tables(self) -> Iterator[tuple[str, Kept]]:
        for name, kept in self.task.state.kept.items():
            if self.parameter(name).table and self.parameter(name).place != "personal":
                yield name, kept

    def _is_whole(self, event: Scaled | Rewritten | Uploaded) -> bool:
        """Whether an upload is of a whole table: clients did not all start from the server's."""
        return isinstance(event, Uploaded) and (
            event.name != event.into or self.task.starts_alone(event.name)
        )

    def _send_changes(self, event: Uploaded) -> None:
        """Upload changes to what all clients started from."""
        server, name = self.task.server, event.name
        if not self.parameter(name).table:
            self._send(event.into, self.who, event.values - self.start[name])
            return
        by_row = event.factor[self.row_client].to(event.values.dtype).unsqueeze(1)
        change, shrunk = event.values - by_row * self.start[name], event.factor - 1
        if self.task.privacy is not None:
            kept = self.task.privacy.shrinkage(self._change_norm(name, change, shrunk))
            change, shrunk = change * kept[self.row_client].to(change.dtype).unsqueeze(1), shrunk * kept
        server.receive_rows(event.into, self.who[self.row_client], self.row_item, change)
        if (shrunk != 0).any():
            server.receive_scaling(event.into, self.who, shrunk)
        self._send_noise(event.into, self.who)

    def _change_norm(self, name: str, change: Tensor, shrunk: Tensor) -> Tensor:
        """The L1 norm of each client's change: what its held rows gained, and the shrinkage of all rows.

        Held rows of `change` come on top of the shrinkage, which is part of theirs too.
        """
        start = self.start[name]
        whole = self.task.state.shared[name].double().abs().sum() * shrunk.abs()
        shrunken = shrunk[self.row_client].unsqueeze(1) * start
        gained = (change + shrunken).double().abs().sum(1) - shrunken.double().abs().sum(1)
        return whole.index_add(0, self.row_client, gained)

    def _send(self, into: str, who: Tensor, change: Tensor) -> None:
        """Upload whole changes of some clients, clipped and noised if asked for."""
        if self.task.privacy is not None:
            kept = self.task.privacy.shrinkage(change.double().abs().flatten(1).sum(1))
            change = change * kept.to(change.dtype).reshape(-1, *(1 for _ in change.shape[1:]))
        self.task.server.receive(into, who, change)
        self._send_noise(into, who)

    def _send_noise(self, into: str, who: Tensor) -> None:
        """It falls on every number, so some clients at a time; the server's sum cannot tell it apart."""
        privacy = self.task.privacy
        if privacy is None:
            return
        at_once = max(1, _CHUNK // self.parameter(into).count)
        for some in who.split(at_once):
            noise = privacy.draw(self.task.state.parameters, into, some, self.round_)
            self.task.server.receive(into, some, noise)

    def _chunks(self) -> Iterator[slice]:
        """Neighbouring clients whose whole tables are worked on at once."""
        widths = [one.shape[1] for one in self.task.state.parameters.values() if one.table]
        at_once = max(1, _CHUNK // (self.task.clients.items * sum(widths)))
        for first in range(0, len(self.who), at_once):
            yield slice(first, min(first + at_once, len(self.who)))

    def _rows_of(self, clients: slice) -> slice:
        """The held rows of neighbouring clients."""
        first = int(self._row_end[clients.start - 1]) if clients.start else 0
        return slice(first, int(self._row_end[clients.stop - 1]))

    def _replay(self, clients: slice) -> None:
        """Repeat the round's events on the whole tables of some clients of the block."""
        who, tables = self.who[clients], self._started(clients)
        mine = self._rows_of(clients)
        row_client, row_item = self.row_client[mine] - clients.start, self.row_item[mine]
        for event in self.log:
            self._repeat(event, clients, tables)
            if not isinstance(event, Uploaded):
                continue
            value = event.values[clients] if event.name not in tables else tables[event.name].clone()
            if event.name in tables:
                value[row_client, row_item] = event.values[mine]
            self._send(event.into, who, value - self.task.server.reference(event.into, who))
        for name, kept in self._kept_tables():
            kept.put(who, tables[name])

    def _repeat(
        self, event: Scaled | Rewritten | Uploaded, clients: slice, tables: dict[str, Tensor]
    ) -> None:
        """Do to whole tables what an event did to rows that are not held."""
        if isinstance(event, Scaled):
            factor = event.factor[clients, None, None].to(tables[event.name].dtype)
            tables[event.name] = tables[event.name] * factor
        elif isinstance(event, Rewritten):
            others = {name: value[clients] for name, value in event.others.items()}
            view = Values(others | {name: ClientTables(table) for name, table in tables.items()})
            every = torch.arange(self.task.clients.items, device=self.device)
            every = every.expand(clients.stop - clients.start, -1)
            with torch.no_grad():
                tables[event.name] = event.rows(view, every)

    def _started(self, clients: slice) -> dict[str, Tensor]:
        """The whole tables some clients of the block started the round from."""
        state, who = self.task.state, self.who[clients]
        return {
            name: state.kept[name].whole(who)
            if self.task.starts_alone(name)
            else state.shared.get(name, state.initial[name]).expand(len(who), -1, -1)
            for name, one in state.parameters.items()
            if one.table
        }
