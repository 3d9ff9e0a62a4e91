"""A federated method in training: who takes part, local rounds, aggregation, scores."""

import time
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional

from fedrec.federation.clients import Clients
from fedrec.federation.draws import participants
from fedrec.federation.engine import Engine, Task
from fedrec.federation.learner import Report
from fedrec.federation.loop import Parameters
from fedrec.federation.method import Method, Weights
from fedrec.federation.server import Server
from fedrec.federation.state import State
from fedrec.randomness import Purpose


class Federation:
    """A `Learner` made of a method, its clients and an engine."""

    logits = True

    def __init__(
        self, method: Method, clients: Clients, engine: Engine, settings: Mapping[str, Any], seed: int
    ) -> None:
        clients.check_pools(settings["negatives"])
        self.method = method
        self.clients = clients
        self.engine = engine
        self.settings = settings
        self.seed = seed
        self.state = State.initial(method, len(clients), seed, clients.device)

    def train_round(self, round_: int) -> Report:
        """See `learner.Learner.train_round`."""
        everyone = torch.arange(len(self.clients), device=self.clients.device)
        who = participants(everyone, self.settings["participation"], self.seed, round_, Purpose.PARTICIPANTS)
        aggregated = participants(who, self.settings["aggregated"], self.seed, round_, Purpose.AGGREGATED)
        start = time.perf_counter()
        samples = self.clients.samples(who, self.settings["negatives"], self.seed, round_)
        server = Server(self.state, self._weights(aggregated))
        outcome = self.engine.run(
            Task(
                self.method, self.state, server, self.clients, who, samples,
                self.settings["batch_size"], self.seed, round_,
            )
        )  # fmt: skip
        loss = float(outcome.loss.mean())
        trained = time.perf_counter()
        server.aggregate()
        shared = sum(value.numel() for value in self.state.shared.values())
        return Report(
            loss=loss,
            clients=len(who),
            down=shared if server.uploaded else 0,
            up=sum(self.state.shared[name].numel() for name in server.uploaded),
            local_seconds=trained - start,
            server_seconds=time.perf_counter() - trained,
            slowest=outcome.slowest,
        )

    def scores(self, who: Tensor, items: Tensor) -> Tensor:
        """See `learner.Learner.scores`."""
        weights: dict[str, Any] = Parameters()
        for name, parameter in self.state.parameters.items():
            kept = self.state.kept.get(name)
            if parameter.table:
                weights[name] = _EvaluatedTable(self.state.shared[name] if kept is None else kept, who)
            else:
                weights[name] = self.state.shared[name] if kept is None else kept[who]
        with torch.no_grad():
            return self.method.score(cast(Weights, weights), items)

    def tensors(self) -> dict[str, Tensor]:
        """See `learner.Learner.tensors`."""
        return self.state.tensors()

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """See `learner.Learner.load`."""
        self.state.load(tensors)

    def _weights(self, aggregated: Tensor) -> Tensor:
        """Each client's share of the mean: by training rows (samples are a fixed multiple), or equal."""
        weight = torch.zeros(len(self.clients), dtype=torch.float64, device=self.clients.device)
        rows = self.clients.rows[aggregated].double()
        share = rows if self.settings["weighting"] == "size" else torch.ones_like(rows)
        weight[aggregated] = share / share.sum()
        return weight


class _EvaluatedTable:
    """A table users are scored with: one for all (items x d), or one each (clients x items x d)."""

    def __init__(self, table: Tensor, who: Tensor) -> None:
        self.table = table
        self.who = who

    def __getitem__(self, items: Tensor) -> Tensor:
        if self.table.dim() == 2:
            return functional.embedding(items, self.table)
        return self.table[self.who.unsqueeze(1), items]
