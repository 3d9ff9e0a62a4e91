"""What the compiler refuses of a graph, with the words that users read."""

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
    """The error that a loss does something with a tensor that is not compiled."""
    return UnsupportedError(f"its loss {reason} ({node.origin})" if node.origin else f"its loss {reason}")


def verify_nodes(order: Iterable[Node]) -> None:
    """Raise `UnsupportedError` for a tensor of more than one sample or row at a time."""
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
            raise refused("computes something of every row of a table, and needs it twice", source)


def verify_moves(graph: LossGraph, inlined: AbstractSet[Node]) -> None:
    """Raise `UnsupportedError` where the gradient of a number reads others that may have moved before.

    The rows of whole tables move one after the other, each by a gradient that is computed then.
    """
    whole = {leaf.name for leaf in graph.gradients if leaf.part == "whole"}
    for leaf, node in graph.gradients.items():
        for read, index in _reads(node, loop_index(node.shape), inlined) if leaf.part == "whole" else ():
            moves = isinstance(read, Input) and read.leaf.part == "whole" and read.leaf.name in whole
            own = isinstance(read, Input) and read.leaf == leaf and index == loop_index(read.shape)
            if moves and not own:
                raise refused("moves a row by what other numbers of whole tables were", node)


def _reads(node: Node, index: Index, inlined: AbstractSet[Node]) -> Iterator[tuple[Node, Index]]:
    """The tensors that an expression of an element of `node` reads, and the elements."""
    if isinstance(node, View):
        yield from _reads(node.inputs[0], node.at(index), inlined)
    elif node in inlined:
        for each in node.inputs:
            yield from _reads(each, broadcast(index, each.shape), inlined)
    else:
        yield node, index
