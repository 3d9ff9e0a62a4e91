"""LightGCN: vectors propagate over the graph of users and items, with all data in one place.

    graph     users and items, an edge per training row; A' = D^-1/2 A D^-1/2, no self loops
    score     e_u . e_i with e = mean of the layers 0..L of E, A' E, A'^2 E, ...
    loss      bpr: mean softplus(e_u . e_j - e_u . e_i) over negatives j of a row (u, i); bce: mean binary
              cross-entropy; both with reg/2 times the squared layer-0 vectors of a row, mean over rows
    training  Adam on mini-batches of training rows, each with its negatives; every row once per epoch
    scored    with the vectors propagated after each epoch

The official code draws users uniformly, and then one of their rows. Here each epoch has every row once, as in
all other methods. `graph=all` adds the held-out rows to the graph: a leak, available to show its effect.
"""

import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from fedrec.central.adam import Adam
from fedrec.central.method import CentralMethod
from fedrec.central.steps import Steps
from fedrec.federation.clients import Clients
from fedrec.federation.model import Citation, Initial, Parameter, Values, dot, matrix
from fedrec.methods._math.graph import Graph, Propagation
from fedrec.methods._math.propagation_steps import propagation_steps


class LightGCN(CentralMethod):
    """Graph convolution without weights."""

    paper = Citation(
        "He et al.",
        "LightGCN: simplifying and powering graph convolution network for recommendation",
        "SIGIR",
        2020,
    )
    cost = "O(T / B x L T d) for T training rows in mini-batches of B."

    whole_rows = True
    pairwise = True
    graph: Graph

    def prepare(self, clients: Clients) -> None:
        """Build the graph."""
        self.graph = Graph.of(*self.edges(clients), self.users, self.items)

    def edges(self, clients: Clients) -> tuple[Tensor, Tensor]:
        """The user and item of every edge."""
        return torch.repeat_interleave(clients.everyone, clients.sizes), clients.train_item

    def parameters(self) -> dict[str, Parameter]:
        """Layer 0: one vector per user, one per item."""
        d, spread = self.settings["d"], Initial("normal", self.settings["spread"])
        return {"P": matrix(self.users, d, "shared", spread), "Q": matrix(self.items, d, "shared", spread)}

    def forward(self, w: Values) -> Values:
        """Propagate the vectors of users and items."""
        nodes = Propagation.apply(torch.cat((w.P, w.Q)), self.graph, self.settings["depth"])
        user, item = nodes.split((self.users, self.items))
        return Values(w, user=user, item=item)

    def score(self, w: Values, users: Tensor, items: Tensor) -> Tensor:
        """Inner product of propagated user and item vectors."""
        return dot(functional.embedding(users, w.user), functional.embedding(items, w.item))

    def loss(self, w: Values, users: Tensor, items: Tensor, labels: Tensor) -> Tensor:
        """Ranking loss, and reg / 2 times the squared norms of the layer-0 vectors of a training row."""
        squares = (
            functional.embedding(users, w.P).square().sum() + functional.embedding(items, w.Q).square().sum()
        )
        scores = self.score(w, users.unsqueeze(1), items)
        total: Tensor = self.ranking_loss(scores, labels) + self.settings["reg"] / 2 * squares / len(scores)
        return total

    def ranking_loss(self, scores: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002 - see override
        """BPR: a positive, which comes first, above its negatives."""
        return functional.softplus(scores[:, 1:] - scores[:, :1]).mean()

    @override
    def steps(self, w: Values, optimiser: Adam, device: torch.device) -> Steps:
        return propagation_steps(self, self.graph, optimiser, device) or super().steps(w, optimiser, device)


class Entropy(LightGCN):
    """LightGCN with the mean binary cross-entropy of all other methods."""

    pairwise = False

    @override
    def ranking_loss(self, scores: Tensor, labels: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(scores, labels)


class LeakingGraph(LightGCN):
    """A graph of all interactions, held-out ones among them."""

    @override
    def edges(self, clients: Clients) -> tuple[Tensor, Tensor]:
        users, items = super().edges(clients)
        held_out = list(clients.held_out.values())
        return torch.cat((users, *[clients.everyone] * len(held_out))), torch.cat((items, *held_out))


METHOD = LightGCN
VARIANTS = {("loss", "bce"): Entropy, ("graph", "all"): LeakingGraph}
