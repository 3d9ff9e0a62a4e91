"""FedRAP: a shared item table plus a personal one, pushed apart as rounds go by.

score      u_i . (c_j + d_j) + b_i
loss       mean entropy - lambda_a mean (d - c)^2 + mu_a mean |c|, means over the rows of a mini-batch
           and their dimensions; lambda_a and mu_a follow a curriculum over rounds a
client     trains C, D and the user layer together by SGD with weight decay on everything; rates shrink
           after every mini-batch, and from round to round
upload     C
server     C = plain mean
scored     own user layer and D with the server's newest C

The official code computes the curriculum and never uses it, so it runs `curriculum=fixed`; its sine is
shifted to [0, v] and its square wave turns every 5 rounds (`schedule=code`). The paper's variants: -C and -D
are `tables=shared` and `tables=personal`, -No and -L2 `penalty=none` and `penalty=l2`.
"""

import math

import torch
from torch import Tensor

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
from fedrec.federation.privacy.guarded import Guarded


class FedRAP(Guarded):
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
        model = {
            "C": item_table(self.items, d, "shared", spread),
            "D": item_table(self.items, d, "private", spread),
            "u": vector(d, "private", layer),
            "b": vector(1, "private", layer),
        }
        left_out = {"both": None, "shared": "D", "personal": "C"}[self.settings["tables"]]
        return {name: one for name, one in model.items() if name != left_out}

    def score(self, w: Weights, items: Tensor) -> Tensor:
        """`u . (c + d) + b`: the user layer on the sum of both item rows."""
        tables = [name for name in ("C", "D") if name in w]
        q: Tensor = sum(w[name][items] for name in tables)  # type: ignore[assignment]
        return dot(q, w.u) + w.b.squeeze(-1)

    def strengths(self, round_: int) -> tuple[float, float]:
        """Lambda and mu of a round, by the curriculum."""
        by_code = self.settings["schedule"] == "code"
        # The code counts from 0, and a round uses what the round before it computed.
        a = round_ - 2 if by_code else round_
        half_wave = 5 if by_code else 10
        factor = {
            "fixed": 1.0,
            "tanh": math.tanh(a / 10),
            "sin": (math.sin(a / 10) + 1) / 2 if by_code else math.sin(a / 10),
            "square": float((round_ - 1) // half_wave % 2),
            "frac": 1 / max(a + 1, 1),
        }[self.settings["curriculum"]]
        if by_code and round_ == 1:
            factor = 1.0
        return factor * self.settings["apart"], factor * self.settings["sparse"]

    def loss_in(self, round_: int) -> Loss:
        """The loss of a round, whose strengths follow the curriculum."""
        apart, sparse = self.strengths(round_)

        def loss(w: Weights, batch: Batch) -> Tensor:
            return self.loss(w, batch) + self.penalty(w, batch, apart, sparse)

        return loss

    def local_round(self, client: Client) -> None:
        """Train everything together, upload C."""
        names = self.parameters()
        rate = dict.fromkeys(names, self.settings["item_rate"]) | dict.fromkeys("ub", self.settings["rate"])
        decay = dict.fromkeys(names, self.settings["weight_decay"])
        self.fit(client, self.step(client, rate, decay), loss=self.loss_in(client.round_))
        if "C" in names:
            client.upload("C")

    def penalty(self, w: Weights, batch: Batch, apart: float, sparse: float) -> Tensor:
        """What pushes D and C apart, and C towards zero."""
        total: Tensor | float = 0.0
        if "C" in w and "D" in w:
            difference = w.D[batch.items] - w.C[batch.items]
            total = total - apart * batch.mean(difference.square().mean(-1))
        if "C" in w and self.settings["penalty"] != "none":
            c = w.C[batch.items]
            size = c.abs() if self.settings["penalty"] == "l1" else c.square()
            total = total + sparse * batch.mean(size.mean(-1))
        return torch.as_tensor(total)


METHOD = FedRAP
