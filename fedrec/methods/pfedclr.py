"""PFedCLR: federated matrix factorisation with a low-rank correction that stays on the client.

score      p_u . (q_i + a_i B_u)
step 1     p_u rests, the correction is left out: only the client's copy of Q trains, on p_u . q_i
upload     Q_u, before anything personal is trained
step 2     Q_u rests: p_u, A_u and B_u train together, on the full score
server     Q = sum of w_u Q_u, w_u the share of the training rows
scored     own p_u, A_u, B_u and own copy of Q as last trained

Variants: `correction=full` has one free vector per item in place of a_i B_u (w/ CF), `training=joint` lets
p_u and Q_u train together first and the correction alone afterwards (w/ AF with `correction=full`).
"""

from torch import Tensor

from fedrec.federation.model import (
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

_ZERO = Initial("constant", 0.0)


class PFedCLR(Method):
    """Personalised federated recommendation by calibration with low rank."""

    paper = Citation(
        "Chen et al.",
        "Beyond personalization: federated recommendation with calibration via low-rank decomposition",
        "",
        2025,
    )
    cost = "O(E S d) on the clients, twice; O(sum of R_u d) on the server."

    own_copies = ("Q",)

    def parameters(self) -> dict[str, Parameter]:
        """Q is shared; the user vector and the correction stay on the client."""
        d, spread = self.settings["d"], Initial("normal", 1.0)
        model = {"Q": item_table(self.items, d, "shared", spread), "p": vector(d, "private", spread)}
        if self.settings["correction"] == "full":
            return model | {"W": item_table(self.items, d, "private", _ZERO)}
        rank, start = self.settings["rank"], Initial("normal", self.settings["correction_spread"])
        return model | {
            "A": item_table(self.items, rank, "private", _ZERO),
            "B": matrix(rank, d, "private", start),
        }

    def plain(self, w: Weights, items: Tensor) -> Tensor:
        """Inner product of user vector p and item row q, without the correction."""
        return dot(w.Q[items], w.p)

    def correction(self, w: Weights, items: Tensor) -> Tensor:
        """What the client adds to the rows of Q."""
        if self.settings["correction"] == "full":
            return w.W[items]
        return w.A[items] @ w.B

    def score(self, w: Weights, items: Tensor) -> Tensor:
        """Inner product of user vector p and corrected item row."""
        return dot(w.Q[items] + self.correction(w, items), w.p)

    def local_round(self, client: Client) -> None:
        """Train Q, upload it, then train what is personal."""
        rate, beta = self.settings["rate"], self.settings["beta"]
        corrected = dict.fromkeys(("W",) if self.settings["correction"] == "full" else ("A", "B"), beta)
        joint = self.settings["training"] == "joint"
        first = self.step(client, {"Q": rate} | ({"p": rate} if joint else {}))
        self.fit(client, first, loss=lambda w, batch: mean_entropy(self.plain(w, batch.items), batch))
        client.upload("Q")
        self.fit(client, self.step(client, corrected | ({} if joint else {"p": rate})))


METHOD = PFedCLR
