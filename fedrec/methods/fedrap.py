"""FedRAP: a shared item table plus a personal one, pushed apart as the rounds pass.

score      sigmoid(u_i . (c_j + d_ij) + b_i) (Eq. 1, without b_i)
loss       entropy - lambda_a |D_i - C|^2 + mu_a |C|_1 (Eq. 3); in round a, lambda_a = tanh(a / 10) v1
           and mu_a = tanh(a / 10) v2
client     trains C, D_i and u_i by SGD (Algorithm 1, ClientUpdate, lines 1 to 6)
upload     C
server     C = plain mean (Algorithm 1, line 11)
scored     own u_i, b_i and D_i with the server's newest C

From the paper: score without b_i, loss, curriculum, upload, server. Its ablations are
`curriculum=fixed`, `sin`, `square` and `frac`, -C and -D (`tables=shared` and `personal`), -No and -L2
(`penalty=none` and `l2`).

The official code, and not the paper, has the bias b_i, weight decay of all parameters, and a separate rate
for the item tables. Its rates shrink after every mini-batch and every round. Its norms are means over the
rows of a mini-batch and their dimensions; Eq. 3 has sums over whole tables.

Other differences of the official code are settings here, off by default. It computes the curriculum and never
uses it (`curriculum=fixed`). Its sine is shifted to [0, v], and its square wave turns every 5 rounds
(`schedule=code`). Its entropy is that of a sigmoid in single precision, whose slope is 0 where the sigmoid
rounds to 0 or 1 (`entropy=probability`).
"""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.federation.model import (
    Batch,
    Citation,
    Client,
    Initial,
    Loss,
    Parameter,
    Weights,
    dot,
    item_table,
    vector,
)
from fedrec.federation.privacy.gradient_dp import SupportsDP

_LEAST_LOG, _LEAST_SLOPE = -100.0, 1e-12
"""Lower bounds of the logarithm, and of the slope in the denominator, in torch's binary cross-entropy."""


class FedRAP(SupportsDP):
    """Federated recommendation with additive personalisation."""

    paper = Citation(
        "Li, Long, Zhou",
        "Federated recommendation with additive personalization",
        "ICLR",
        2024,
    )
    cost = (
        "O(E S d) on the clients, O(sum of R_u d) on the server; rows without a sample shrink by one "
        "factor per client."
    )

    item_table = "C"
    personal_table = "D"

    def parameters(self) -> dict[str, Parameter]:
        """C is shared; D and the user layer stay on the client."""
        d, spread = self.settings["d"], Initial("normal", 1.0)
        layer = Initial("uniform", d**-0.5)
        return {
            "C": item_table(self.items, d, "shared", spread),
            "D": item_table(self.items, d, "private", spread),
            "u": vector(d, "private", layer),
            "b": vector(1, "private", layer),
        }

    def rows(self, w: Weights, items: Tensor) -> Tensor:
        """Item rows c + d: additive personalisation."""
        return w.C[items] + w.D[items]

    def score(self, w: Weights, items: Tensor) -> Tensor:
        """`u . (c + d) + b`: the user layer on the sum of both item rows."""
        return dot(self.rows(w, items), w.u) + w.b.squeeze(-1)

    def curriculum(self, a: int) -> float:
        """The factor of v1 and v2 in round a."""
        return CURRICULA[self.settings["curriculum"]](a)

    def strengths(self, a: int) -> tuple[float, float]:
        """The strengths lambda_a and mu_a of round a, which grow from small values to v1 and v2."""
        return self.curriculum(a) * self.settings["v1"], self.curriculum(a) * self.settings["v2"]

    def difference(self, w: Weights, batch: Batch) -> Tensor | float:
        """Mean (d - c)^2 (Eq. 2 by mini-batch): the loss rewards C and D for learning different things."""
        return batch.mean((w.D[batch.items] - w.C[batch.items]).square().mean(-1))

    def norm(self, w: Weights, batch: Batch) -> Tensor | float:
        """Mean |c| (the third term of Eq. 3 by mini-batch), which makes C sparse."""
        return batch.mean(w.C[batch.items].abs().mean(-1))

    def loss_in(self, a: int) -> Loss:
        """The loss of round a: Eq. 3, with means over the mini-batch's rows for norms of whole tables."""
        lambda_a, mu_a = self.strengths(a)

        def loss(w: Weights, batch: Batch) -> Tensor:
            return self.loss(w, batch) + (-lambda_a * self.difference(w, batch) + mu_a * self.norm(w, batch))

        return loss

    def train(self, client: Client) -> None:
        """Train the local epochs of ClientUpdate (lines 1 to 6), with the official code's decay and rates."""
        eta = {"u": self.settings["rate"], "b": self.settings["rate"]}
        rates = {name: eta.get(name, self.settings["item_rate"]) for name in self.parameters()}
        decay = dict.fromkeys(rates, self.settings["weight_decay"])
        self.fit(client, self.step(client, rates, decay), loss=self.loss_in(client.round_))

    def local_round(self, client: Client) -> None:
        """ClientUpdate: train everything together, upload C."""
        self.train(client)
        client.upload("C")


