"""FedProx: a proximal term keeps local training near the server's value.

FedMF with the paper's term.

    score     p_u . q_i
    client    trains p_u and its copy of Q on the mean entropy + (mu / 2) x |Q_u - Q|^2 over all rows,
              Q the server's as the round began
    upload    Q_u
    server    Q = sum of w_u Q_u
    scored    own p_u with the server's newest Q

Every step has the term over the whole table. So it also pulls back a changed row that has no sample in the
mini-batch. Here every client trains all its epochs, so the paper's partial work of slow devices is left out.
"""

from torch import Tensor

from fedrec.federation.model import Batch, Citation, Client, Initial, Parameter, Weights, item_table
from fedrec.methods.fedmf import FedMF


class FedProx(FedMF):
    """Federated optimisation in heterogeneous networks, over matrix factorisation."""

    paper = Citation("Li et al.", "Federated optimization in heterogeneous networks", "MLSys", 2020)
    cost = "O(E S d + m d steps) on the clients (every row may move in every step), O(n m d) on the server."

    def parameters(self) -> dict[str, Parameter]:
        """FedMF's parameters, and `start`, a copy of Q from the start of the round."""
        zero = Initial("constant", 0.0)
        return super().parameters() | {"start": item_table(self.items, self.settings["d"], "scratch", zero)}

    def loss(self, w: Weights, batch: Batch) -> Tensor:
        """Mean entropy, and the proximal term over the whole table."""
        mu: float = self.settings["mu"]
        moved = (w.Q.whole() - w.start.whole()).square().sum((-1, -2))
        return super().loss(w, batch) + mu / 2 * moved

    def local_round(self, client: Client) -> None:
        """Copy the server's table, train p and Q together, upload Q."""
        client.rewrite("start", lambda w, items: w.Q[items])
        super().local_round(client)


METHOD = FedProx
