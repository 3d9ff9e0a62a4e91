"""FedMF: matrix factorisation whose user vectors stay on the clients.

This is the version without encryption that the five papers compare with.

    score     p_u . q_i
    client    trains p_u and its copy of Q together
    upload    Q_u
    server    Q = sum of w_u Q_u
    scored    own p_u with the server's newest Q
"""

from typing import ClassVar

from torch import Tensor

from fedrec.federation.model import Citation, Client, Initial, Parameter, Weights, dot, item_table, vector
from fedrec.federation.privacy.gradient_dp import SupportsDP


class FedMF(SupportsDP):
    """Federated matrix factorisation."""

    paper: ClassVar[Citation | None] = Citation(
        "Chai, Wang, Chen, Yang",
        "Secure federated matrix factorization",
        "IEEE Intelligent Systems",
        2021,
    )
    cost = "O(E S d) on the clients, O(sum of R_u d) on the server (S samples, R_u sampled items of u)."

    def parameters(self) -> dict[str, Parameter]:
        """Q is shared, p stays on the client."""
        d, spread = self.settings["d"], Initial("normal", 1.0)
        user = spread if self.settings["user_initial"] == "normal" else Initial("uniform", d**-0.5)
        return {
            "Q": item_table(self.items, d, "shared", spread, self.settings["combine"]),
            "p": vector(d, "private", user),
        }

    def score(self, w: Weights, items: Tensor) -> Tensor:
        """Inner product of user vector p and item row q."""
        return dot(w.Q[items], w.p)

    def local_round(self, client: Client) -> None:
        """Train p and Q together, upload Q."""
        self.train(client)
        client.upload("Q")

    def train(self, client: Client) -> None:
        """Train the local epochs, on p and Q together."""
        self.fit(client, self.step(client, {"Q": self.item_rate(), "p": self.settings["rate"]}))


METHOD = FedMF
