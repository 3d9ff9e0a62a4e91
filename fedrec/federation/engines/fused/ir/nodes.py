"""The graph of a loss: nodes, each a tensor and how an element of it is computed.

Nodes never change. Each is equal to itself alone: two constants of the same number may differ in another
round.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedrec.errors import FedrecError
from fedrec.federation.engines.fused.ir.dims import SAMPLES, Shape, Symbol, static_count, symbols_of
from fedrec.federation.engines.fused.ir.index import Index, IndexMap, applied
from fedrec.federation.engines.fused.ir.ops import Op


class UnsupportedError(FedrecError):
    """A loss does something that is not compiled; the message names it."""


@dataclass(frozen=True)
class Leaf:
    """An input of a graph.

    `part` is `value` (of a parameter that is no table, or of a derived number), of a table `rows` (those of
    the mini-batch), `whole` or `training_sum`, or of the client `labels`, `size`, `occurrences`, `distinct`,
    `interactions` or `held`. A `number` is one that the loss closes over.
    """

    part: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name}.{self.part}" if self.name else self.part


@dataclass(frozen=True)
class Origin:
    """The operator of torch that a node comes from, and its line in the method's file."""

    operator: str
    line: str

    def __str__(self) -> str:
        return f"{self.operator} at {self.line}"


@dataclass(frozen=True, eq=False)
class Node:
    """A tensor."""

    shape: Shape
    inputs: tuple["Node", ...] = ()
    origin: Origin | None = field(default=None, kw_only=True)
    """Inputs of the graph have none."""

    @property
    def varying(self) -> tuple[int, ...]:
        """The axes whose size differs between clients."""
        return tuple(axis for axis, size in enumerate(self.shape) if isinstance(size, Symbol))

    @property
    def count(self) -> int:
        """The number of elements, of one sample or row where it has such an axis."""
        return static_count(self.shape)


@dataclass(frozen=True, eq=False)
class Input(Node):
    """A leaf: a parameter, or a number of the client."""

    leaf: Leaf = field(default_factory=lambda: Leaf("value"))


@dataclass(frozen=True, eq=False)
class Constant(Node):
    """One number for all elements: written into the code, or given with each call where it may change."""

    value: float = 0.0


@dataclass(frozen=True, eq=False)
class Count(Node):
    """The number of samples of a mini-batch, or of rows of a table."""

    of: Symbol = SAMPLES


@dataclass(frozen=True, eq=False)
class Pointwise(Node):
    """An operator on the same element of every input; inputs broadcast."""

    op: Op = Op.COPY


@dataclass(frozen=True, eq=False)
class View(Node):
    """The elements of its input at other places; `index_map` gives the input's index for one of its own."""

    index_map: IndexMap = ()
    transposed: bool = False
    """Whether axes have changed places."""

    def at(self, index: Index) -> Index:
        """The index of the input's element for an element of the view."""
        return applied(self.index_map, index)


@dataclass(frozen=True, eq=False)
class Reduction(Node):
    """The sum or maximum of a product of inputs over axes.

    Its own axes come first, then those that it covers, of sizes `over`. `places` has, for every axis of an
    input, which of all these axes indexes it.
    """

    over: Shape = ()
    places: tuple[tuple[int | None, ...], ...] = ()
    largest: bool = False

    @property
    def is_global(self) -> bool:
        """Whether it covers all samples or rows."""
        return bool(symbols_of(self.over))


@dataclass(frozen=True, eq=False)
class Concat(Node):
    """Its inputs, one behind the other along an axis."""

    axis: int = 0


@dataclass(frozen=True, eq=False)
class DiagonalSet(Node):
    """The first input, a matrix, with the second one on its diagonal."""


def behind_views(node: Node) -> Node:
    """The node whose elements a view reads; a node that is no view is its own."""
    while isinstance(node, View):
        (node,) = node.inputs
    return node


@dataclass(frozen=True)
class LossGraph:
    """The loss of a step, and its gradient by every leaf of a trained parameter that it depends on."""

    loss: Node
    gradients: Mapping[Leaf, Node]
    by_user: frozenset[str] = frozenset()
    """The tables that have a row for every user, and not for every item."""
