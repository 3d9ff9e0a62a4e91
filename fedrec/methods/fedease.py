"""FedEASE: EASE in one round; the server solves for the whole model from the sum of clients' uploads.

    score     sum of B_ji over training items j of u
    client    x_u: 1 for training items, else 0
    upload    x_u x_u^T (pairs of items that the user rated), of which the server needs only the sum
    server    G = sum of x_u x_u^T;  P = (G + lambda I)^-1;  B_ij = -P_ij / P_jj, 0 on the diagonal   (Eq. 8)
    scored    with the server's B

The result equals that of EASE on all data in one place, since the sum does not depend on who holds the data.
"""

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.errors import DivergenceError
from fedrec.federation.model import (
    Citation,
    Client,
    Initial,
    Method,
    Parameter,
    ServerRule,
    ServerSide,
    UploadTransform,
    Weights,
    item_table,
)


class TwiceMet(UploadTransform):
    """Upload of the pairs of items that a client has rated, in place of the items."""

    label = "pairs of items met"

    @override
    def of_one(self, table: Tensor) -> Tensor:
        return table @ table.T

    @override
    def weighted_sum(self, tables: Tensor, weights: Tensor) -> Tensor:
        met = tables.squeeze(-1)
        return met.T @ (weights.unsqueeze(1) * met)


class ClosedForm(ServerRule):
    """Solves for B."""

    @override
    def weights(self, sizes: Tensor) -> Tensor:
        return torch.ones_like(sizes)

    @override
    def begin(self, server: ServerSide) -> None:
        server.shared["G"] = torch.zeros_like(server.shared["G"])

    @override
    def finish(self, server: ServerSide) -> None:
        shared = server.shared
        total = len(server.who) * shared["G"].double()
        total.diagonal().add_(self.settings["penalty"])
        factor, failed = torch.linalg.cholesky_ex(total)
        if failed:
            raise DivergenceError(
                f"round {server.round_}: training diverged; the sum of the uploads has no solution, because "
                "noise left it not positive definite. Lower ldp, or raise penalty."
            )
        inverse = torch.cholesky_inverse(factor)
        solved = -inverse / inverse.diagonal()
        solved.fill_diagonal_(0)
        shared["B"] = solved.to(shared["B"].dtype)


class FedEASE(Method):
    """Federated EASE."""

    paper = Citation("Steck", "Embarrassingly shallow autoencoders for sparse data", "WWW", 2019)
    cost = "O(R_u^2) on a client; O(sum of R_u^2 + m^3) on the server, and m^2 numbers to send."

    server_rule = ClosedForm

    def parameters(self) -> dict[str, Parameter]:
        """B is shared; x marks a client's training items, and G is the mean of the uploads."""
        m, zero = self.items, Initial("constant", 0.0)
        return {
            "B": item_table(m, m, "shared", zero),
            "x": item_table(m, 1, "scratch", zero),
            "G": Parameter((m, m), "server", zero, downloaded=False),
        }

    def derived(self, w: Weights) -> dict[str, Tensor]:
        """The scores of all items."""
        return {"scores": w.B.training_sum()}

    def score(self, w: Weights, items: Tensor) -> Tensor:
        """The sum of B over the user's training items."""
        return w.scores.squeeze(-2).gather(-1, items)

    def local_round(self, client: Client) -> None:
        """Upload the pairs of items that the user rated."""
        client.rewrite("x", lambda w, items: w.own[items])
        client.upload("x", into="G", transform=TwiceMet())


METHOD = FedEASE
