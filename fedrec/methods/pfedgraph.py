"""pFedGraph: each client's table is a mixture of the tables of clients that learnt in its direction.

Clients share only the item table here; user vectors stay on the clients.

    score     p_u . q_i
    client    takes its aggregate for its own table if it got one, then trains p_u and Q_u
              + lambda x sign x cos(r_u, Q_u), r_u the mixture of the others' tables at unit length
    upload    Q_u
    server    c_uv = cos(Q_u - Q_0, Q_v - Q_0), above 0.9 taken for 1
              x_u = the point of the simplex nearest to data sizes + c_u / (2 alpha), found by sorting where
              the code solves a quadratic programme per client; G_u = sum of x_uv Q_v
    scored    own p_u with G_u if the client got one in this round, else with its own table

PFedCLR runs it with all clients in training, and aggregates a tenth. The official code adds the cosine
(`sign=plus`), which drives clients apart; the paper's objective subtracts it (`sign=minus`).

The penalty moves every row, but far less than the row's own samples: its gradient over the whole table has at
most length 1. It is off by default. If it is on, a step of plain SGD on it precedes the step on the loss.
Adam would scale it up to full steps.
"""

from dataclasses import replace

from torch import Tensor
from typing_extensions import override

from fedrec.federation.model import (
    Batch,
    Citation,
    Client,
    Initial,
    Method,
    Parameter,
    ServerRule,
    ServerSide,
    Step,
    Uploads,
    Weights,
    dot,
    item_table,
    mean_entropy,
    vector,
)
from fedrec.methods._math.similarity import same_direction
from fedrec.methods._math.simplex import project_on_simplex


class CollaborationGraph(ServerRule):
    """Gives each client a mixture of the tables of clients that learnt in its direction."""

    @override
    def mix(self, name: str, uploads: Uploads, server: ServerSide) -> Tensor:
        similarity = same_direction(uploads, server.initial["Q"].reshape(-1))
        weights = project_on_simplex(server.share + similarity / (2 * self.settings["alpha"]))
        if self.settings["penalty"] > 0:
            # R, the direction of similar clients, mixes the same tables at unit length.
            length = uploads.map(lambda some: some.norm(dim=1))
            server.personal["R"].mix(server.who, uploads, weights / length)
        return weights


class PFedGraph(Method):
    """Personalised aggregation over an inferred graph, over matrix factorisation."""

    paper = Citation(
        "Ye et al.",
        "Personalized federated learning with inferred collaboration graphs",
        "ICML",
        2023,
    )
    cost = (
        "O(E S d) on the clients, O(E m d steps) each with the penalty; O(s^2 m d + s^2 log s) on the "
        "server (s clients aggregated)."
    )

    server_rule = CollaborationGraph

    def parameters(self) -> dict[str, Parameter]:
        """Q is the client's own; G its aggregate; p stays on the client."""
        d, start = self.settings["d"], Initial("normal", 1.0)
        own = Parameter((self.items, d), "local", start, table=True)
        model = {
            "Q": own,
            "p": vector(d, "private", start),
            "G": item_table(self.items, d, "personal", start),
        }
        if self.settings["penalty"] > 0:
            model["R"] = item_table(self.items, d, "personal", start)
        return model

    def table(self, w: Weights, items: Tensor) -> Tensor:
        """The rows of the aggregate if the client got one, else of its own table."""
        own = w.Q[items]
        return own + w.held * (w.G[items] - own)

    def score(self, w: Weights, items: Tensor) -> Tensor:
        """Inner product of user vector p and the row of `table`."""
        return dot(self.table(w, items), w.p)

    def loss(self, w: Weights, batch: Batch) -> Tensor:
        """Mean entropy with the own table, which starts as the aggregate."""
        return mean_entropy(dot(w.Q[batch.items], w.p), batch)

    def penalty(self, w: Weights, batch: Batch) -> Tensor:  # noqa: ARG002 - it is about whole tables
        """The cosine of the own table with R, the direction of similar clients, times strength and sign."""
        strength: float = self.settings["penalty"]
        sign = -1 if self.settings["sign"] == "minus" else 1
        own, others = w.Q.whole(), w.R.whole()
        length = own.square().sum((-1, -2)).sqrt()
        cosine = (own * others).sum((-1, -2)) / length
        return sign * strength * w.held.squeeze(-1).squeeze(-1) * cosine

    def local_round(self, client: Client) -> None:
        """Start from the aggregate, train, upload."""
        rate = self.settings["rate"]
        client.rewrite("Q", self.table)
        self.fit(client, *self.penalty_step(client), self.step(client, {"Q": rate, "p": rate}))
        client.upload("Q", into="G")

    def penalty_step(self, client: Client) -> tuple[Step, ...]:
        """The step on the penalty, if there is one.

        It comes first, because the last step gives the loss that decides an early stop.
        """
        if not self.settings["penalty"]:
            return ()
        step = self.step(client, {"Q": self.settings["rate"]})
        return (replace(step, optimiser="sgd", loss=self.penalty),)


METHOD = PFedGraph
