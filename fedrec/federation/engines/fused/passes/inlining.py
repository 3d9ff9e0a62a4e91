"""The choice of formulas that are written where they are read, instead of being stored.

The module reads a graph and the uses of its nodes. It gives the set of inlined nodes to the schedule.
"""

from collections.abc import Collection, Sequence

from fedrec.federation.engines.fused.ir.dims import ROWS, Dim, static_count, symbols_of
from fedrec.federation.engines.fused.ir.nodes import (
    Input,
    LossGraph,
    Node,
    Pointwise,
    Reduction,
    behind_views,
)
from fedrec.federation.engines.fused.ir.ops import Op
from fedrec.federation.engines.fused.passes.uses import Uses


def with_own_gradients(graph: LossGraph) -> LossGraph:
    """The graph with a copy of every gradient that is the plain value of a parameter.

    Optimiser steps change parameters one by one, and gradients must be those of the values before.
    """
    gradients = {leaf: _with_own_array(node) for leaf, node in graph.gradients.items()}
    return LossGraph(graph.loss, gradients, graph.by_user)


def _with_own_array(gradient: Node) -> Node:
    if isinstance(behind_views(gradient), Input) and not gradient.varying:
        return Pointwise(gradient.shape, (gradient,), Op.COPY, origin=gradient.origin)
    return gradient


def inlined_nodes(uses: Uses, by_samples: Collection[Node]) -> set[Node]:
    """The formulas that have one reader, which reads each element once.

    A gradient of `by_samples` is inlined if nothing else reads it. A formula of rows is always inlined.
    """
    inlined: set[Node] = set()
    for node, users in uses.items():
        if not isinstance(node, Pointwise):
            continue
        once = len(users) == 1 and users[0] is not None and _reads_each_once(users[0], node)
        stored = users == [None] and node in by_samples
        # Tables have many rows and short formulas of them, so no formula of rows is stored.
        if once or stored or ROWS in node.shape:
            inlined.add(node)
    return inlined


def _reads_each_once(user: Node, node: Node) -> bool:
    sizes: Sequence[Dim]
    if isinstance(user, Reduction):
        sizes = (*user.shape, *user.over)
        if len(user.inputs) > 1:
            return False
    elif isinstance(user, Pointwise):
        sizes = user.shape
    else:
        return False
    return set(symbols_of(sizes)) == set(symbols_of(node.shape)) and node.count == static_count(sizes)
