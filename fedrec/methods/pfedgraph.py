"""pFedGraph: each client's table is a mixture of the tables of clients that learnt in its direction.

Ye et al.: Personalized federated learning with inferred collaboration graphs, ICML 2023; the item table is
what is shared here, user vectors stay at home.

    score     p_u . q_i
    client    takes its aggregate for its own table if it got one, then trains p_u and Q_u
              + lambda x sign x cos(r_u, Q_u), r_u the mixture of the others' tables at unit length
    upload    Q_u
    server    c_uv = cos(Q_u - Q_0, Q_v - Q_0), above 0.9 taken for 1
              x_u = the point of the simplex nearest to data sizes + c_u / (2 alpha), found by sorting where
              the code solves a quadratic programme per client; G_u = sum of x_uv Q_v
    scored    own p_u with G_u if the client got one in this round, else with its own table

As PFedCLR runs it, all clients train and a tenth is aggregated. The official code adds the cosine
(`sign=plus`), which drives clients apart; its paper's objective subtracts it (`sign=minus`). The penalty
moves every row, by far less than a row's own samples do (its gradient has at most unit length over the whole
table): it is off by default, and a step of plain SGD before the task's where it is on, since Adam would blow
it up to full steps.

Cost per round: O(E S d) on the clients, O(E m d steps) each with the penalty; O(s^2 m d + s^2 log s) on the
server (s clients aggregated).
"""

from dataclasses import replace
from typing import Any

from torch import Tensor

from fedrec.federation.model.method import Batch, Client, Method, ServerSide, Weights, mean_entropy
from fedrec.federation.model.parameters import Initial, Parameter, item_table, vector
from fedrec.federation.server.mixing import project_on_simplex, same_direction


class PFedGraph(Method):
    """Personalised aggregation over an inferred graph, over matrix factorisation."""

    @property
    def dense(self) -> bool:  # type: ignore[override]
        """The penalty falls on every row."""
        return bool(self.settings["penalty"] > 0)

    def parameters(self) -> dict[str, Parameter]:
        """Q is the client's own; G its aggregate; p stays on the client."""
        d, start = self.settings["d"], Initial("normal", 1.0)
        own = Parameter((self.items, d), "local", start, table=True, rewritten=True)
        model = {
            "Q": own,
            "p": vector(d, "private", start),
            "G": item_table(self.items, d, "personal", start),
        }
        if self.dense:
            model["R"] = item_table(self.items, d, "personal", start)
        return model

    def table(self, w: Weights, items: Tensor) -> Tensor:
        """The rows of the aggregate if the client got one, else its own."""
        own: Tensor = w.Q[items]
        rows: Tensor = own + w.held * (w.G[items] - own)
        return rows

    def score(self, w: Weights, items: Tensor) -> Tensor:
        """P . q."""
        scored: Tensor = (self.table(w, items) * w.p).sum(-1)
        return scored

    def loss(self, w: Weights, batch: Batch) -> Tensor:
        """Mean entropy with the own table, which has taken over the aggregate."""
        return mean_entropy((w.Q[batch.items] * w.p).sum(-1), batch)

    def penalty(self, w: Weights, batch: Batch) -> Tensor:  # noqa: ARG002 - it is about whole tables
        """The cosine with the direction of similar clients."""
        sign = -1 if self.settings["sign"] == "minus" else 1
        own, others = w.Q.whole(), w.R.whole()
        length: Any = own.square().sum((-1, -2)).sqrt()
        cosine: Tensor = (own * others).sum((-1, -2)) / length
        found: Tensor = sign * self.settings["penalty"] * w.held.squeeze(-1).squeeze(-1) * cosine
        return found

    def local_round(self, client: Client) -> None:
        """Take over the aggregate, train, upload."""
        client.rewrite("Q", self.table)
        rate = self.settings["rate"]
        steps = [self.step(client, {"Q": rate, "p": rate})]
        if self.dense:
            # It comes first: a client's loss, by which it may stop, is that of its last step.
            steps.insert(0, replace(self.step(client, {"Q": rate}), optimiser="sgd", loss=self.penalty))
        self.fit(client, *steps)
        client.upload("Q", into="G")

    def mixing(self, name: str, uploads: Tensor, server: ServerSide) -> Tensor:  # noqa: ARG002 - there is one
        """The weight of each upload (column) in each client's aggregate (row); R is made of the same."""
        likeness = same_direction(uploads, server.initial["Q"].reshape(-1))
        weights = project_on_simplex(server.share + likeness / (2 * self.settings["alpha"]))
        if self.dense:
            directions = (weights / uploads.norm(dim=1)) @ uploads
            server.personal["R"].put(server.who, directions.unflatten(1, (self.items, -1)))
        return weights


METHOD = PFedGraph
