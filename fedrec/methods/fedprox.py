"""FedProx: local training is held near the server's value by a proximal term.

FedMF with the paper's term.

    score     p_u . q_i
    client    trains p_u and its copy of Q on the mean entropy + (mu / 2) x |Q_u - Q|^2 over all rows,
              Q the server's as the round began
    upload    Q_u
    server    Q = sum of w_u Q_u
    scored    own p_u with the server's newest Q

The term is over the whole table in every step: a row that moved is pulled back where no sample meets it.
What the paper says of devices that do less work is not needed: every client does all its epochs.
"""

from torch import Tensor

from fedrec.federation.model import Batch, Citation, Client, Initial, Parameter, Weights, item_table
from fedrec.methods.fedmf import FedMF


class FedProx(FedMF):
    """Federated optimisation in heterogeneous networks, over matrix factorisation."""

    paper = Citation("Li et al.", "Federated optimization in heterogeneous networks", "MLSys", 2020)
    cost = "O(E S d + m d steps) on the clients (every row may move in every step), O(n m d) on the server."

    def parameters(self) -> dict[str, Parameter]:
        """FedMF's; `start` is what Q was when the round began."""
        zero = Initial("constant", 0.0)
        return super().parameters() | {"start": item_table(self.items, self.settings["d"], "scratch", zero)}

    def loss(self, w: Weights, batch: Batch) -> Tensor:
        """Mean entropy, and the proximal term over the whole table."""
        mu: float = self.settings["mu"]
        moved = (w.Q.whole() - w.start.whole()).square().sum((-1, -2))
        return super().loss(w, batch) + mu / 2 * moved

    def local_round(self, client: Client) -> None:
        """Note the server's table, train p and Q together, upload Q."""
        client.rewrite("start", lambda w, items: w.Q[items])
        super().local_round(client)


METHOD = FedProx
