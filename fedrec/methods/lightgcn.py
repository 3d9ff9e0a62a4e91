"""LightGCN: vectors spread over the graph of who met what, with all data in one place.

    graph     users and items, an edge per training row; A' = D^-1/2 A D^-1/2, no self loops
    score     e_u . e_i with e = mean of the layers 0..L of E, A' E, A'^2 E, ...
    loss      bpr: mean softplus(e_u . e_j - e_u . e_i) over negatives j of a row (u, i); bce: mean binary
              cross-entropy; both with reg/2 times the squared layer-0 vectors of a row, mean over rows
    training  Adam on mini-batches of training rows, each with its negatives; every row once per epoch
    scored    the vectors spread once after each epoch

The official code draws users uniformly, and then one of their rows; here every row has its turn, as in all
other methods. `graph=all` puts the held-out rows into the graph: a leak, kept to show what it does.
"""

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from fedrec.central.adam import Adam
from fedrec.central.method import CentralMethod
from fedrec.central.steps import RecordedSteps, Steps
from fedrec.federation.clients import Clients
from fedrec.federation.model import Citation, Initial, Parameter, Values, dot, matrix
from fedrec.methods._math.bags import Bags

_COLUMNS = 512
"""Of a matrix, made at once."""
_SHARE_OF_GPU = 8
"""A matrix may take this part of a GPU's memory, and the rows that a step reads with it."""
_ROWS_APART = 3
"""Where a step reads fewer than one of so many rows of a matrix, copying these first takes less time."""


@dataclass(frozen=True)
class Graph:
    """Users, then items, as nodes."""

    neighbours: Bags
    """The nodes that each of them shares an edge with."""
    scale: Tensor
    """1 / sqrt(degree) of each node, as a column."""

    @classmethod
    def of(cls, user: Tensor, item: Tensor, users: int, items: int) -> Self:
        """The graph of these rows; a pair met twice has two edges."""
        start, end = torch.cat((user, users + item)), torch.cat((users + item, user))
        degree = torch.bincount(start, minlength=users + items)
        return cls(
            neighbours=Bags.of(end[torch.argsort(start, stable=True)], degree),
            # A node without an edge has no neighbours to be scaled.
            scale=degree.clamp(min=1).to(torch.get_default_dtype()).rsqrt().unsqueeze(1),
        )

    def spread(self, layer: Tensor, depth: int) -> Tensor:
        """The mean of `layer` and the `depth` layers that follow it."""
        total = layer
        for _ in range(depth):
            layer = self.scale * self.neighbours.sums(self.scale * layer)
            total = total + layer
        return total / (depth + 1)

    def matrix(self, depth: int) -> Tensor:
        """`spread` as a matrix: nodes x nodes, symmetric but for rounding."""
        nodes = len(self.scale)
        width = min(nodes, _COLUMNS)
        whole = self.scale.new_empty(nodes, nodes)
        for start in range(0, nodes, width):
            # The last columns are made with some of those before them: sums are compiled for one width.
            first = min(start, nodes - width)
            units = self.scale.new_zeros(nodes, width)
            units[first : first + width].fill_diagonal_(1)
            whole[:, first : first + width] = self.spread(units, depth)
        return whole


class Spread(torch.autograd.Function):
    """`Graph.spread`, a product with a symmetric matrix: gradients go through it the same way."""

    @staticmethod
    def forward(ctx: Any, nodes: Tensor, graph: Graph, depth: int) -> Tensor:  # noqa: ANN401 - torch's own context
        """Propagated vectors of the nodes."""
        ctx.graph, ctx.depth = graph, depth
        return graph.spread(nodes, depth)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401 - torch's own context
        """Gradient of the nodes."""
        return ctx.graph.spread(gradient, ctx.depth), None, None


