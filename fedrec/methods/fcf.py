"""FCF: implicit-feedback factorisation, whose users are solved on clients and whose items move on the server.

    score     p_u . q_i
    client    c_ui = 1 + alpha x o_ui, o_ui = 1 for training items, else 0 (all items count)
              p_u = (Q^T C_u Q + lambda I)^-1 Q^T C_u o_u                                   (Eq. 3)
              f_ui = c_ui (o_ui - p_u . q_i) p_u                                            (Eq. 6)
    upload    F_u, one row per item
    server    Q moves by Adam along -dJ/dq_i = 2 (sum of f_ui over u) - 2 lambda q_i        (Eq. 5)
    scored    with p_u solved again for the newest Q

Clients keep no parameter and take no gradient step: they solve for p_u.
"""

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.federation.model import (
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
)
from fedrec.federation.server.optimisers import ServerOptimiser, moments_of

_FLOOR = 1e-8


class ItemGradients(ServerRule):
    """Sums the uploads, and moves Q along the sum by Adam."""

    @override
    def weights(self, sizes: Tensor) -> Tensor:
        return torch.ones_like(sizes)

    @override
    def begin(self, server: ServerSide) -> None:
        server.shared["F"] = torch.zeros_like(server.shared["F"])

    @override
    def finish(self, server: ServerSide) -> None:
        shared, settings = server.shared, self.settings
        total = len(server.who) * shared["F"]
        rate: float = settings["rate"] * settings["round_decay"] ** (server.round_ - 1)
        adam = ServerOptimiser("adam", rate, settings["beta1"], settings["beta2"], _FLOOR, corrected=True)
        adam.move(shared, "Q", 2 * (total - settings["penalty"] * shared["Q"]))


class FCF(Method):
    """Federated collaborative filtering."""

    paper = Citation(
        "Ammad-ud-din et al.",
        "Federated collaborative filtering for privacy-preserving personalized recommendation system",
        "",
        2019,
    )
    cost = "O(m d^2 + d^3) on each client, O(n m d) on the server."

    server_rule = ItemGradients

    def parameters(self) -> dict[str, Parameter]:
        """Q is shared; G has a client's gradients of Q in a round, F their mean over clients."""
        d, zero = self.settings["d"], Initial("constant", 0.0)
        q = item_table(self.items, d, "shared", Initial("normal", self.settings["spread"]))
        return {
            "Q": q,
            "G": item_table(self.items, d, "scratch", zero),
            "F": Parameter((self.items, d), "server", zero, table=True, downloaded=False),
            **moments_of({"Q": q}),
        }

    def derived(self, w: Weights) -> dict[str, Tensor]:
        """The user vector, solved by least squares."""
        alpha: float = self.settings["alpha"]
        own, q = w.own.whole(), w.Q.whole()
        weighed = q * (1 + alpha * own)
        penalty = self.settings["penalty"] * torch.eye(q.shape[-1], dtype=q.dtype, device=q.device)
        square = weighed.transpose(-1, -2) @ q + penalty
        return {"p": torch.linalg.solve(square, weighed.transpose(-1, -2) @ own).transpose(-1, -2)}

    def score(self, w: Weights, items: Tensor) -> Tensor:
        """Inner product of user vector p and item row q."""
        return dot(w.Q[items], w.p)

    def gradient(self, w: Weights, items: Tensor) -> Tensor:
        """Upload of each item: f_ui."""
        alpha: float = self.settings["alpha"]
        own = w.own[items]
        return (1 + alpha * own) * (own - self.score(w, items).unsqueeze(-1)) * w.p

    def local_round(self, client: Client) -> None:
        """Solve p, upload the gradients of all items."""
        client.rewrite("G", self.gradient)
        client.upload("G", into="F")


METHOD = FCF
