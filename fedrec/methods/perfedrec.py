"""PerFedRec: a global model, one per cluster of users and the client's own, averaged when scoring.

graph     a client sees its star: itself and its training items
vectors   propagated over the star (`forward`), e_u = p_u, k items, s the sum of theirs:
star3     user (e_u + s / sqrt k) / 2; own items (e_i + 2 e_u / sqrt k + s / k) / 4;
others e_i / 4: three layers with symmetric weights, averaged
official  user (e_u + 3 (e_u + s) / (k + 1)) / 4; own items (e_i + 3 (e_i + e_u) / 2) / 4;
others e_i / 4; scored without propagation, as the code does
none      e_u and e_i
client    from the third round on starts from its cluster's table, before from the global one; trains it
and p_u
upload    the table and p_u: the server knows user vectors
server    Q = mean of all tables; k-means on user vectors; K = mean of the cluster's tables
scored    mean of the scores with Q, K and the own table L
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
    Part,
    ServerRule,
    ServerSide,
    Weights,
    dot,
    item_table,
    mean_entropy,
    vector,
)
from fedrec.federation.server.mixing import mean_of
from fedrec.methods._math.clustering import clusters

_OWN_CLUSTER_FROM = 3


class ClusterMeans(ServerRule):
    """Averages tables, over all clients and over each cluster of user vectors."""

    @override
    def finish(self, server: ServerSide) -> None:
        # A cluster's table is the mean over its members that took part, or else Q.
        server.shared["Q"] = mean_of(server.personal["K"], server.who, server.share)
        everyone = torch.arange(server.clients, device=server.who.device)
        vectors = server.personal["p"].whole(everyone).squeeze(1)
        cluster = clusters(vectors, self.settings["clusters"], server.seed, server.round_)
        taking_part = torch.zeros_like(everyone, dtype=torch.bool)
        taking_part[server.who] = True
        for number in cluster.unique():
            members = everyone[cluster == number]
            trained = members[taking_part[members]]
            mean = mean_of(server.personal["K"], trained) if len(trained) else server.shared["Q"]
            server.personal["K"].restart(members, mean)


class PerFedRec(Method):
    """Joint representation learning, clustering and adaptation."""

    paper = Citation(
        "Luo, Xiao, Song",
        "Personalized federated recommendation via joint representation learning, user clustering, "
        "and model adaptation",
        "CIKM",
        2022,
    )
    cost = "O(E S d) on the clients; O(n m d + n k d) on the server (k clusters)."

    personal_table = "L"
    additive = False
    server_rule = ClusterMeans

    def parameters(self) -> dict[str, Parameter]:
        """Q is shared, K the cluster's, L the client's own; the server has every p."""
        d = self.settings["d"]
        start = Initial("uniform", (6 / (self.items + d)) ** 0.5)
        table = item_table(self.items, d, "shared", start)
        return {
            "Q": table,
            "K": Parameter(table.shape, "personal", start, table=True, start="Q"),
            "L": Parameter(table.shape, "local", start, table=True, start="Q"),
            "p": vector(d, "personal", start),
        }

    def score(self, w: Weights, items: Tensor) -> Tensor:
        """The mean of what the models say that take part."""
        models, wanted = {"global": "Q", "cluster": "K", "local": "L"}, self.settings["adaptation"]
        chosen = models.values() if wanted == "all" else [models[wanted]]
        propagates = self.settings["forward"] == "star3"
        scores = [self.logit(w, w[name], items, None, propagates=propagates) for name in chosen]
        return torch.stack(scores).mean(0)

    def logit(
        self, w: Weights, table: Part, items: Tensor, own: Tensor | None, *, propagates: bool
    ) -> Tensor:
        """The product of both vectors; `own` is 1 for items the client has trained on, None for no item."""
        user: Tensor = w.p
        item = table[items]
        if propagates:
            total, count = table.training_sum(), w.rows
            mine: Tensor | float = 0.0 if own is None else own.unsqueeze(-1)
            if self.settings["forward"] == "star3":
                item = (item + mine * (2 * w.p / count.sqrt() + total / count)) / 4
                user = (w.p + total / count.sqrt()) / 2
            else:
                item = (item + mine * 3 * (item + w.p) / 2) / 4
                user = (w.p + 3 * (w.p + total) / (count + 1)) / 4
        return dot(user, item)

    def loss(self, w: Weights, batch: Batch) -> Tensor:
        """Mean entropy of the own table's scores."""
        propagates = self.settings["forward"] != "none"
        return mean_entropy(self.logit(w, w.L, batch.items, batch.labels, propagates=propagates), batch)

    def local_round(self, client: Client) -> None:
        """Start from the server's, train, upload everything."""
        start = "K" if client.round_ >= _OWN_CLUSTER_FROM else "Q"
        client.rewrite("L", lambda w, items: w[start][items])
        self.fit(client, self.step(client, {"L": self.item_rate(), "p": self.settings["rate"]}))
        client.upload("L", into="K")
        client.upload("p")


METHOD = PerFedRec
