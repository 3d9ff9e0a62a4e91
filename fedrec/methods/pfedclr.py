"""PFedCLR: federated matrix factorisation with a low-rank correction that stays on the client.

score      p_u . (q_i + a_i B_u)
step 1     local training: Q_u trains on p_u . q_i; p_u is frozen, the correction is left out (Eq. 6)
upload     Q_u, before anything personal is trained
step 2     dual-function mechanism: p_u, A_u and B_u train together on the full score; Q_u is frozen (Eq. 10)
step 3     global aggregation: Q = sum of w_u Q_u, w_u the share of the training rows (Eq. 11)
scored     own p_u, A_u, B_u and own copy of Q as last trained

The ablations: `correction=full` has one free vector per item in place of a_i B_u (w/ CF, Eq. 9).
`training=joint` trains p_u and Q_u together first and the correction alone afterwards (w/ AF with
`correction=full`).
"""

from typing import ClassVar

from torch import Tensor
from typing_extensions import override

from fedrec.federation.model import (
    Batch,
    Citation,
    Client,
    Initial,
    Method,
    Parameter,
    Weights,
    dot,
    item_table,
    matrix,
    mean_entropy,
    vector,
)

_NORMAL, _ZERO = Initial("normal", 1.0), Initial("constant", 0.0)


class PFedCLR(Method):
    """Personalised federated recommendation by calibration with low rank."""

    paper = Citation(
        "Chen et al.",
        "Beyond personalization: federated recommendation with calibration via low-rank decomposition",
        "",
        2025,
    )
    cost = "O(E S d) on the clients, twice; O(sum of R_u d) on the server."

    scored_with_own_copy = ("Q",)

    buffer: ClassVar[tuple[str, ...]] = ("A", "B")
    """The parameters of the buffer matrix, which corrects item rows."""

    def parameters(self) -> dict[str, Parameter]:
        """Q is shared; the user vector p and the buffer matrix A B stay on the client."""
        d, r = self.settings["d"], self.settings["rank"]
        return {
            "Q": item_table(self.items, d, "shared", _NORMAL),
            "p": vector(d, "private", _NORMAL),
            "A": item_table(self.items, r, "private", _ZERO),
            "B": matrix(r, d, "private", Initial("normal", self.settings["correction_spread"])),
        }

    def score(self, w: Weights, items: Tensor) -> Tensor:
        """Inner product of user vector p and corrected item row q + a B."""
        return dot(w.Q[items] + self.correction(w, items), w.p)

    def correction(self, w: Weights, items: Tensor) -> Tensor:
        """Rows of the buffer matrix A B."""
        return w.A[items] @ w.B

    def uncorrected(self, w: Weights, batch: Batch) -> Tensor:
        """Mean entropy of p . q: the loss of step 1."""
        return mean_entropy(dot(w.Q[batch.items], w.p), batch)

    def local_round(self, client: Client) -> None:
        """ClientUpdate of Algorithm 1: train Q, upload it, then train p, A and B."""
        eta, beta = self.settings["rate"], dict.fromkeys(self.buffer, self.settings["beta"])
        # Step 1, lines 1 to 6: local training, and upload for step 3, the server's mean.
        self.fit(client, self.step(client, {"Q": eta}), loss=self.uncorrected)
        client.upload("Q")
        # Step 2, lines 7 to 11: dual-function mechanism.
        self.fit(client, self.step(client, {"p": eta, **beta}))


class FullCorrection(PFedCLR):
    """w/ CF: the buffer matrix is a free one, W (Eq. 9)."""

    buffer = ("W",)

    @override
    def parameters(self) -> dict[str, Parameter]:
        model = super().parameters()
        free = item_table(self.items, self.settings["d"], "private", _ZERO)
        return {"Q": model["Q"], "p": model["p"], "W": free}

    @override
    def correction(self, w: Weights, items: Tensor) -> Tensor:
        return w.W[items]


class Joint(PFedCLR):
    """The user vector trains with Q, as in FedMF; the correction adapts to both."""

    @override
    def local_round(self, client: Client) -> None:
        eta, beta = self.settings["rate"], dict.fromkeys(self.buffer, self.settings["beta"])
        self.fit(client, self.step(client, {"Q": eta, "p": eta}), loss=self.uncorrected)
        client.upload("Q")
        self.fit(client, self.step(client, beta))


METHOD = PFedCLR
VARIANTS = {("correction", "full"): FullCorrection, ("training", "joint"): Joint}
