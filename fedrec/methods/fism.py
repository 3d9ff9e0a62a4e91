"""FedFISM: a user's vector is the sum over its training items, so clients keep no parameter.

FISM (factored item similarity models), trained as FedMF is.

    score     s_u . q_i, s_u = (n_u - o)^-alpha x (the sum of p_j over training items j other than i)
              n_u: training items of u; o: 1 where i is one of them, else 0
    client    trains its copies of P and Q together, on the mean entropy
    upload    P_u and Q_u
    server    P = sum of w_u P_u, Q = sum of w_u Q_u
    scored    the server's newest P and Q

The paper's biases are left out. A user's bias changes no ranking; a dimension of Q can express the items'
biases.
"""

from torch import Tensor

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
    mean_entropy,
)


class FISM(Method):
    """Federated item similarity by factors."""

    paper = Citation(
        "Kabbur, Ning, Karypis",
        "FISM: factored item similarity models for top-N recommender systems",
        "KDD",
        2013,
    )
    cost = "O(E S d) on the clients, O(sum of R_u d) on the server; of each, two tables."

    def parameters(self) -> dict[str, Parameter]:
        """P has the vectors of a user's training items, Q those of scored items; both are shared."""
        d, start = self.settings["d"], Initial("normal", self.settings["spread"])
        combine = self.settings["combine"]
        return {name: item_table(self.items, d, "shared", start, combine) for name in ("P", "Q")}

    def score(self, w: Weights, items: Tensor) -> Tensor:
        """Inner product of the user's sum and item row q, for items outside the sum."""
        return self.similarity(w, items, 0.0)

    def similarity(self, w: Weights, items: Tensor, own: Tensor | float) -> Tensor:
        """The score without the item's own term of the user's sum; `own` is 1 for items of the sum."""
        alpha: float = self.settings["alpha"]
        others = w.P.training_sum() - own * w.P[items]
        count = (w.interactions - own).clamp(min=1)
        return dot(others / count**alpha, w.Q[items])

    def loss(self, w: Weights, batch: Batch) -> Tensor:
        """Mean entropy; the sum that scores a positive leaves the positive out."""
        return mean_entropy(self.similarity(w, batch.items, batch.labels.unsqueeze(-1)), batch)

    def local_round(self, client: Client) -> None:
        """Train both tables together, upload both."""
        self.fit(client, self.step(client, dict.fromkeys(("P", "Q"), self.item_rate())))
        client.upload("P", "Q")


METHOD = FISM
