"""Whether the rows of whole tables can move one after the other, each by a gradient that is computed then."""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from fedrec.federation.engines.fused.loops import broadcast, loop_index
from fedrec.federation.engines.fused.nodes import Index, Input, LossGraph, Node, Reindexed, refused


def check_moves(graph: LossGraph, inlined: AbstractSet[Node]) -> None:
    """Raise `UnsupportedError` where the gradient of a number reads others that may have moved before.

    `inlined` are the formulas that are written where they are read.
    """
    whole = {leaf.name for leaf in graph.gradients if leaf.part == "whole"}
    for leaf, node in graph.gradients.items():
        for read, index in _places(node, loop_index(node.shape), inlined) if leaf.part == "whole" else ():
            moves = isinstance(read, Input) and read.leaf.part == "whole" and read.leaf.name in whole
            own = isinstance(read, Input) and read.leaf == leaf and index == loop_index(read.shape)
            if moves and not own:
                raise refused("moves a row by what other numbers of whole tables were", node)


def _places(node: Node, index: Index, inlined: AbstractSet[Node]) -> Iterator[tuple[Node, Index]]:
    """What an expression of an element of `node` reads, and which elements."""
    if isinstance(node, Reindexed):
        yield from _places(node.inputs[0], node.at(index), inlined)
    elif node in inlined:
        for each in node.inputs:
            yield from _places(each, broadcast(index, each.shape), inlined)
    else:
        yield node, index
