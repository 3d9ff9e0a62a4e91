"""The text of a graph after every pass, for `fedrec kernel --passes`.

The module reads a `Schedule` between its passes. It gives one line per tensor: its name in the kernel, its
shape, its formula, the facts that passes have added, and its origin.
"""

from collections.abc import Iterator

from fedrec.federation.engines.fused.ir.nodes import (
    Concat,
    Constant,
    Count,
    DiagonalSet,
    Input,
    Node,
    Pointwise,
    Reduction,
    View,
)
from fedrec.federation.engines.fused.passes.schedule import Schedule


class PassListing:
    """Collects all lines of the traced graph, and then the lines that each pass changes."""

    def __init__(self, prefix: str) -> None:
        """Names of tensors begin with `prefix`."""
        self.text = ""
        """The listing so far."""
        self._prefix = prefix
        """The beginning of all names."""
        self._before: list[str] = []
        """All lines before the current pass."""

    def look(self, name: str, schedule: Schedule) -> None:
        """Add the lines that the pass `name` has changed."""
        lines = list(self._lines(schedule))
        changed = [line for line in lines if line not in self._before] or ["(nothing changes)"]
        self.text += "\n".join([f"{name.replace('_', ' ')}:", *(f"  {line}" for line in changed), ""])
        self._before = lines

    def _lines(self, schedule: Schedule) -> Iterator[str]:
        names = {node: f"{self._prefix}{number}" for number, node in enumerate(schedule.order)}
        outputs = {schedule.graph.loss: ["loss"]}
        for leaf, node in schedule.graph.gradients.items():
            outputs.setdefault(node, []).append(f"gradient of {leaf}")
        for node in schedule.order:
            shape = ", ".join(map(str, node.shape))
            facts = [*outputs.get(node, ()), *_facts(schedule, node)]
            origin = f"  # {node.origin}" if node.origin else ""
            about = f"  [{', '.join(facts)}]" if facts else ""
            inputs = [names[each] for each in node.inputs]
            yield f"{names[node]} ({shape}) = {_formula(node, inputs)}{about}{origin}"


def _formula(node: Node, inputs: list[str]) -> str:
    if isinstance(node, Input):
        return str(node.leaf)
    if isinstance(node, Constant):
        return f"{node.value:g}"
    if isinstance(node, Count):
        return f"count of {node.of}"
    if isinstance(node, View):
        return f"{inputs[0]}[{', '.join(map(str, node.index_map))}]"
    if isinstance(node, Reduction):
        kind, over = "max" if node.largest else "sum", ", ".join(map(str, node.over))
        return f"{kind} over ({over}) of {' * '.join(inputs)}"
    if isinstance(node, Concat):
        return f"concat({', '.join(inputs)}, axis {node.axis})"
    if isinstance(node, DiagonalSet):
        return f"diagonal_set({', '.join(inputs)})"
    assert isinstance(node, Pointwise)
    return f"{node.op}({', '.join(inputs)})"


def _facts(schedule: Schedule, node: Node) -> Iterator[str]:
    """The facts that passes have added to a node so far."""
    if node in schedule.inlined:
        yield "inlined"
    if not schedule.is_computed(node):
        return
    if node in schedule.stage:
        yield f"stage {schedule.stage[node]}"
    if node in schedule.phase:
        yield f"phase {schedule.phase[node]}"
    if node in schedule.strategy:
        yield schedule.strategy[node].value
    if node in schedule.storage:
        yield f"stored by {schedule.storage[node].value}"
    if node in schedule.direct:
        yield "direct gradient"
