"""CentRAP: FedRAP with all data in one place.

A baseline of FedRAP's paper.

score     u_i . (c_j + d_ij) + b_i, as FedRAP's
loss      FedRAP's, by the same curriculum; its means are over a mini-batch mixed over users
training  SGD with weight decay on everything, at FedRAP's groups of rates
scored    the newest of everything

No paper says how it is trained. `mode=mixed` is ordinary mini-batch training. `mode=synchronous` takes one
step per epoch: every user moves by the mean loss of all its samples, C by the mean over users of its
gradients. That is FedRAP with one local epoch, one mini-batch of everything and every client, in one place.

`personal_rate` lets D learn at a rate of its own: a personal row has few samples in a mini-batch, a shared
one those of every user, so that the rate D needs to remember makes C diverge.

Decay shrinks all of D alike, so D is one factor times stored rows: a step touches the rows it has samples of.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from fedrec.central.finite import check_model_finite
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
from fedrec.federation.pairs import counted
from fedrec.methods.fedrap import FedRAP
from fedrec.random.purpose import Purpose

_AT_ONCE = 1 << 22
"""Rows of D gathered at once when items are scored."""
_USERS_AT_ONCE = 512
"""Users whose samples are held at once in synchronous mode."""
_SMALLEST = 1e-6
"""Below this the factor of D goes into its rows, so that these do not grow without bound."""


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
                    f"centrap: {name} x weight_decay must be below 1: one step would wipe out its tables."
                )
        self.clients = clients
        self.settings = settings
        self.seed = seed
        self.model = FedRAP(settings, clients.items)
        start = initial_values(self.model.parameters(), seed, clients.device)
        self.C = start["C"].requires_grad_()
        self.u, self.b = (start[name].repeat(len(clients), 1).requires_grad_() for name in ("u", "b"))
        self.rows = start["D"].repeat(len(clients), 1)
        self.factor = 1.0

    def train_round(self, round_: int) -> Report:
        """One epoch over all users' samples."""
        began = time.perf_counter()
        mean = float(torch.stack(list(self._steps(round_))).mean())
        # A sum, for a mask of all rows would take a quarter of their memory.
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
            "kept/D/factor": torch.tensor(self.factor, dtype=torch.float64),
        }

    @override
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        device = self.rows.device
        self.C, self.u, self.b = (
            tensors[name].to(device).requires_grad_() for name in ("shared/C", "kept/u", "kept/b")
        )
        self.rows = tensors["kept/D/rows"].to(device)
        self.factor = float(tensors["kept/D/factor"])

    @override
    def drew(self, round_: int) -> list[tuple[Tensor, Purpose]]:
        return [(self.clients.everyone, Purpose.NEGATIVES)]

    def _mini_batches(self, round_: int) -> Iterator[MixedSamples]:
        everyone = self.clients.everyone
        samples = self.clients.samples(everyone, self.settings["negatives"], self.seed, round_)
        user = torch.repeat_interleave(everyone, samples.size)
        word = first_words(counted(samples.size), user, self.seed, round_, Purpose.SHUFFLE)
        for chosen in torch.argsort(word, stable=True).split(self.settings["batch_size"]):
            share = torch.full_like(samples.label[chosen], 1 / len(chosen))
            yield MixedSamples(user[chosen], samples.item[chosen], samples.label[chosen], share)

    def _steps(self, round_: int) -> Iterator[Tensor]:
        """One step per mini-batch; yields their losses."""
        for batch in self._mini_batches(round_):
            yield self._step(iter((batch,)), round_)

    def _step(self, parts: Iterator[MixedSamples], round_: int, users: int = 1) -> Tensor:
        """One step of everything on the summed losses of the parts, which share no row of D.

        C moves by a `users`-th of its gradient. Returns the sum, by `users`.
        """
        loss, shrunk = self.model.loss_in(round_), self.settings["round_decay"] ** (round_ - 1)
        rate, item_rate = (shrunk * self.settings[name] for name in ("rate", "item_rate"))
        personal_rate = shrunk * _personal_rate(self.settings)
        decay = self.settings["weight_decay"]
        after, total = self.factor * (1 - personal_rate * decay), torch.zeros((), device=self.rows.device)
        moved = {self.C: item_rate, self.u: rate, self.b: rate}
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
            # Not by index_add_, whose order of sums differs from call to call on a GPU.
            self.rows.index_put_((cell,), of_rows * (-personal_rate / after), accumulate=True)
            torch._foreach_add_(gradients, of_others)
            total += value.detach()
        gradients[0].div_(users)
        with torch.no_grad():
            for (value, by), gradient in zip(moved.items(), gradients, strict=True):
                value.sub_(gradient.add_(value, alpha=decay), alpha=by)
        self.factor = after
        if after < _SMALLEST:
            self.rows.mul_(after)
            self.factor = 1.0
        return total / users

    def _scores(self, who: Tensor, items: Tensor) -> Tensor:
        cell = who.unsqueeze(1) * self.clients.items + items
        d = self.factor * functional.embedding(cell, self.rows)
        u, b = self.u[who].unsqueeze(1), self.b[who].unsqueeze(1)
        w = Values(C=PlainTable(self.C), D=GatheredRows(items, d), u=u, b=b)
        return self.model.score(cast(Weights, w), items)


def _personal_rate(settings: Mapping[str, Any]) -> float:
    """The learning rate of D."""
    rate = settings["personal_rate"]
    return float(settings["item_rate"] if rate is None else rate)


class Synchronous(CentRAP):
    """One step per epoch: every user by the mean loss of its samples, C by the mean over users."""

    @override
    def _steps(self, round_: int) -> Iterator[Tensor]:
        yield self._step(self._user_by_user(round_), round_, len(self.clients))

    def _user_by_user(self, round_: int) -> Iterator[MixedSamples]:
        """All samples, those of a user in one piece; each user's shares add up to 1."""
        everyone = self.clients.everyone
        for who in everyone.split(_USERS_AT_ONCE):
            samples = self.clients.samples(who, self.settings["negatives"], self.seed, round_)
            user = torch.repeat_interleave(who, samples.size)
            share = torch.repeat_interleave(samples.size.to(samples.label.dtype).reciprocal(), samples.size)
            yield MixedSamples(user, samples.item, samples.label, share)


METHOD = CentRAP
VARIANTS = {("mode", "synchronous"): Synchronous}
