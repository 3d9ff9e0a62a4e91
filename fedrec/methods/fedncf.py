"""FedNCF: neural collaborative filtering whose user vectors stay on the clients.

The server averages plainly, as the five papers describe the method.

    score     MLP(p_u, q_i), a tower over both vectors
    client    trains p_u and its copies of Q and the MLP together
    upload    Q_u and the MLP
    server    weighted means of both
    scored    own p_u with the server's newest Q and MLP
"""

import torch
from torch import Tensor

from fedrec.federation.model import (
    Citation,
    Client,
    Initial,
    Parameter,
    Weights,
    item_table,
    mlp,
    perceptron,
    vector,
)
from fedrec.federation.privacy.gradient_dp import SupportsDP


class FedNCF(SupportsDP):
    """Federated neural collaborative filtering."""

    paper = Citation(
        "Perifanis, Efraimidis",
        "Federated neural collaborative filtering",
        "Knowledge-Based Systems",
        2022,
    )
    cost = "O(E S h) on the clients (h the tower's size), O(sum of R_u d + n h) on the server."

    def parameters(self) -> dict[str, Parameter]:
        """Q and the tower are shared, p stays on the client."""
        d, spread = self.settings["d"], Initial("normal", self.settings["spread"])
        return {
            "Q": item_table(self.items, d, "shared", spread, self.settings["combine"]),
            "p": vector(d, "private", spread),
            **mlp("mlp", (2 * d, *self.settings["layers"], 1), "shared"),
        }

    def score(self, w: Weights, items: Tensor) -> Tensor:
        """The tower's output for both vectors side by side."""
        q = w.Q[items]
        return perceptron(w, "mlp", torch.cat((w.p.expand_as(q), q), dim=-1)).squeeze(-1)

    def local_round(self, client: Client) -> None:
        """Train everything together, upload Q and the tower."""
        tower = [name for name in self.parameters() if name.startswith("mlp")]
        rate = self.settings["rate"]
        rates = {"Q": self.item_rate(), "p": rate * self.settings["user_factor"]} | dict.fromkeys(tower, rate)
        decay = dict.fromkeys(tower, self.settings["tower_decay"])
        self.fit(client, self.step(client, rates, decay))
        client.upload("Q", *tower)


METHOD = FedNCF
