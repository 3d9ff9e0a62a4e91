"""Centralised methods: one model trained on everybody's samples, mixed. A round is an epoch."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fedrec.errors import DivergenceError
from fedrec.federation.clients import Clients
from fedrec.federation.draws import counted, philox
from fedrec.federation.learner import Report
from fedrec.federation.parameters import Parameter, initial_values
from fedrec.federation.weights import Values
from fedrec.randomness import Purpose


class CentralMethod(ABC):
    """A model that sees all users: tables of users and of items, and whatever else it names."""

    def __init__(self, settings: Mapping[str, Any], users: int, items: int) -> None:
        self.settings = settings
        self.users = users
        self.items = items

    @abstractmethod
    def parameters(self) -> dict[str, Parameter]:
        """The model's parts; all live on the server."""

    @abstractmethod
    def score(self, w: Values, users: Tensor, items: Tensor) -> Tensor:
        """The logit of each (user, item) pair."""


class CentralLearner:
    """A `Learner` that trains a `CentralMethod` with Adam, whose state lasts over all epochs."""

    logits = True

    def __init__(
        self, method: CentralMethod, clients: Clients, settings: Mapping[str, Any], seed: int
    ) -> None:
        clients.check_pools(settings["negatives"])
        self.method = method
        self.clients = clients
        self.settings = settings
        self.seed = seed
        self.weights = Values(initial_values(method.parameters(), seed, clients.device))
        for value in self.weights.values():
            value.requires_grad_()
        self.optimiser = torch.optim.Adam(self.weights.values(), lr=settings["rate"])

    def train_round(self, round_: int) -> Report:
        """One epoch over all users' samples, in mini-batches mixed over users."""
        start = time.perf_counter()
        everyone = torch.arange(len(self.clients), device=self.clients.device)
        samples = self.clients.samples(everyone, self.settings["negatives"], self.seed, round_)
        user = torch.repeat_interleave(everyone, samples.size)
        word = philox(counted(samples.size), user, round_, int(Purpose.SHUFFLE), self.seed)[:, 0]
        losses = []
        for chosen in torch.argsort(word, stable=True).split(self.settings["batch_size"]):
            self.optimiser.zero_grad()
            score = self.method.score(self.weights, user[chosen], samples.item[chosen])
            loss = functional.binary_cross_entropy_with_logits(score, samples.label[chosen])
            loss.backward()
            self.optimiser.step()
            losses.append(loss.detach())
        mean = float(torch.stack(losses).mean())
        broken = [name for name, value in self.weights.items() if not value.isfinite().all()]
        if broken or mean != mean:
            raise DivergenceError(
                f"epoch {round_}: training diverged; {', '.join(broken) or 'the loss'} is not finite. "
                "Lower the learning rate."
            )
        return Report(mean, len(everyone), 0, 0, time.perf_counter() - start, 0.0)

    def scores(self, who: Tensor, items: Tensor) -> Tensor:
        """See `learner.Learner.scores`."""
        with torch.no_grad():
            return self.method.score(self.weights, who.unsqueeze(1).expand_as(items), items)

    def tensors(self) -> dict[str, Tensor]:
        """The model and Adam's moments and steps."""
        found = {f"shared/{name}": value.detach() for name, value in self.weights.items()}
        for name, value in self.weights.items():
            for key, moment in self.optimiser.state.get(value, {}).items():
                found[f"optimiser/{name}/{key}"] = moment
        return found

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """See `learner.Learner.load`."""
        with torch.no_grad():
            for name, value in self.weights.items():
                value.copy_(tensors[f"shared/{name}"])
                prefix = f"optimiser/{name}/"
                moments = {
                    key.removeprefix(prefix): one for key, one in tensors.items() if key.startswith(prefix)
                }
                # Adam counts its steps on the CPU.
                self.optimiser.state[value] = {
                    key: one.cpu() if key == "step" else one.to(value.device) for key, one in moments.items()
                }

    def notes(self, rounds: int) -> dict[str, Any]:  # noqa: ARG002 - nothing to say
        """See `learner.Learner.notes`."""
        return {}
