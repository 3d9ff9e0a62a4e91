"""PFedRec: no user vector; every client has a score function and an item table of its own.

score      theta_u . q_i + b_u (Eq. 6)
loss       mean binary cross-entropy (Eq. 7 has the sum)
client     starts from the server's Q and its own score function; for every mini-batch first a step on
           the score function, then, on the loss computed again, a step on its copy of Q ("post-tuning";
           Algorithm 1, ClientUpdate, lines 7 to 11)
upload     Q_u
server     Q = plain mean of Q_u (Algorithm 1, line 6)
scored     own score function with own copy of Q as last trained

The official code lets item rows learn at rate x items x 80, since few samples touch a row and all touch
the score function. It also uploads b_u, which the server never uses. Here b_u stays on the client, as in the
paper.
"""

from torch import Tensor

from fedrec.federation.model import Citation, Client, Initial, Parameter, Weights, dot, item_table, vector
from fedrec.federation.privacy.gradient_dp import SupportsDP


class PFedRec(SupportsDP):
    """Dual personalisation: own score function, own item table."""

    paper = Citation(
        "Zhang et al.",
        "Dual personalization on federated recommendation",
        "IJCAI",
        2023,
    )
    cost = "O(E S d) on the clients, twice; O(sum of R_u d) on the server."

    scored_with_own_copy = ("Q",)

    def parameters(self) -> dict[str, Parameter]:
        """Q is shared; the score function, a linear layer, stays on the client."""
        d = self.settings["d"]
        layer = Initial("uniform", d**-0.5)
        return {
            "Q": item_table(self.items, d, "shared", Initial("normal", 1.0)),
            "theta": vector(d, "private", layer),
            "b": vector(1, "private", layer),
        }

    def score(self, w: Weights, items: Tensor) -> Tensor:
        """`theta . q + b`: the client's score function on item row q."""
        return dot(w.Q[items], w.theta) + w.b.squeeze(-1)

    def local_round(self, client: Client) -> None:
        """ClientUpdate: per mini-batch a step of the score function, then one of the items (lines 7-11)."""
        eta = self.settings["rate"]
        self.fit(
            client,
            self.step(client, {"theta": eta, "b": eta}),
            self.step(client, {"Q": self.item_rate()}),
        )
        client.upload("Q")


METHOD = PFedRec
