"""CoLR: clients send updates of low rank, all in one random subspace that the server draws every round.

    score     p_u . (q_i + a_i B)
    client    A starts at 0; trains p_u and A with Q and B frozen
    upload    A_u, rank / d of what FedMF sends
    server    a_i = mean of a_ui over clients that have samples of i; before the next round Q = Q + A B,
              then A = 0 and a new B: orthogonal rows times sqrt(d / rank)
    scored    own p_u with Q + A B

Three rules come from the official code. A row moves by the mean, not the sum, over its samples in a
mini-batch (`rows=mean`). The gradient of A is multiplied by sqrt(rank / d). `l2` pulls all scored vectors to
zero. The paper weighs uploads by data sizes; the code does not (`combine`).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.errors import ConfigurationError
from fedrec.federation.model import (
    Batch,
    Citation,
    Client,
    Initial,
    Method,
    Parameter,
    ServerRule,
    ServerSide,
    Weights,
    dot,
    item_table,
    matrix,
    mean_entropy,
    vector,
)
from fedrec.random.purpose import Purpose
from fedrec.random.with_numpy import normal


class RandomSubspaces(ServerRule):
    """Adds the last update to Q, and draws the next subspace."""

    @override
    def begin(self, server: ServerSide) -> None:
        shared = server.shared
        shared["Q"] = shared["Q"] + shared["A"] @ shared["B"]
        shared["A"] = torch.zeros_like(shared["A"])
        shared["B"] = basis(shared["B"].shape, server.seed, server.round_).to(shared["B"])


class CoLR(Method):
    """Correlated low-rank updates, over matrix factorisation."""

    paper = Citation(
        "Nguyen et al.",
        "Towards efficient communication and secure federated recommendation system via low-rank training",
        "WWW",
        2024,
    )
    cost = "O(E S (d + rank)) on the clients, O(sum of R_u rank + m rank d) on the server."

    server_rule = RandomSubspaces

    def __init__(self, settings: Mapping[str, Any], items: int) -> None:
        if settings["rank"] > settings["d"]:
            raise ConfigurationError(
                f"colr: rank={settings['rank']} is above d={settings['d']}, but d dimensions have only d "
                "orthogonal directions. Lower rank."
            )
        super().__init__(settings, items)

    def parameters(self) -> dict[str, Parameter]:
        """Q, A and B are shared; p stays on the client.

        Clients download A and B, from which they can update Q themselves.
        """
        d, rank = self.settings["d"], self.settings["rank"]
        start, zero = Initial("normal", d**-0.5), Initial("constant", 0.0)
        return {
            "Q": replace(item_table(self.items, d, "shared", start), downloaded=False),
            "A": item_table(self.items, rank, "shared", zero, self.settings["combine"]),
            "B": matrix(rank, d, "shared", zero),
            "p": vector(d, "private", start),
        }

    def score(self, w: Weights, items: Tensor) -> Tensor:
        """Inner product of user vector p and corrected item row q + a B."""
        return dot(w.Q[items] + w.A[items] @ w.B, w.p)

    def loss(self, w: Weights, batch: Batch) -> Tensor:
        """Mean entropy, and `l2` times the squared norms of the vectors that are scored."""
        a, factor = w.A[batch.items], self.gradient_factor(batch)
        # This keeps the value of a, and multiplies its gradient by the factor.
        a = a.detach() + factor * (a - a.detach())
        q = w.Q[batch.items] + a @ w.B
        size = q.square().sum(-1) + w.p.square().sum(-1)
        l2: float = self.settings["l2"]
        return mean_entropy(dot(q, w.p), batch) + l2 * batch.mean(size)

    def gradient_factor(self, batch: Batch) -> Tensor | float:  # noqa: ARG002 - see override
        """The factor of the gradient of A."""
        return float((self.settings["rank"] / self.settings["d"]) ** 0.5)

    def local_round(self, client: Client) -> None:
        """Train p and A together, upload A."""
        self.fit(client, self.step(client, dict.fromkeys(("A", "p"), self.settings["rate"])))
        client.upload("A")


def basis(shape: torch.Size, seed: int, round_: int) -> Tensor:
    """The orthogonal polar factor of a Gaussian matrix (rank, d), times sqrt(d / rank)."""
    drawn = torch.from_numpy(normal(seed, Purpose.SERVER, stream=round_, count=shape.numel()))
    left, _, right = torch.linalg.svd(drawn.double().reshape(shape), full_matrices=False)
    scale: float = (shape[1] / shape[0]) ** 0.5
    return torch.mul(left @ right, scale)


class MeanRows(CoLR):
    """The official code: a row moves by the mean, not the sum, over its samples in a mini-batch."""

    @override
    def gradient_factor(self, batch: Batch) -> Tensor | float:
        # The mean over the mini-batch weighs a sample 1 / size; a row's mean weighs it 1 / occurrences.
        return super().gradient_factor(batch) * (batch.size / batch.occurrences()).unsqueeze(-1)


METHOD = CoLR
VARIANTS = {("rows", "mean"): MeanRows}
