"""PerFedRec: a global model, one per cluster of users and the client's own, averaged when scoring.

graph     a client sees its star: itself and its training items
vectors   propagated over the star, k items, s the sum of theirs: user (p_u + s / sqrt k) / 2; own items
          (e_i + 2 p_u / sqrt k + s / k) / 4; others e_i / 4: three layers with symmetric weights, averaged
client    from the third round on starts from its cluster's table, before from the global one; trains it
          and p_u
upload    the table and p_u: the server knows user vectors
server    Q = mean of all tables; k-means on user vectors; K = mean of the cluster's tables
scored    mean of the scores with Q, K and the own table L

`forward=official` propagates as the official code does: user (p_u + 3 (p_u + s) / (k + 1)) / 4, own items
(e_i + 3 (e_i + p_u) / 2) / 4. Its scores use no propagation. `forward=none` leaves propagation out
everywhere. `adaptation` selects one of the models for scoring.
"""

from collections.abc import Mapping
from types import MappingProxyType

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
from fedrec.federation.server.mixing import means_of
from fedrec.methods._math.clustering import clusters

_OWN_CLUSTER_FROM = 3


class ClusterMeans(ServerRule):
    """Averages tables, over all clients and over each cluster of user vectors."""

    @override
    def finish(self, server: ServerSide) -> None:
        everyone = torch.arange(server.clients, device=server.who.device)
        vectors = server.personal["p"].whole(everyone).squeeze(1)
        cluster = clusters(vectors, self.settings["clusters"], server.seed, server.round_)
        # A cluster's table is the mean over its members that took part, or Q if none did. One pass over all
        # tables computes all means.
        member = torch.arange(int(cluster.max()) + 1, device=cluster.device).unsqueeze(1) == cluster
        share = server.share.unsqueeze(0)
        trained = member[:, server.who]
        weights = torch.where(trained.any(1, keepdim=True), trained.to(share.dtype), share)
        means = means_of(server.personal["K"], server.who, torch.cat((share, weights)))
        server.shared["Q"] = means[0]
        for members, mean in zip(member, means[1:], strict=True):
            server.personal["K"].fill(everyone[members], mean)


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
        """Mean of the scores by the models that `adaptation` selects."""
        models = MODELS[self.settings["adaptation"]]
        return torch.stack([self.scored(w, w[name], items) for name in models]).mean(0)

    def scored(self, w: Weights, table: Part, items: Tensor) -> Tensor:
        """Score by one model of items that the client has not trained on."""
        return self.propagated(w, table, items, 0.0)

    def propagated(self, w: Weights, table: Part, items: Tensor, own: Tensor | float) -> Tensor:
        """Inner product of user and item vectors, each the mean over three layers of the client's star.

        `own` is 1 for items the client has trained on, else 0.
        """
        s, k = table.training_sum(), w.interactions
        item = (table[items] + own * (2 * w.p / k.sqrt() + s / k)) / 4
        user = (w.p + s / k.sqrt()) / 2
        return dot(user, item)

    def loss(self, w: Weights, batch: Batch) -> Tensor:
        """Mean entropy of the own table's scores, propagated."""
        return mean_entropy(self.propagated(w, w.L, batch.items, batch.labels.unsqueeze(-1)), batch)

    def local_round(self, client: Client) -> None:
        """Start from the server's, train, upload everything."""
        start = "K" if client.round_ >= _OWN_CLUSTER_FROM else "Q"
        client.rewrite("L", lambda w, items: w[start][items])
        self.fit(client, self.step(client, {"L": self.item_rate(), "p": self.settings["rate"]}))
        client.upload("L", into="K")
        client.upload("p")


MODELS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"all": ("Q", "K", "L"), "global": ("Q",), "cluster": ("K",), "local": ("L",)}
)
"""The tables for scoring, by the setting `adaptation`."""


class NoPropagation(PerFedRec):
    """PerFedRec without propagation."""

    @override
    def propagated(self, w: Weights, table: Part, items: Tensor, own: Tensor | float) -> Tensor:
        return dot(w.p, table[items])


class OfficialPropagation(PerFedRec):
    """The official code's propagation, in which all layers equal the first, and none for scores."""

    @override
    def scored(self, w: Weights, table: Part, items: Tensor) -> Tensor:
        return dot(w.p, table[items])

    @override
    def propagated(self, w: Weights, table: Part, items: Tensor, own: Tensor | float) -> Tensor:
        s, k, item = table.training_sum(), w.interactions, table[items]
        item = (item + own * 3 * (item + w.p) / 2) / 4
        user = (w.p + 3 * (w.p + s) / (k + 1)) / 4
        return dot(user, item)


METHOD = PerFedRec
VARIANTS = {("forward", "none"): NoPropagation, ("forward", "official"): OfficialPropagation}
