"""The order of a graph's nodes, and the readers of each.

The module reads the nodes of the outputs of a graph; the schedule uses both results.
"""

from collections.abc import Iterator, Mapping, Sequence

from fedrec.federation.engines.fused.ir.nodes import LossGraph, Node, View

Uses = Mapping[Node, list[Node | None]]
"""The nodes that read a node, directly or through views; None if the node is an output of the graph."""


def outputs_of(graph: LossGraph) -> list[Node]:
    """The loss and all gradients."""
    return [graph.loss, *graph.gradients.values()]


def topological_order(outputs: Sequence[Node]) -> Iterator[Node]:
    """Every node that `outputs` depend on, each after its inputs."""
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


def uses_of(order: Sequence[Node], outputs: Sequence[Node]) -> Uses:
    """The readers of every node, in the order of the nodes."""
    direct: dict[Node, list[Node | None]] = {node: [] for node in order}
    for node in order:
        for each in node.inputs:
            direct[each].append(node)
    for output in outputs:
        direct[output].append(None)

    def final(node: Node) -> list[Node | None]:
        found: list[Node | None] = []
        for user in direct[node]:
            found += final(user) if isinstance(user, View) else [user]
        return found

    return {node: final(node) for node in order}
