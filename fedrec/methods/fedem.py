"""FedEM: every client receives an aggregate of its own and merges it with its own item table, item by item.

Here Q, G and M are the paper's Q^l, Q^g and Q^m, and the adapter is its Theta.

score      p_u . m_i, m_i = (1 - rho_i) q_i + rho_i g_i, rho_i = adapter(g_i - q_i, q_i) in (0, 1) (Eq. 9, 10)
client     trains the adapter through the merge (Eq. 11), merges, trains p_u and the merged table (Eq. 12)
upload     Q_u
server     G_u = sum over v of w_uv Q_v; w_u balances data sizes p_v and similarities s_uv (Eq. 13)
scored     own p_u with own table merged with the newest G_u

Three orders of adapter, merge and training (the table in fedrec/plugins/em.py):

    merging=batch   DEFAULT, class OfficialOrder: the official code, which gives the printed numbers
    merging=epoch   class FedEM: the lines of Algorithm 1; line 5 lies inside the loop over mini-batches,
                    and only its last value is used
    merging=once    class MergedOnce: the paper's text

In the official code a tenth of the clients is aggregated in a round (`aggregated=0.1`). All others keep
their own table and do not merge (`held` is 0), and so does everyone in the first round. The code has
similarities and weights of its own (`similarity=component`, `cosine`; `weights=simplex`). The paper's
ablations FedSim w/ SR, SM and DM are `merge=replace`, `static` and `dynamic`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.errors import ConfigurationError
from fedrec.federation.model import (
    Client,
    Initial,
    Loss,
    Parameter,
    ServerRule,
    ServerSide,
    Step,
    Uploads,
    Weights,
    dot,
    mean_entropy,
)
from fedrec.federation.server.uploads import FlatUploads
from fedrec.methods._math.similarity import cosines, first_components, squared_distances
from fedrec.methods._math.simplex import project_on_simplex
from fedrec.methods.fedmf import FedMF
from fedrec.plugins.em import Dynamic, OnlyAggregated, Replacement, Static


class FedEM(OnlyAggregated):
    """Elastic merging of personalised aggregates, over matrix factorisation.

    This class is Algorithm 1 (`merging=epoch`). The default is `OfficialOrder` below (`merging=batch`).
    """

    paper = OnlyAggregated.paper
    cost = "O(E S d + n m d) on the clients, O(n^2 m d) on the server."

    def __init__(self, settings: Mapping[str, Any], items: int) -> None:
        if settings["dp_noise"]:
            raise ConfigurationError(
                "fedem: noise on gradients (dp_noise) does not cover a merged table. Leave dp_noise out."
            )
        super().__init__(FedMF(settings, items), settings, items)
        self.server = PersonalisedAggregation(settings, items)

    def parameters(self) -> dict[str, Parameter]:
        """Q, p and the adapter stay with the client, which uploads Q; G is on the server, one per client."""
        model, zero = self.backbone.parameters(), Initial("constant", 0.0)
        return {
            "Q": replace(model["Q"], location="local"),
            "p": model["p"],
            "G": replace(model["Q"], location="personal"),
            "M": replace(model["Q"], location="scratch", initial=zero),
            **self.adapter(self.settings["d"]),
        }

    def score(self, w: Weights, items: Tensor) -> Tensor:
        """Inner product of user vector p and merged item row; `loss` is its mean entropy."""
        return dot(self.merged(w, items), w.p)

    def local_round(self, client: Client) -> None:
        """ClientUpdate of Algorithm 1, with the numbers of its lines."""
        for _ in range(self.settings["local_epochs"]):  # 1
            self.train_adapter(client, epochs=1)  # 2 to 4: Theta learns
            client.rewrite("M", self.merged)  # 5: elastic merging
            client.fit(self.embedding_step(client, "M"), epochs=1, loss=self.loss_on("M"))  # 7 to 9
        client.rewrite("Q", lambda w, items: w.M[items])  # 11
        client.upload("Q", into="G")  # 12

    def train_adapter(self, client: Client, epochs: int, early_stop: float | None = None) -> None:
        """Update the adapter on the loss of the merged table (Eq. 11)."""
        for step in self.adapter_step():
            client.fit(step, epochs=epochs, loss=self.loss, early_stop=early_stop)

    def embedding_step(self, client: Client, table: str) -> Step:
        """Update p and a table (Eq. 12)."""
        return self.step(client, {table: self.item_rate(), "p": self.settings["rate"]})

    def loss_on(self, table: str) -> Loss:
        """The loss of a table without merging."""
        return lambda w, batch: mean_entropy(dot(w[table][batch.items], w.p), batch)


class PersonalisedAggregation(ServerRule):
    """Gives each client its own mixture of all uploads, by data sizes and similarities (Eq. 13)."""

    @override
    def mix(self, name: str, uploads: Uploads, server: ServerSide) -> Tensor:
        similarity = SIMILARITIES[self.settings["similarity"]]
        wanted: Tensor = server.share + self.settings["alpha"] * similarity(uploads, self.items)
        return WEIGHTS[self.settings["weights"]](wanted)


def by_distance(uploads: Uploads, _items: int) -> Tensor:
    """The paper's similarity, 1 / (1 + |Q_u - Q_v|^2)."""
    return 1 / (1 + squared_distances(uploads))


