"""CentRAP: FedRAP with all data in one place, a baseline of FedRAP's paper.

score     u_i . (c_j + d_ij) + b_i, as FedRAP's
loss      FedRAP's (its Eq. 3), with its curriculum; means are over a mini-batch mixed over users
training  SGD with weight decay of all parameters, with FedRAP's rates
scored    with the newest parameters

The paper describes CentRAP in one sentence, without its training. `mode=mixed` is ordinary mini-batch
training. `mode=synchronous` takes one step per epoch. Each user's parameters move by the mean loss of all its
samples, and C by the mean of its gradients over users. That equals FedRAP with one local epoch, one
mini-batch and all clients.

`personal_rate` sets a separate rate for D. A personal row has few samples in a mini-batch; a shared row has
those of all users. With one rate for both, a rate at which D learns makes C diverge.

Engine code: D has (clients x items, d) numbers, so this file is written for little memory, not to be read
like the paper. Weight decay shrinks all rows of D by the same factor. So D is stored as rows times one
factor, and a step changes only the rows of its samples.
"""

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from fedrec.central.finite import check_model_finite
from fedrec.central.steps import EpochSamples, usual_steps
from fedrec.errors import ConfigurationError
from fedrec.federation.clients import Clients
from fedrec.federation.draws import first_words
from fedrec.federation.learner import Learner, Report
from fedrec.federation.model import (
    Batch,
    Citation,
    GatheredRows,
    PlainTable,
    Values,
    Weights,
    initial_values,
)
from fedrec.federation.pairs import aranges
from fedrec.methods.fedrap import FedRAP
from fedrec.random.purpose import Purpose

_AT_ONCE = 1 << 22
"""Rows of D that are gathered at once to score items."""
_USERS_AT_ONCE = 512
"""Users whose samples are in memory at once in synchronous mode."""
_WITHOUT_END = 1 << 40
"""Number of steps if weight decay sets no limit."""
_SMALLEST = 1e-6
"""Least factor of D. A smaller one is multiplied into the rows, which would otherwise grow without bound."""


@dataclass(frozen=True)
class MixedSamples:
    """Samples of several users; `share` is the weight of each in a mean."""

    users: Tensor
    items: Tensor
    labels: Tensor
    share: Tensor

    def mean(self, values: Tensor) -> Tensor:
        """The mean of one value per sample, by the samples' shares."""
        return (values * self.share).sum()


