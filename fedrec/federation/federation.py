"""A federated method in training: participants, local rounds, aggregation, scores."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional

from fedrec.errors import DivergenceError, FederationError
from fedrec.federation.clients import Clients
from fedrec.federation.collectives import SINGLE, Communicator
from fedrec.federation.draws import participants
from fedrec.federation.engines.engine import Engine, Task
from fedrec.federation.learner import Report
from fedrec.federation.loss_key import LossKeys
from fedrec.federation.loss_numbers import numbers_of
from fedrec.federation.model.client import Program, Rewrite
from fedrec.federation.model.method import Method, Who
from fedrec.federation.model.server_rule import ServerRule
from fedrec.federation.model.tables import PlainTable, Values, reduced
from fedrec.federation.model.weights import Weights
from fedrec.federation.observe.recorder import Recorder
from fedrec.federation.observe.spectrum import information_abundance
from fedrec.federation.own_items import history_of, own_items
from fedrec.federation.privacy.uploads import UploadNoise
from fedrec.federation.program import (
    Needs,
    losses_of,
    needs_of,
    shape_of,
    trace,
    trace_after_aggregation,
    traces_of,
    trains,
)
from fedrec.federation.rules.structure import check_given
from fedrec.federation.server.server import Server
from fedrec.federation.server.shared_values import check_chosen, check_weights
from fedrec.federation.state.client_tensor import ClientTensor
from fedrec.federation.state.state import DENSE_BYTES, State
from fedrec.federation.table_sums import per_table_sums
from fedrec.random.purpose import Purpose

_CHUNK, _CHUNK_ON_GPU = 1 << 25, 1 << 27
"""Elements of whole tables that are processed at once; more on a GPU, since each launch costs time."""
_MOST_PROGRAMS = 64
"""Largest number of cached programs. A loss that reads other values in each round adds one per round."""
_SAMPLED = 100
"""Number of clients whose tables represent those of all clients in the notes on a run."""


class Federation:
    """A `Learner` made of a method, its clients and an engine."""

    logits = True

    def __init__(
        self,
        method: Method,
        clients: Clients,
        engine: Engine,
        settings: Mapping[str, Any],
        seed: int,
        dense_bytes: int = DENSE_BYTES,
        recorder: Recorder | None = None,
        communicator: Communicator = SINGLE,
    ) -> None:
        clients.check_pools(settings["negatives"])
        check_given(method)
        self.method = method
        self.clients = clients
        self.engine = engine
        self.settings = settings
        self.seed = seed
        self.privacy = UploadNoise(settings["ldp"], settings["ldp_clip"], seed) if settings["ldp"] else None
        self.state = State.of_method(
            method, len(clients), seed, clients.device,
            copies=settings["aggregate_from"] > 1, dense_bytes=dense_bytes,
            remote_clients=clients.remote_clients,
        )  # fmt: skip
        self.communicator = communicator
        self.recorder = recorder
        if recorder is not None:
            recorder.start(self.state)
        self.rounds_done = 0
        self.took_part: list[Tensor] = []
        """For each round, a mask of the clients that trained."""
        self._uploads = 0
        """Number of parameters that a client uploaded in the last round."""
        self._derived: dict[str, Tensor] | None = None
        self._constants: dict[str, Tensor] | None = None
        self._weights_of_all: tuple[Tensor, Tensor] | None = None
        """Cache of the weights if all clients are aggregated, and the clients with a weight."""
        self._keys = LossKeys()
        self._needs: dict[tuple[Any, ...], Needs] = {}
        """Cache of programs' needs, by the shape of a program and the keys of its losses."""
        self._traces: dict[tuple[Any, ...], tuple[str, ...]] = {}
        """Cache of the torch calls of losses, by the keys of losses that close over numbers."""

    def train_round(self, round_: int) -> Report:
        """Train round `round_`, counted from 1."""
        start = time.perf_counter()
        who, aggregated = self._participants(round_)
        program = trace(self.method, round_)
        # First, so that a GPU draws while the CPU prepares the rest.
        samples = self.clients.samples(who, self._negatives(program), self.seed, round_)
        self.state.join(who)
        server = self._server(round_, *self._weights(aggregated))
        task = Task(
            self.method, *self._checked(program, server),
            self.state, server, self.clients, who, samples,
            self.settings["batch_size"], self.seed, round_, self.privacy,
            from_own_copies=1 < self.settings["aggregate_from"] >= round_, recorder=self.recorder,
        )  # fmt: skip
        training = self._train(task)
        # With a plain mean the check of finite numbers can wait until the GPU has all its work.
        plain = type(self.method.server) is ServerRule and self.recorder is None
        loss = None if plain else training.mean()
        trained = time.perf_counter()
        aggregates = round_ >= self.settings["aggregate_from"]
        if aggregates:
            server.aggregate(self.method.server)
            self.method.server.finish(server.side())
        self.rounds_done, self._uploads = round_, len(server.uploaded)
        self._derived = self._constants = None
        self.took_part.append(self._mask(who))
        answered = time.perf_counter()
        self._after_aggregation(task)
        if self.recorder is not None:
            who_mixed = server.side().who if server.mixed else server.who
            self.recorder.end_round(self.state, round_, who_mixed, server.mixed, aggregated=aggregates)
        mean = training.mean() if loss is None else loss
        return Report(
            loss=mean if trains(task.program) else math.nan,
            clients=training.clients,
            down=self._downloaded() if server.uploaded and aggregates else 0,
            up=sum(server.uploaded.values()) if aggregates else 0,
            local_seconds=trained - start + time.perf_counter() - answered,
            server_seconds=answered - trained,
            slowest=training.slowest,
        )

    def scores(self, who: Tensor, items: Tensor) -> Tensor:
        """The scores of `items` (clients, k) for the clients `who`: (clients, k)."""
        with torch.no_grad():
            return self.method.score(self.scoring_weights(who), items)

    def scoring_weights(self, who: Tensor) -> Weights:
        """The parameters of the clients `who` as the method sees them when it scores."""
        values, those = self._values(who), self._index(who)
        with torch.no_grad():
            values |= {name: value[those] for name, value in self._derived_values().items()}
        return cast(Weights, values)

    def _index(self, who: Tensor) -> Tensor | slice:
        """Index that selects the clients `who` from all, without a copy if they are consecutive."""
        span = self.clients.span(who)
        return who if span is None else span

    def tensors(self) -> dict[str, Tensor]:
        """The state of training by name, for a checkpoint or a stored model."""
        extra = {} if self.recorder is None else self.recorder.tensors()
        # Before the first round, only the row of nobody can be stacked.
        nobody = torch.zeros_like(self.state.joined)
        return (
            self.state.tensors()
            | extra
            | {
                "clients/took_part": torch.stack([nobody, *self.took_part])[1:],
                "rounds": torch.tensor(self.rounds_done),
            }
        )

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore from the result of `tensors()`."""
        self.state.load(tensors)
        if self.recorder is not None:
            self.recorder.load(tensors)
        self.rounds_done = int(tensors["rounds"])
        self._derived = self._constants = None
        self.took_part = list(tensors["clients/took_part"].to(self.clients.device))

    def negative_draws(self, round_: int) -> list[tuple[Tensor, Purpose]]:
        """The clients that drew training negatives in a finished round, with the purpose of the draws."""
        trained = self.took_part[round_ - 1].nonzero().squeeze(1)
        draws = [(trained, Purpose.NEGATIVES)] if trains(trace(self.method, round_)) else []
        _, who = trace_after_aggregation(self.method, round_)
        if who != "nobody":
            draws.append((self._clients_after_aggregation(who, trained), Purpose.LATE_NEGATIVES))
        return draws

    def _negatives(self, program: Program) -> int:
        """Number of training negatives of each positive: 0 if the program trains nothing."""
        return int(self.settings["negatives"]) if trains(program) else 0

    def notes(self, rounds: int) -> dict[str, Any]:
        """Facts for `run.json` after `rounds`."""
        samples = self.communicator.all_gather(self.clients.sizes) * (1 + self.settings["negatives"])
        guarantees = self.method.privacy(samples, rounds)
        if self.privacy is not None:
            guarantees = guarantees | {"uploads": self.privacy.report(rounds, max(1, self._uploads))}
        noted = {"privacy": guarantees} if guarantees else {}
        return noted | self.engine.notes() | {"information_abundance": self._abundance()}

    def _participants(self, round_: int) -> tuple[Tensor, Tensor]:
        """The clients that train in a round, and the clients whose uploads the server aggregates."""
        clients, count = self.clients.total_clients, self.settings["clients"]
        share = self.settings["participation"] if count is None else min(1.0, (count + 0.5) / clients)
        side = self._server(round_, self._zero_weights).side()
        self.method.server.begin(side)
        chosen = self.method.server.choose(side, max(1, int(clients * share)))
        if chosen is None and min(share, self.settings["aggregated"]) >= 1:
            # The usual case: all clients take part, so nothing is drawn or exchanged between processes.
            return self.clients.everyone, self.clients.everyone
        everyone = self._everyone()
        if chosen is None:
            chosen = participants(everyone, share, self.seed, round_, Purpose.PARTICIPANTS)
        else:
            check_chosen(chosen, clients)
        aggregated = participants(chosen, self.settings["aggregated"], self.seed, round_, Purpose.AGGREGATED)
        return self._local(chosen), self._local(aggregated)

    def _everyone(self) -> Tensor:
        """The global indices of the clients of all processes."""
        if self.communicator.size == 1:
            return self.clients.everyone
        return torch.arange(self.clients.total_clients, device=self.clients.device)

    def _local(self, numbers: Tensor) -> Tensor:
        """The clients of this process among `numbers` (global indices); `everyone` itself if all are."""
        if self.communicator.size > 1 and len(numbers) == self.clients.total_clients:
            return self.clients.everyone
        return self.clients.local_index(numbers)

    def _server(self, round_: int, weight: Tensor, weighted: Tensor | None = None) -> Server:
        """The server of a round, given each client's weight and, if known, the clients with a weight."""
        return Server(
            self.state, weight, self.seed, round_, recorder=self.recorder, communicator=self.communicator,
            remote_clients=self.clients.remote_clients, weighted=weighted,
        )  # fmt: skip

    @cached_property
    def _zero_weights(self) -> Tensor:
        """Weights of 0 for all clients."""
        return torch.zeros(len(self.clients), device=self.clients.device)

    def _mask(self, who: Tensor) -> Tensor:
        """Mask of the clients `who`: (clients)."""
        if who is self.clients.everyone:
            return self._full_mask
        return torch.zeros_like(self.state.joined).index_fill_(0, who, True)

    @cached_property
    def _full_mask(self) -> Tensor:
        return torch.ones_like(self.state.joined)

    def _train(self, task: Task) -> "_Training":
        """Train the clients of a task."""
        if self.communicator.size > 1:
            return self._train_across_processes(task)
        outcome = self.engine.run(task)
        return _Training(outcome.mean, len(task.who), outcome.slowest)

    def _train_across_processes(self, task: Task) -> "_Training":
        """Train the clients of all processes; if a client diverges, every process ends the round."""
        if self.recorder is not None:
            self.recorder.expect_uploads(self.state, task.server.sources)
        report, error = [0.0, 0.0, -1.0, 0.0], ""
        try:
            # Clients of other processes may train if no client of this process does.
            if len(task.who):
                outcome = self.engine.run(task)
                outcome.mean()
                slowest = -1.0 if outcome.slowest is None else outcome.slowest
                report = [outcome.loss.double().sum().item(), len(task.who), slowest, 0.0]
        except DivergenceError as diverged:
            report[-1], error = 1.0, str(diverged)
        losses, counts, seconds, failed = self.communicator.all_gather(
            torch.tensor([report], dtype=torch.float64)
        ).T
        if failed.any():
            raise DivergenceError(next(filter(None, self.communicator.all_gather_object(error))))
        slowest = float(seconds.max())
        count = int(counts.sum())
        mean = float(losses.sum()) / max(1, count)
        return _Training(lambda: mean, count, slowest if slowest >= 0 else None)

    def _after_aggregation(self, task: Task) -> None:
        """Run the clients' hook after aggregation."""
        program, who = trace_after_aggregation(self.method, task.round_)
        if who == "nobody":
            return
        program, needs = self._checked(program, task.server)
        working = self._clients_after_aggregation(who, task.who)
        negatives, purpose = self.settings["negatives"], Purpose.LATE_NEGATIVES
        samples = self.clients.samples(working, negatives, self.seed, task.round_, purpose)
        alone = self.rounds_done < self.settings["aggregate_from"]
        late = replace(
            task,
            program=program,
            needs=needs,
            who=working,
            samples=samples,
            from_own_copies=alone,
            after_aggregation=True,
        )
        if self.communicator.size == 1:
            self.engine.run(late).mean()
        else:
            self._train_across_processes(late)

    def _clients_after_aggregation(self, who: Who, trained: Tensor) -> Tensor:
        """The clients that run the hook after aggregation, given those that `trained`."""
        return self.clients.everyone if who == "everyone" else trained

    def _checked(self, program: Program, server: Server) -> tuple[Program, Needs]:
        """Return a program and its needs; raise `FederationError` if the program breaks a rule."""
        for operation in program:
            if isinstance(operation, Rewrite):
                part = self.state.parameters[operation.name]
                if not part.table or operation.name in self.state.shared or part.location == "given":
                    raise FederationError(
                        f"'{operation.name}' cannot be rewritten: it is shared, given, or no table. Rewrite "
                        "a table that the client keeps."
                    )
        server.accept(program)
        known = (shape_of(program), *(self._keys.of(loss, numbers=False) for loss in losses_of(program)))
        traces = self._traces_of(program)
        key = (*known, traces)
        if key not in self._needs:
            if len(self._needs) >= _MOST_PROGRAMS:
                self._needs.clear()
            self._needs[key] = replace(needs_of(program, self.method), traces=traces)
        return program, self._needs[key]

    def _traces_of(self, program: Program) -> tuple[str, ...]:
        """The torch calls of losses that close over numbers, traced once for each value of the numbers."""
        numbers = tuple(self._keys.of(loss) for loss in losses_of(program) if numbers_of(loss))
        if not numbers:
            return ()
        if numbers not in self._traces:
            if len(self._traces) >= _MOST_PROGRAMS:
                self._traces.clear()
            self._traces[numbers] = traces_of(program, self.method)
        return self._traces[numbers]

    def _values(self, who: Tensor) -> Values:
        """The read-only parameters for scoring some clients, without derived values."""
        values, those = Values(), self._index(who)
        for name in self.state.visible:
            kept, common = self._scoring_tensor(name), self._server_value(name)
            if self.state.parameters[name].table:
                values[name] = _ScoredTable(self.clients, who, kept, common)
            elif kept is None:
                values[name] = common
            else:
                values[name] = kept.view(those) if isinstance(those, slice) else kept.whole(those)
        values |= {name: numbers[those] for name, numbers in self._client_constants().items()}
        values["own"] = PlainTable(partial(own_items, self.clients, who))
        values["history"] = partial(history_of, self.clients, who)
        return values

    def _client_constants(self) -> dict[str, Tensor]:
        """Values other than parameters that a method sees, for all clients, constant until the next round."""
        if self._constants is None:
            numbers = {"interactions": self.clients.sizes, "held": self.state.held}
            dtype = torch.get_default_dtype()
            self._constants = {name: each.to(dtype)[:, None, None] for name, each in numbers.items()}
        return self._constants

    def _server_value(self, name: str) -> Tensor:
        """The server's value, or else the initial value."""
        return self.state.shared.get(name, self.state.initial[name])

    def _abundance(self) -> dict[str, float]:
        """Information abundance of each server table; for tables that clients keep, its mean over some."""
        clients = self.clients.total_clients
        spread = torch.linspace(0, clients - 1, min(_SAMPLED, clients))
        some = self.clients.local_index(spread.long().unique().to(self.clients.device))
        abundance = {}
        for name, parameter in self.state.parameters.items():
            if parameter.table and name in self.state.shared:
                abundance[f"shared/{name}"] = float(information_abundance(self.state.shared[name]))
            if parameter.table and name in self.state.client_tensors:
                tables = (self.state.client_tensors[name].whole(who) for who in some.split(1) if len(who))
                each = torch.cat([torch.empty(0, dtype=torch.float64, device=some.device),
                                  *(information_abundance(table) for table in tables)])  # fmt: skip
                abundance[f"kept/{name}"] = float(self.communicator.all_gather(each).mean())
        return abundance

    def _scoring_tensor(self, name: str) -> ClientTensor | None:
        """The clients' own values for scoring; None if the server's value serves all clients."""
        location = self.state.parameters[name].location
        own = name in self.method.scored_with_own_copy or self.rounds_done < self.settings["aggregate_from"]
        return self.state.client_tensors.get(name) if location != "shared" or own else None

    def _derived_values(self) -> dict[str, Tensor]:
        """The values derived from whole tables, for all clients, computed once a round."""
        if self._derived is None:
            everyone = self.clients.everyone
            width = sum(part.count for part in self.state.parameters.values())
            chunk = _CHUNK_ON_GPU if everyone.device.type == "cuda" else _CHUNK
            first, *others = everyone.split(max(1, chunk // width))
            # Most methods derive nothing, so the other chunks are skipped.
            chunks = [derived, *map(self._derive, others)] if (derived := self._derive(first)) else [{}]
            self._derived = {name: torch.cat([chunk[name] for chunk in chunks]) for name in chunks[0]}
        return self._derived

    def _derive(self, who: Tensor) -> dict[str, Tensor]:
        return {
            name: value.expand(len(who), *value.shape[-2:])
            for name, value in self.method.derived(cast(Weights, self._values(who))).items()
        }

    def _downloaded(self) -> int:
        """Number of elements that a client downloads."""
        on_server = ("shared", "server", "personal")
        parts = self.state.parameters.values()
        return sum(part.count for part in parts if part.location in on_server and part.downloaded)

    def _weights(self, aggregated: Tensor) -> tuple[Tensor, Tensor | None]:
        """Each client's share of the mean, and the clients with a share if known.

        Shares are equal, or proportional to training interactions. If all clients are aggregated, they are
        the same in every round and cached.
        """
        if aggregated is not self.clients.everyone:
            return self._shares(aggregated), None
        if self._weights_of_all is None:
            shares = self._shares(aggregated)
            self._weights_of_all = shares, shares.nonzero().squeeze(1)
        return self._weights_of_all

    def _shares(self, aggregated: Tensor) -> Tensor:
        weight = torch.zeros(len(self.clients), dtype=torch.float64, device=self.clients.device)
        sizes = self.clients.sizes[aggregated]
        weights = self.method.server.weights(sizes)
        check_weights(weights, sizes)
        sizes = weights.double()
        share = sizes if self.settings["weighting"] == "size" else torch.ones_like(sizes)
        weight[aggregated] = share / self.communicator.all_reduce(share.sum())
        return weight


@dataclass(frozen=True)
class _Training:
    """Local training: the mean loss (see `Outcome`), the number of clients, the seconds of the slowest."""

    mean: Callable[[], float]
    clients: int
    slowest: float | None


@dataclass(frozen=True)
class _ScoredTable:
    """A table for scoring, one per client or `common` to all; only the rows of scored items are looked up."""

    clients: Clients
    who: Tensor
    kept: ClientTensor | None
    common: Tensor

    def __getitem__(self, items: Tensor) -> Tensor:
        if self.clients.is_catalogue(items):
            return self.whole().expand(len(self.who), -1, -1)
        if self.kept is None:
            return functional.embedding(items, self.common)
        if items.dim() > 2:
            rows: Tensor = self[items.flatten(1)].unflatten(1, items.shape[1:])
            return rows
        return self.kept.rows(self.who.unsqueeze(1).expand_as(items), items)

    def whole(self) -> Tensor:
        """All rows: (clients, items, d), or (items, d) for a common table."""
        if self.kept is None:
            return self.common
        span = self.clients.span(self.who)
        return self.kept.whole(self.who) if span is None else self.kept.view(span)

    def squared_norm(self) -> Tensor:
        """The sum of the squares of each table."""
        whole = self.whole()
        return (
            reduced(whole, 2) if self.kept is None else per_table_sums(whole, 2).to(whole.dtype).unsqueeze(1)
        )

    def row_sum(self) -> Tensor:
        """The sum of the rows of each table."""
        return reduced(self.whole(), 1)

    def training_sum(self) -> Tensor:
        """The sum of the rows of each client's training items."""
        item, place = self.clients.training(self.who)
        rows = self.common[item] if self.kept is None else self.kept.rows(self.who[place], item)
        return rows.new_zeros(len(self.who), rows.shape[1]).index_add(0, place, rows).unsqueeze(1)