class LightGCN(CentralMethod):
    """Graph convolution without weights of its own."""

    paper = Citation(
        "He et al.",
        "LightGCN: simplifying and powering graph convolution network for recommendation",
        "SIGIR",
        2020,
    )
    cost = "O(T / B x L T d) for T training rows in mini-batches of B."

    whole_rows = True
    graph: Graph

    def meet(self, clients: Clients) -> None:
        """Build the graph."""
        self.graph = Graph.of(*self.edges(clients), self.users, self.items)

    def edges(self, clients: Clients) -> tuple[Tensor, Tensor]:
        """User and item of every edge."""
        return torch.repeat_interleave(clients.everyone, clients.sizes), clients.train_item

    def parameters(self) -> dict[str, Parameter]:
        """Layer 0: one vector per user, one per item."""
        d, spread = self.settings["d"], Initial("normal", self.settings["spread"])
        return {"P": matrix(self.users, d, "shared", spread), "Q": matrix(self.items, d, "shared", spread)}

    def forward(self, w: Values) -> Values:
        """Spread the vectors of users and items."""
        nodes = Spread.apply(torch.cat((w.P, w.Q)), self.graph, self.settings["depth"])
        user, item = nodes.split((self.users, self.items))
        return Values(w, user=user, item=item)

    def score(self, w: Values, users: Tensor, items: Tensor) -> Tensor:
        """Inner product of propagated user and item vectors."""
        return dot(functional.embedding(users, w.user), functional.embedding(items, w.item))

    def loss(self, w: Values, users: Tensor, items: Tensor, labels: Tensor) -> Tensor:
        """Ranking loss, and reg / 2 times the squared norms of the layer-0 vectors of a training row."""
        return self.loss_of(self.score(w, users.unsqueeze(1), items), w, users, items, labels)

    def loss_of(self, scores: Tensor, w: Values, users: Tensor, items: Tensor, labels: Tensor) -> Tensor:
        """The loss of training rows with these scores."""
        fit = self.ranking_loss(scores, labels)
        used = (
            functional.embedding(users, w.P).square().sum() + functional.embedding(items, w.Q).square().sum()
        )
        total: Tensor = fit + self.settings["reg"] / 2 * used / len(users)
        return total

    def ranking_loss(self, scores: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002 - see override
        """BPR: a positive, which comes first, above its negatives."""
        return functional.softplus(scores[:, 1:] - scores[:, :1]).mean()

    @override
    def steps(self, w: Values, optimiser: Adam, device: torch.device) -> Steps:
        if device.type != "cuda" or not self._matrix_fits(device):
            return super().steps(w, optimiser, device)
        by_rows = SpreadByRows(self, self.graph.matrix(self.settings["depth"]))
        return RecordedSteps(by_rows, w, optimiser, self.settings["batch_size"])

    def _matrix_fits(self, device: torch.device) -> bool:
        """Whether a GPU has room for the matrix of the graph."""
        nodes = self.users + self.items
        read = self.settings["batch_size"] * (2 + self.settings["negatives"])
        size = (nodes + min(read, nodes)) * nodes * self.graph.scale.element_size()
        return bool(_SHARE_OF_GPU * size <= torch.cuda.get_device_properties(device).total_memory)


@dataclass(frozen=True)
class SpreadByRows:
    """What steps need of `method`, where all layers are one product with `matrix`.

    It has `LightGCN`'s own `forward`, `score` and `loss`: a method that has others gives its own `steps`.

    A step reads the matrix's rows of its users and items alone, and nothing of the graph: on a GPU, which is
    quick at products, in a small part of the time. The numbers are the same but for rounding.
    """

    method: LightGCN
    matrix: Tensor

    def forward(self, w: Values) -> Values:
        """The layer-0 vectors: what follows from them depends on the mini-batch."""
        return w

    def loss(self, w: Values, users: Tensor, items: Tensor, labels: Tensor) -> Tensor:
        """As `LightGCN.loss`."""
        nodes, layer = torch.cat((users, self.method.users + items.flatten())), torch.cat((w.P, w.Q))
        if _ROWS_APART * len(nodes) < len(layer):
            spread = functional.embedding(nodes, self.matrix) @ layer
        else:
            spread = functional.embedding(nodes, self.matrix @ layer)
        user, item = spread.split((len(users), items.numel()))
        scores = dot(user.unsqueeze(1), item.view(*items.shape, -1))
        return self.method.loss_of(scores, w, users, items, labels)


class Entropy(LightGCN):
    """Mean binary cross-entropy, as all other methods."""

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