class CentRAP(Learner):
    """Centralised recommendation with additive personalisation."""

    paper = Citation(
        "Li, Long, Zhou",
        "Federated recommendation with additive personalization",
        "ICLR",
        2024,
    )
    cost = "O(S d) for S samples, and in mixed mode O(S / B x (m + n) d) for decay; memory n m d numbers."

    logits = True

    def __init__(self, clients: Clients, settings: Mapping[str, Any], seed: int) -> None:
        clients.check_pools(settings["negatives"])
        for name in ("item_rate", "personal_rate"):
            if (settings[name] or 0.0) * settings["weight_decay"] >= 1:
                raise ConfigurationError(
                    f"centrap: {name} x weight_decay must be below 1, or one step would erase its tables. "
                    "Lower one of the two."
                )
        self.clients = clients
        self.settings = settings
        self.seed = seed
        self.model = FedRAP(settings, clients.items)
        start = initial_values(self.model.parameters(), seed, clients.device)
        self.C = start["C"].requires_grad_()
        self.u, self.b = (start[name].repeat(len(clients), 1).requires_grad_() for name in ("u", "b"))
        self.rows = start["D"].repeat(len(clients), 1)
        self.factor = torch.ones((), dtype=torch.float64, device=clients.device)

    def train_round(self, round_: int) -> Report:
        """Train one epoch on the samples of all users."""
        began = time.perf_counter()
        mean = self.epoch(round_)
        # The sum of D, since a mask of its rows would take a quarter of their memory.
        check_model_finite(round_, mean, {"C": self.C, "u": self.u, "b": self.b, "D": self.rows.sum()})
        return Report(mean, len(self.clients), 0, 0, time.perf_counter() - began, 0.0)

    @override
    def scores(self, who: Tensor, items: Tensor) -> Tensor:
        at_once = max(1, _AT_ONCE // items.shape[1])
        with torch.no_grad():
            parts = zip(who.split(at_once), items.split(at_once), strict=True)
            return torch.cat([self._scores(users, listed) for users, listed in parts])

    @override
    def tensors(self) -> dict[str, Tensor]:
        # D is `kept/D/factor` times `kept/D/rows`.
        return {
            "shared/C": self.C.detach(),
            "kept/u": self.u.detach(),
            "kept/b": self.b.detach(),
            "kept/D/rows": self.rows,
            "kept/D/factor": self.factor,
        }

    @override
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        device = self.rows.device
        self.C, self.u, self.b = (
            tensors[name].to(device).requires_grad_() for name in ("shared/C", "kept/u", "kept/b")
        )
        self.rows = tensors["kept/D/rows"].to(device)
        self.factor = tensors["kept/D/factor"].to(device)

    @override
    def negative_draws(self, round_: int) -> list[tuple[Tensor, Purpose]]:
        return [(self.clients.everyone, Purpose.NEGATIVES)]

    def epoch(self, round_: int) -> float:
        """Take all steps of an epoch, one per mini-batch, and return their mean loss."""
        samples, batch_size = self.mixed_samples(round_), self.settings["batch_size"]

        def step(users: Tensor, items: Tensor, labels: Tensor) -> Tensor:
            share = torch.full_like(labels, 1 / len(labels))
            return self.step(iter((MixedSamples(users, items, labels, share),)), round_)

        total, steps = 0.0, 0
        for piece in _pieces(samples, self._steps_till_small(round_) * batch_size):
            self._fold_where_small()
            taken = math.ceil(len(piece.user) / batch_size)
            # Each epoch records a CUDA graph, since it fixes rates and strengths, which change.
            total += taken * usual_steps(step, batch_size, self.rows.device).epoch(piece)
            steps += taken
        return total / steps

    def mixed_samples(self, round_: int) -> EpochSamples:
        """The samples of all users, mixed over users."""
        everyone = self.clients.everyone
        samples = self.clients.samples(everyone, self.settings["negatives"], self.seed, round_)
        user = torch.repeat_interleave(everyone, samples.size)
        word = first_words(aranges(samples.size), user, self.seed, round_, Purpose.SHUFFLE)
        order = torch.argsort(word, stable=True)
        return EpochSamples(user[order], samples.item[order], samples.label[order])

    def step(self, parts: Iterator[MixedSamples], round_: int, users: int = 1) -> Tensor:
        """Take one step of all parameters on the summed losses of the parts, which share no row of D.

        C moves by its gradient divided by `users`. Return the sum of the losses divided by `users`.
        """
        loss, rates, decay = self.model.loss_in(round_), self._rates(round_), self.settings["weight_decay"]
        total = torch.zeros((), device=self.rows.device)
        after = self.factor * self._left_by_a_step(round_)
        moved = {self.C: rates["C"], self.u: rates["u"], self.b: rates["b"]}
        gradients = [torch.zeros_like(value) for value in moved]
        for part in parts:
            cell = part.users * self.clients.items + part.items
            d = (self.factor * functional.embedding(cell, self.rows)).requires_grad_()
            w = Values(
                C=GatheredRows(part.items, functional.embedding(part.items, self.C)),
                D=GatheredRows(part.items, d),
                u=functional.embedding(part.users, self.u),
                b=functional.embedding(part.users, self.b),
            )
            value = loss(cast(Weights, w), cast(Batch, part))
            of_rows, *of_others = torch.autograd.grad(value, (d, *moved))
            # On a GPU, the order of sums of index_add_ differs between calls.
            self.rows.index_put_((cell,), of_rows * (-rates["D"] / after), accumulate=True)
            torch._foreach_add_(gradients, of_others)
            total += value.detach()
        gradients[0].div_(users)
        with torch.no_grad():
            for (value, rate), gradient in zip(moved.items(), gradients, strict=True):
                value.sub_(gradient.add_(value, alpha=decay), alpha=rate)
        self.factor.copy_(after)
        return total / users

    def _rates(self, round_: int) -> dict[str, float]:
        """The learning rate of every table in an epoch."""
        shrunk, item_rate = self.settings["round_decay"] ** (round_ - 1), self.settings["item_rate"]
        personal = self.settings["personal_rate"]
        rates = {"C": item_rate, "D": item_rate if personal is None else personal}
        rates |= dict.fromkeys(("u", "b"), self.settings["rate"])
        return {name: shrunk * rate for name, rate in rates.items()}

    def _left_by_a_step(self, round_: int) -> float:
        """Factor by which weight decay shrinks D in one step of an epoch."""
        return 1.0 - self._rates(round_)["D"] * float(self.settings["weight_decay"])

    def _steps_till_small(self, round_: int) -> int:
        """Steps of an epoch after which weight decay has made the factor of D small."""
        left = self._left_by_a_step(round_)
        return max(1, int(math.log(_SMALLEST) / math.log(left))) if left < 1 else _WITHOUT_END

    def _fold_where_small(self) -> None:
        """Multiply the factor of D into its rows if it has become small."""
        if float(self.factor) < _SMALLEST:
            self.rows.mul_(self.factor)
            self.factor.fill_(1)

    def _scores(self, who: Tensor, items: Tensor) -> Tensor:
        cell = who.unsqueeze(1) * self.clients.items + items
        d = self.factor * functional.embedding(cell, self.rows)
        u, b = self.u[who].unsqueeze(1), self.b[who].unsqueeze(1)
        w = Values(C=PlainTable(self.C), D=GatheredRows(items, d), u=u, b=b)
        return self.model.score(cast(Weights, w), items)


def _pieces(samples: EpochSamples, size: int) -> Iterator[EpochSamples]:
    """The samples in their order, `size` at a time."""
    every = len(samples.user)
    return (samples.between(first, min(every, first + size)) for first in range(0, every, size))


class Synchronous(CentRAP):
    """One step per epoch: users' parameters by the mean loss of their samples, C by the mean over users."""

    @override
    def epoch(self, round_: int) -> float:
        self._fold_where_small()
        return float(self.step(self._user_by_user(round_), round_, len(self.clients)))

    def _user_by_user(self, round_: int) -> Iterator[MixedSamples]:
        """All samples in groups of whole users; each user's shares add up to 1."""
        everyone = self.clients.everyone
        for who in everyone.split(_USERS_AT_ONCE):
            samples = self.clients.samples(who, self.settings["negatives"], self.seed, round_)
            user = torch.repeat_interleave(who, samples.size)
            share = torch.repeat_interleave(samples.size.to(samples.label.dtype).reciprocal(), samples.size)
            yield MixedSamples(user, samples.item, samples.label, share)


METHOD = CentRAP
VARIANTS = {("mode", "synchronous"): Synchronous}
