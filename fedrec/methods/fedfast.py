"""FedFast: clients stand for others like them, and rows of items count by how far they moved.

    score     p_u . q_i (with `product=weighted` each dimension times a shared weight h, as GMF does)
    client    trains p_u and its copy of Q together
    upload    Q_u and p_u: the server knows user vectors
    server    items      q_i = sum of c_ui q_ui / sum of c_ui, c_ui the L1 norm of the row's change
              sampling   k-means on user vectors; as many clients from every cluster (delegates)
              the rest   of a cluster (subordinates) moves by gamma^round x the delegates' mean change of p
    scored    p_u with the server's newest Q

FedEM runs it with every client in every round. Then there are no subordinates, and only the rule for items
remains: FedMF[combine=change].
"""

from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.federation.model import (
    Citation,
    Client,
    Initial,
    Parameter,
    ServerRule,
    ServerSide,
    Weights,
    dot,
    item_table,
    vector,
)
from fedrec.methods._math.clustering import clusters
from fedrec.methods.fedmf import FedMF
from fedrec.random.purpose import Purpose
from fedrec.random.with_torch import philox


class ActiveSampling(ServerRule):
    """Samples clients by clusters of user vectors, and moves all others with their cluster."""

    _before: Tensor
    """The user vectors at the start of the round."""

    @override
    def begin(self, server: ServerSide) -> None:
        # `finish` compares with these user vectors.
        self._before = self._vectors(server)

    @override
    def choose(self, server: ServerSide, count: int) -> Tensor | None:
        # About as many clients from every cluster.
        if count >= server.clients:
            return None
        everyone = torch.arange(server.clients, device=self._before.device)
        words = philox(torch.zeros_like(everyone), everyone, server.round_, int(Purpose.SERVER), server.seed)
        return delegates(self._clusters(self._before, server), words[:, 0], count)

    @override
    def finish(self, server: ServerSide) -> None:
        # Let subordinates follow the delegates of their cluster.
        taking_part = torch.zeros(server.clients, dtype=torch.bool, device=server.who.device)
        taking_part[server.who] = True
        if taking_part.all():
            return
        vectors = self._vectors(server)
        moved = follow(vectors - self._before, taking_part, self._clusters(vectors, server))
        rest = (~taking_part).nonzero().squeeze(1)
        shift = self.settings["gamma"] ** server.round_ * moved[rest]
        server.personal["p"].put(rest, (vectors[rest] + shift).unsqueeze(1))

    def _vectors(self, server: ServerSide) -> Tensor:
        everyone = torch.arange(server.clients, device=server.who.device)
        return server.personal["p"].whole(everyone).squeeze(1)

    def _clusters(self, vectors: Tensor, server: ServerSide) -> Tensor:
        return clusters(vectors, self.settings["clusters"], server.seed, server.round_)


class FedFast(FedMF):
    """Active sampling and active aggregation, over matrix factorisation."""

    paper = Citation(
        "Muhammad et al.",
        "FedFast: going beyond average for faster training of federated recommender systems",
        "KDD",
        2020,
    )
    cost = "O(E S d) on the clients; O(sum of R_u d + n k d) on the server (k clusters)."

    server_rule = ActiveSampling

    vectors: ClassVar[tuple[str, ...]] = ("p",)
    """The parameters that are trained and uploaded in addition to Q."""

    def parameters(self) -> dict[str, Parameter]:
        """Q is shared, and the server has every p."""
        d, start = self.settings["d"], Initial("normal", 1.0)
        return {
            "Q": item_table(self.items, d, "shared", start, "change"),
            "p": vector(d, "personal", start),
        }

    def local_round(self, client: Client) -> None:
        """Train everything together, upload everything."""
        rates = {"Q": self.item_rate(), **dict.fromkeys(self.vectors, self.settings["rate"])}
        self.fit(client, self.step(client, rates))
        client.upload("Q", *self.vectors)


def delegates(cluster: Tensor, word: Tensor, count: int) -> Tensor:
    """Choose `count` clients, one from each cluster in turn; within a cluster, the smallest words first."""
    by_word = torch.argsort(word, stable=True)
    by_cluster = by_word[torch.argsort(cluster[by_word], stable=True)]
    sizes = torch.bincount(cluster)
    turn = torch.arange(len(cluster), device=cluster.device) - (sizes.cumsum(0) - sizes)[cluster[by_cluster]]
    # All first turns precede all second turns; within a turn, small words come first.
    order = torch.argsort(word[by_cluster], stable=True)
    order = order[torch.argsort(turn[order], stable=True)]
    return by_cluster[order][:count].sort().values


def follow(change: Tensor, taking_part: Tensor, cluster: Tensor) -> Tensor:
    """For each client, the mean change of its cluster's clients that took part; 0 if none did."""
    total = change.new_zeros(int(cluster.max()) + 1, change.shape[1])
    total.index_add_(0, cluster[taking_part], change[taking_part])
    count = torch.bincount(cluster[taking_part], minlength=len(total)).clamp(min=1)
    return (total / count.unsqueeze(1))[cluster]


class WeightedProduct(FedFast):
    """Each dimension of the product times a shared weight h, as GMF does."""

    vectors = ("p", "h")

    @override
    def parameters(self) -> dict[str, Parameter]:
        return super().parameters() | {"h": vector(self.settings["d"], "shared", Initial("constant", 1.0))}

    @override
    def score(self, w: Weights, items: Tensor) -> Tensor:
        return dot(w.Q[items], w.p * w.h)


METHOD = FedFast
VARIANTS = {("product", "weighted"): WeightedProduct}
