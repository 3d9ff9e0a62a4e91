"""Propagation over a graph of users and items, layer by layer or by one matrix for all layers."""

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from fedrec.methods._math.row_sums import RowSums

_COLUMNS = 512
"""Number of columns of a matrix that are computed together."""
_SHARE_OF_GPU = 8
"""Divisor of a GPU's memory that gives the largest size of a matrix."""


@dataclass(frozen=True)
class Graph:
    """A graph whose nodes are users, then items."""

    neighbours: RowSums
    """Sums over the nodes that share an edge with a node."""
    scale: Tensor
    """1 / sqrt(degree) of each node: (nodes, 1)."""

    @classmethod
    def of(cls, user: Tensor, item: Tensor, users: int, items: int) -> Self:
        """Make the graph of these interactions; a pair that occurs twice has two edges."""
        start, end = torch.cat((user, users + item)), torch.cat((users + item, user))
        degree = torch.bincount(start, minlength=users + items)
        return cls(
            neighbours=RowSums.of(end[torch.argsort(start, stable=True)], degree),
            # A node without an edge has no neighbours to be scaled.
            scale=degree.clamp(min=1).to(torch.get_default_dtype()).rsqrt().unsqueeze(1),
        )

    def propagate(self, layer: Tensor, depth: int) -> Tensor:
        """The mean of `layer` (nodes, d) and the next `depth` layers: (nodes, d)."""
        total = layer
        for _ in range(depth):
            layer = self.scale * self.neighbours.sums(self.scale * layer)
            total = total + layer
        return total / (depth + 1)

    def matrix(self, depth: int) -> Tensor:
        """The matrix (nodes, nodes) of `propagate`, symmetric up to rounding."""
        nodes = len(self.scale)
        width = min(nodes, _COLUMNS)
        whole = self.scale.new_empty(nodes, nodes)
        for start in range(0, nodes, width):
            # The last block of columns overlaps the one before it, since kernels are compiled for one width.
            first = min(start, nodes - width)
            units = self.scale.new_zeros(nodes, width)
            units[first : first + width].fill_diagonal_(1)
            whole[:, first : first + width] = self.propagate(units, depth)
        return whole


class Propagation(torch.autograd.Function):
    """`Graph.propagate` with its gradient, which is the same since the matrix is symmetric."""

    @staticmethod
    def forward(ctx: Any, nodes: Tensor, graph: Graph, depth: int) -> Tensor:  # noqa: ANN401 - torch's own context
        """Compute the propagated vectors of the nodes."""
        ctx.graph, ctx.depth = graph, depth
        return graph.propagate(nodes, depth)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401 - torch's own context
        """Compute the gradient of the nodes."""
        return ctx.graph.propagate(gradient, ctx.depth), None, None


def matrix_fits(graph: Graph, device: torch.device) -> bool:
    """Whether the matrix of the graph fits into the memory of a GPU; False on a CPU."""
    if device.type != "cuda":
        return False
    size = len(graph.scale) ** 2 * graph.scale.element_size()
    return bool(_SHARE_OF_GPU * size <= torch.cuda.get_device_properties(device).total_memory)