CURRICULA: Mapping[str, Callable[[int], float]] = MappingProxyType(
    {
        "tanh": lambda a: math.tanh(a / 10),
        "fixed": lambda _: 1.0,
        "sin": lambda a: math.sin(a / 10),
        "square": lambda a: float((a - 1) // 10 % 2),
        "frac": lambda a: 1 / (a + 1),
    }
)
"""The factor of the strengths in round a: `tanh` of the paper, and its ablations."""


class EntropyOfProbabilities(FedRAP):
    """The official code's entropy: torch's BCELoss of a sigmoid, value and slope.

    The sigmoid of a score above about 16.6 rounds to 1 in single precision. Its slope is then 0, so a
    negative with such a score is never pushed down again. For a positive, the slope fades below about -27.6.
    """

    @override
    def loss(self, w: Weights, batch: Batch) -> Tensor:
        scores, labels = self.score(w, batch.items), batch.labels
        fixed = scores.detach()
        probability = torch.sigmoid(fixed)
        slope = probability * (1 - probability)
        # The chain rule of log and sigmoid would give infinity times 0 at both ends.
        slope = (probability - labels) / slope.clamp(min=_LEAST_SLOPE) * slope
        right, wrong = (part.log().clamp(min=_LEAST_LOG) for part in (probability, 1 - probability))
        value = -(labels * right + (1 - labels) * wrong)
        return batch.mean(value + slope * (scores - fixed))


class OfficialSchedule(FedRAP):
    """The official code's schedules: a round uses the value of the round before it, counted from 0."""

    @override
    def curriculum(self, a: int) -> float:
        return OFFICIAL_CURRICULA[self.settings["curriculum"]](a - 2) if a > 1 else 1.0


OFFICIAL_CURRICULA: Mapping[str, Callable[[int], float]] = MappingProxyType(
    {
        **CURRICULA,
        "sin": lambda a: (math.sin(a / 10) + 1) / 2,
        "square": lambda a: float((a + 1) // 5 % 2),
    }
)


class SharedOnly(FedRAP):
    """FedRAP-C: no personal table."""

    @override
    def parameters(self) -> dict[str, Parameter]:
        return {name: part for name, part in super().parameters().items() if name != "D"}

    @override
    def rows(self, w: Weights, items: Tensor) -> Tensor:
        return w.C[items]

    @override
    def difference(self, w: Weights, batch: Batch) -> Tensor | float:
        return 0.0


class PersonalOnly(FedRAP):
    """FedRAP-D: no shared table, and nothing to upload."""

    @override
    def parameters(self) -> dict[str, Parameter]:
        return {name: part for name, part in super().parameters().items() if name != "C"}

    @override
    def rows(self, w: Weights, items: Tensor) -> Tensor:
        return w.D[items]

    @override
    def difference(self, w: Weights, batch: Batch) -> Tensor | float:
        return 0.0

    @override
    def norm(self, w: Weights, batch: Batch) -> Tensor | float:
        return 0.0

    @override
    def local_round(self, client: Client) -> None:
        self.train(client)


class SquaredNorm(FedRAP):
    """FedRAP-L2: the mean square of C replaces its mean absolute value."""

    @override
    def norm(self, w: Weights, batch: Batch) -> Tensor | float:
        return batch.mean(w.C[batch.items].square().mean(-1))


class NoNorm(FedRAP):
    """FedRAP-No: mu is 0."""

    @override
    def norm(self, w: Weights, batch: Batch) -> Tensor | float:
        return 0.0


METHOD = FedRAP
VARIANTS = {
    ("entropy", "probability"): EntropyOfProbabilities,
    ("schedule", "code"): OfficialSchedule,
    ("tables", "shared"): SharedOnly,
    ("tables", "personal"): PersonalOnly,
    ("penalty", "l2"): SquaredNorm,
    ("penalty", "none"): NoNorm,
}
