"""GPFedRec: a client's table is pulled towards the mean table of its neighbours on a graph of users.

    score     MLP(p_u, q_i), all of it private but the item table
    client    starts from g; trains everything on mean entropy + reg x mean (Q_u - r_u)^2 over the whole table
    upload    Q_u
    server    neighbours v of u: similarity of tables above its mean; r_u = their mean table; g = mean of r_u
    scored    own table as last trained, own MLP and p_u

`graph=similarity` is the paper's graph: cosines above their mean. `graph=distance` is the official code's
graph: cosine distances above their mean. There the least similar users are neighbours, and no user is its own
neighbour.

`pull` sets the strength: the share of the way to r_u in one step, 2 x item rate x reg / (m d). At the code's
rates, its reg = 1 is pull = 1.0 for d=16 and 0.5 for d=32.
"""

import torch
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
    Uploads,
    Weights,
    item_table,
    mlp,
    perceptron,
    vector,
)
from fedrec.federation.server.mixing import mean_of
from fedrec.methods._math.similarity import cosine_distances, neighbours


class NeighbourMeans(ServerRule):
    """Gives each client the mean table of its neighbours; with more layers, also of their neighbours."""

    @override
    def mix(self, name: str, uploads: Uploads, server: ServerSide) -> Tensor:
        similarity = self.similarity(uploads)
        graph = neighbours(similarity, self.settings["threshold"], self.settings["neighbours"])
        reached: Tensor = torch.linalg.matrix_power(graph, self.settings["depth"])
        return reached

    def similarity(self, uploads: Uploads) -> Tensor:
        """The cosine of the tables of every two clients."""
        return 1 - cosine_distances(uploads)

    @override
    def finish(self, server: ServerSide) -> None:
        # All clients start from the mean of the neighbourhoods' mean tables.
        server.shared["Q"] = mean_of(server.personal["R"], server.who)


class GPFedRec(Method):
    """Graph-guided personalisation."""

    paper = Citation(
        "Zhang et al.",
        "GPFedRec: graph-guided personalization for federated recommendation",
        "KDD",
        2024,
    )
    cost = (
        "O(S h + n m d steps) on the clients (h the MLP's size; every row moves in every step); O(n^2 "
        "m d) on the server. Memory O(2 n m d)."
    )

    scored_with_own_copy = ("Q",)
    server_rule = NeighbourMeans

    def parameters(self) -> dict[str, Parameter]:
        """Q is shared, R the mean of the client's neighbours; p and the MLP stay on the client."""
        d, start = self.settings["d"], Initial("normal", 1.0)
        table = item_table(self.items, d, "shared", start)
        return {
            "Q": table,
            "R": Parameter(table.shape, "personal", start, table=True, start="Q"),
            "p": vector(d, "private", start),
            **mlp("mlp", (2 * d, *self.settings["layers"], 1), "private"),
        }

    def score(self, w: Weights, items: Tensor) -> Tensor:
        """The MLP's output for both vectors side by side."""
        q = w.Q[items]
        return perceptron(w, "mlp", torch.cat((w.p.expand_as(q), q), dim=-1)).squeeze(-1)

    def pulled(self, w: Weights, batch: Batch) -> Tensor:
        """Mean entropy plus reg |Q - R|^2, which pulls the whole table to the neighbours' mean."""
        apart = (w.Q.whole() - w.R.whole()).square().sum((-1, -2))
        reg: float = self.settings["pull"] / (2 * self.item_rate())
        return self.loss(w, batch) + reg * apart

    def local_round(self, client: Client) -> None:
        """Train everything together, upload Q."""
        rate = self.settings["rate"]
        tower = [name for name in self.parameters() if name.startswith("mlp")]
        rates = {"Q": self.item_rate(), "p": rate * self.settings["user_factor"]} | dict.fromkeys(tower, rate)
        self.fit(client, self.step(client, rates), loss=self.pulled)
        client.upload("Q", into="R")


class DistantNeighbours(NeighbourMeans):
    """The official code's rule, which takes the distance of two tables for their similarity."""

    @override
    def similarity(self, uploads: Uploads) -> Tensor:
        return cosine_distances(uploads)


class OfficialGraph(GPFedRec):
    """The official code's graph, in which the least similar clients are neighbours."""

    server_rule = DistantNeighbours


METHOD = GPFedRec
VARIANTS = {("graph", "distance"): OfficialGraph}