def closed_form(wanted: Tensor) -> Tensor:
    """The paper's minimiser (p_v + alpha s_uv) / (1 + alpha), rows divided by their sums."""
    # The factor 1 / (1 + alpha) cancels when rows are divided by their sums.
    return wanted / wanted.sum(1, keepdim=True)


class MergedOnce(FedEM):
    """`merging=once`, the paper's text: E epochs of the adapter, one merge, E epochs of training."""

    @override
    def parameters(self) -> dict[str, Parameter]:
        # Q is merged in place.
        return {name: part for name, part in super().parameters().items() if name != "M"}

    @override
    def local_round(self, client: Client) -> None:
        self.train_adapter(client, self.settings["local_epochs"], self.settings["early_stop"])
        client.rewrite("Q", self.merged)
        self.fit(client, self.embedding_step(client, "Q"), loss=self.loss_on("Q"))
        client.upload("Q", into="G")


class OfficialOrder(MergedOnce):
    """`merging=batch`, default and official code: merge, then in every mini-batch both steps through it."""

    @override
    def local_round(self, client: Client) -> None:
        client.rewrite("Q", self.merged)
        self.fit(client, *self.adapter_step(), self.embedding_step(client, "Q"))
        client.upload("Q", into="G")


class DynamicMerging(Dynamic, FedEM):
    """FedSim w/ DM."""


class StaticMerging(Static, FedEM):
    """FedSim w/ SM."""


class StaticReplacement(Replacement, FedEM):
    """FedSim w/ SR."""


def by_component(uploads: Uploads, items: int) -> Tensor:
    """The official code's similarity, 1 / (1 + distance) of first principal components; above 0.9 it is 1."""
    components = uploads.map(lambda some: first_components(some.unflatten(1, (items, -1))))
    similarity = 1 / (1 + squared_distances(FlatUploads(components)).sqrt())
    return torch.where(similarity > 0.9, 1.0, similarity)


def by_cosine(uploads: Uploads, _items: int) -> Tensor:
    """The official code's alternative: cosines, with negative ones set to 0."""
    return cosines(uploads).clamp(min=0)


SIMILARITIES: Mapping[str, Callable[[Uploads, int], Tensor]] = MappingProxyType(
    {"distance": by_distance, "component": by_component, "cosine": by_cosine}
)
WEIGHTS: Mapping[str, Callable[[Tensor], Tensor]] = MappingProxyType(
    # The official code solves a quadratic programme per client; the projection finds the same by sorting.
    {"closed": closed_form, "simplex": project_on_simplex}
)

METHOD = FedEM
VARIANTS = {
    ("merging", "once"): MergedOnce,
    ("merging", "batch"): OfficialOrder,
    ("merge", "dynamic"): DynamicMerging,
    ("merge", "static"): StaticMerging,
    ("merge", "replace"): StaticReplacement,
}
