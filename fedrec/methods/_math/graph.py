"""Vectors spread over a graph of users and items: layer by layer, or by one matrix for all layers."""

from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from torch import Tensor
from torch.nn import functional

from fedrec.federation.model import Values, dot
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


class LossOfPairs(Protocol):
    """What is needed of a method whose scores are products of propagated vectors, `P` and `Q` before it."""

    users: int

    def loss_of(self, scores: Tensor, squares: Tensor, labels: Tensor) -> Tensor:
        """The loss of training rows with these scores; `squares`: the sum of their layer-0 vectors'."""


@dataclass(frozen=True)
class SpreadByRows:
    """What steps need of `method`, where all layers are one product with `matrix`.

    A step reads the matrix's rows of its users and items alone, and nothing of the graph: on a GPU, which is
    quick at products, in a small part of the time. The numbers are the same but for rounding.
    """

    method: LossOfPairs
    matrix: Tensor

    def forward(self, w: Values) -> Values:
        """The layer-0 vectors: what follows from them depends on the mini-batch."""
        return w

    def loss(self, w: Values, users: Tensor, items: Tensor, labels: Tensor) -> Tensor:
        """The method's own, of the mini-batch's nodes alone."""
        nodes, layer = torch.cat((users, self.method.users + items.flatten())), torch.cat((w.P, w.Q))
        if _ROWS_APART * len(nodes) < len(layer):
            spread = functional.embedding(nodes, self.matrix) @ layer
        else:
            spread = functional.embedding(nodes, self.matrix @ layer)
        user, item = spread.split((len(users), items.numel()))
        scores = dot(user.unsqueeze(1), item.view(*items.shape, -1))
        return self.method.loss_of(scores, functional.embedding(nodes, layer).square().sum(), labels)


def matrix_fits(graph: Graph, rows: int, device: torch.device) -> bool:
    """Whether a GPU has room for the matrix of the graph, and for `rows` of it that a step copies."""
    if device.type != "cuda":
        return False
    nodes = len(graph.scale)
    size = (nodes + min(rows, nodes)) * nodes * graph.scale.element_size()
    return bool(_SHARE_OF_GPU * size <= torch.cuda.get_device_properties(device).total_memory)
