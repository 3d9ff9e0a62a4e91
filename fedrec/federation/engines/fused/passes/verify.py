"""The checks of a graph before code is written, with the messages that users read.

The module reads a graph and its stages. It raises `UnsupportedError` for a loss that no kernel can compute.
"""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from fedrec.federation.engines.fused.ir.dims import ROWS, symbols_of
from fedrec.federation.engines.fused.ir.index import Index, broadcast, loop_index
from fedrec.federation.engines.fused.ir.nodes import (
    Input,
    LossGraph,
    Node,
    Reduction,
    UnsupportedError,
    View,
)


def refused(reason: str, node: Node) -> UnsupportedError:
    """The error for an operation of a loss on `node` that is not compiled; `reason` begins with a verb."""
    return UnsupportedError(f"its loss {reason} ({node.origin})" if node.origin else f"its loss {reason}")


def verify_nodes(order: Iterable[Node]) -> None:
    """Raise `UnsupportedError` for a tensor or reduction with more than one axis of samples or rows."""
    for node in order:
        covered = symbols_of(node.over) if isinstance(node, Reduction) else []
        if len(node.varying) > 1 or len(covered) > 1 or (covered and node.varying):
            raise refused("compares all samples of a mini-batch with each other", node)


def verify_rows(reads: Iterable[tuple[int, Node]], stages: Mapping[Node, int]) -> None:
    """Raise `UnsupportedError` where a stage reads a tensor of all rows that an earlier stage computes.

    `reads` are pairs of a stage and a tensor that it reads.
    """
    for stage, source in reads:
        if ROWS in source.shape and stages[source] < stage:
            raise refused("computes a number for every row of a table, and needs it in a second loop", source)


def verify_moves(graph: LossGraph, inlined: AbstractSet[Node]) -> None:
    """Raise `UnsupportedError` if the gradient of a whole table reads numbers that a step may have changed.

    The optimiser changes one row after the other, and computes the gradient of each row at that moment.
    """
    whole = {leaf.name for leaf in graph.gradients if leaf.part == "whole"}
    for leaf, node in graph.gradients.items():
        for read, index in _reads(node, loop_index(node.shape), inlined) if leaf.part == "whole" else ():
            moves = isinstance(read, Input) and read.leaf.part == "whole" and read.leaf.name in whole
            own = isinstance(read, Input) and read.leaf == leaf and index == loop_index(read.shape)
            if moves and not own:
                raise refused("computes the gradient of a row from other numbers of whole tables", node)


def _reads(node: Node, index: Index, inlined: AbstractSet[Node]) -> Iterator[tuple[Node, Index]]:
    """The tensors that the expression of an element of `node` reads, with the index of each element read."""
    if isinstance(node, View):
        yield from _reads(node.inputs[0], node.at(index), inlined)
    elif node in inlined:
        for each in node.inputs:
            yield from _reads(each, broadcast(index, each.shape), inlined)
    else:
        yield node, index
