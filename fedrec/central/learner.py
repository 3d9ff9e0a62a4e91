"""Training of a centralised method on the mixed samples of all users; a round is an epoch."""

import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.central.adam import Adam
from fedrec.central.finite import check_model_finite
from fedrec.central.method import CentralMethod
from fedrec.central.steps import EpochSamples, Steps
from fedrec.federation.clients import Clients
from fedrec.federation.draws import first_words
from fedrec.federation.learner import Learner, Report
from fedrec.federation.model.parameters import initial_values
from fedrec.federation.model.tables import PlainTable, Values
from fedrec.federation.pairs import aranges
from fedrec.random.purpose import Purpose

_OPTIMISER = "optimiser/"


class CentralLearner(Learner):
    """A `Learner` that trains a `CentralMethod` with Adam, whose state lasts over all epochs.

    With `plain`, torch takes the steps one by one; faster steps must give the same numbers.
    """

    logits = True

    def __init__(
        self,
        method: CentralMethod,
        clients: Clients,
        settings: Mapping[str, Any],
        seed: int,
        *,
        plain: bool = False,
    ) -> None:
        clients.check_pools(settings["negatives"])
        method.prepare(clients)
        self.method = method
        self.clients = clients
        self.settings = settings
        self.seed = seed
        parameters = method.parameters()
        self.values = initial_values(parameters, seed, clients.device)
        for value in self.values.values():
            value.requires_grad_()
        self.weights = Values(
            {
                name: PlainTable(value) if parameters[name].table else value
                for name, value in self.values.items()
            }
        )
        self.optimiser = Adam(self.values, settings["rate"])
        self.steps = (
            Steps(self.optimiser.steps_of(method, self.weights), settings["batch_size"])
            if plain
            else method.steps(self.weights, self.optimiser, clients.device)
        )
        self._scored_with: Values | None = None

    @override
    def train_round(self, round_: int) -> Report:
        """Train one epoch on the samples of all users, in mini-batches mixed over users."""
        start = time.perf_counter()
        everyone = self.clients.everyone
        samples = self.clients.samples(everyone, self.settings["negatives"], self.seed, round_)
        width = 1 + self.settings["negatives"] if self.method.whole_rows else 1
        shape = (-1, width) if self.method.whole_rows else (-1,)
        item, label, size = samples.item.view(shape), samples.label.view(shape), samples.size // width
        user = torch.repeat_interleave(everyone, size)
        word = first_words(aranges(size), user, self.seed, round_, Purpose.SHUFFLE)
        order = torch.argsort(word, stable=True)
        mean = self.steps.epoch(EpochSamples(user[order], item[order], label[order]))
        self._scored_with = None
        check_model_finite(round_, mean, self.values)
        return Report(mean, len(everyone), 0, 0, time.perf_counter() - start, 0.0)

    @override
    def scores(self, who: Tensor, items: Tensor) -> Tensor:
        with torch.no_grad():
            if self._scored_with is None:
                self._scored_with = self.method.forward(self.weights)
            return self.method.score(self._scored_with, who.unsqueeze(1).expand_as(items), items)

    @override
    def tensors(self) -> dict[str, Tensor]:
        """The model and Adam's moments and steps."""
        tensors = {f"shared/{name}": value.detach() for name, value in self.values.items()}
        tensors |= {f"{_OPTIMISER}{name}": tensor for name, tensor in self.optimiser.tensors()}
        return tensors

    @override
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self._scored_with = None
        with torch.no_grad():
            for name, value in self.values.items():
                value.copy_(tensors[f"shared/{name}"])
        own = {name.removeprefix(_OPTIMISER): tensor for name, tensor in tensors.items()}
        self.optimiser.load(own)

    @override
    def notes(self, rounds: int) -> dict[str, Any]:
        status = self.steps.status
        return {"training": {", ".join(self.values): status}} if status else {}

    @override
    def negative_draws(self, round_: int) -> list[tuple[Tensor, Purpose]]:
        return [(self.clients.everyone, Purpose.NEGATIVES)]
