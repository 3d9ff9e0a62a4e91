"""The nodes of a graph in order, who reads each, and which are written where they are read."""

import math
from collections.abc import Iterator, Mapping, Sequence

from fedrec.federation.engines.fused.nodes import (
    ROWS,
    SAMPLES,
    Input,
    Node,
    Pointwise,
    Reduction,
    Reindexed,
    refused,
)


def own_array(gradient: Node) -> Node:
    """A gradient that is nobody else's value: parameters move one by one, by gradients from before."""
    source = gradient
    while isinstance(source, Reindexed):
        (source,) = source.inputs
    if isinstance(source, Input) and not _varying(gradient.shape):
        return Pointwise(gradient.shape, (gradient,), "{0}")
    return gradient


def in_order(outputs: Sequence[Node]) -> Iterator[Node]:
    """Every node that outputs depend on, each behind its inputs."""
    seen: set[Node] = set()
    for output in outputs:
        waiting = [(output, False)]
        while waiting:
            node, visited = waiting.pop()
            if visited:
                yield node
            elif node not in seen:
                seen.add(node)
                waiting.append((node, True))
                waiting += [(each, False) for each in node.inputs]


def check_node(node: Node) -> None:
    """Raise `UnsupportedError` for a tensor of more than one sample or row at a time."""
    if len(node.varying) > 1:
        raise refused("compares all samples of a mini-batch with each other", node)
    inner = [size for size in node.over if size in (SAMPLES, ROWS)] if isinstance(node, Reduction) else []
    if inner and (len(inner) > 1 or node.varying):
        raise refused("compares all samples of a mini-batch with each other", node)


def goes_over_varying(node: Reduction) -> bool:
    """Whether a sum goes over samples or rows."""
    return any(size in (SAMPLES, ROWS) for size in node.over)


Readers = Mapping[Node, list[Node | None]]
"""Who reads a node, through other names for it; None is what is asked for in the end."""


def readers_of(order: Sequence[Node], outputs: Sequence[Node]) -> Readers:
    """The readers of every node, in order; `outputs` are asked for in the end."""
    direct: dict[Node, list[Node | None]] = {node: [] for node in order}
    for node in order:
        for each in node.inputs:
            direct[each].append(node)
    for output in outputs:
        direct[output].append(None)

    def final(node: Node) -> list[Node | None]:
        found: list[Node | None] = []
        for reader in direct[node]:
            found += final(reader) if isinstance(reader, Reindexed) else [reader]
        return found

    return {node: final(node) for node in order}


def written_where_read(readers: Readers, by_samples: Sequence[Node]) -> set[Node]:
    """Formulas that are written where they are used: by one reader, as often as they would be computed.

    Of what is asked for these are those `by_samples` that nothing else reads.
    """
    inlined: set[Node] = set()
    for node, reading in readers.items():
        if not isinstance(node, Pointwise):
            continue
        once = len(reading) == 1 and reading[0] is not None and _as_often(node, reading[0])
        stored = reading == [None] and node in by_samples
        # Rows are many and their formulas short: nothing is kept of them.
        if once or stored or ROWS in node.shape:
            inlined.add(node)
    return inlined


def _as_often(node: Node, reader: Node) -> bool:
    """Whether a reader asks for every element of a formula once."""
    if isinstance(reader, Reduction):
        sizes = (*reader.shape, *reader.over)
        if len(reader.inputs) > 1:
            return False
    elif isinstance(reader, Pointwise):
        sizes = reader.shape
    else:
        return False
    return _varying(sizes) == _varying(node.shape) and node.count == static_count(sizes)


def _varying(sizes: Sequence[int]) -> set[int]:
    return {size for size in sizes if size in (SAMPLES, ROWS)}


def static_count(sizes: Sequence[int]) -> int:
    """How many elements there are of one sample or row."""
    return math.prod(size for size in sizes if size not in (SAMPLES, ROWS))
