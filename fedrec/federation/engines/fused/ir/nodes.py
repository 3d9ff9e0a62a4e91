"""The graph of a loss: nodes, each a tensor with the rule that computes its elements.

The trace builds it, the passes schedule it, and the backend writes its statements. Nodes never change. Each
node equals only itself: two constants with the same number may differ in another round.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedrec.errors import FedrecError
from fedrec.federation.engines.fused.ir.dims import SAMPLES, Shape, Symbol, static_count, symbols_of
from fedrec.federation.engines.fused.ir.index import Index, IndexMap, applied
from fedrec.federation.engines.fused.ir.ops import Op


class UnsupportedError(FedrecError):
    """An operation of a loss, or a setting of a fit, that fedrec does not compile; the message names it."""


@dataclass(frozen=True)
class Leaf:
    """The name of an input of a graph.

    Parts of a table: `rows` (`(samples, width)`, the row of each sample), `whole` (`(rows, width)`) and
    `training_sum` (`(1, width)`, the sum over the client's training items). A parameter that is no table has
    a `value`, a derived number is `derived`. Parts of a mini-batch: `labels`, `occurrences` and `distinct`
    (`(samples,)`), and `size` (`(1,)`). Parts of a client: `interactions` and `held` (`(1, 1)`). A `number`
    is a number that the loss closes over.
    """

    part: str
    """One of the parts above."""
    name: str = ""
    """The parameter, the derived number, or the place of the `number`; empty for other parts."""

    def __str__(self) -> str:
        return f"{self.name}.{self.part}" if self.name else self.part


@dataclass(frozen=True)
class Origin:
    """The operator of torch that a node comes from, and its line in the method's file."""

    operator: str
    """Its name without overload, such as `aten.mul`."""
    line: str
    """The line that called it, as `file:line`."""

    def __str__(self) -> str:
        return f"{self.operator} at {self.line}"


@dataclass(frozen=True, eq=False)
class Node:
    """A tensor of one client."""

    shape: Shape
    """The size of every axis."""
    inputs: tuple["Node", ...] = ()
    """The tensors that its elements are computed from."""
    origin: Origin | None = field(default=None, kw_only=True)
    """The source of the node; None for inputs of the graph."""

    @property
    def varying(self) -> tuple[int, ...]:
        """The numbers of the axes whose size differs between clients."""
        return tuple(axis for axis, size in enumerate(self.shape) if isinstance(size, Symbol))

    @property
    def count(self) -> int:
        """The number of elements; of one sample or row if the tensor has such an axis."""
        return static_count(self.shape)


@dataclass(frozen=True, eq=False)
class Input(Node):
    """An input of the graph: a parameter, or numbers of the client or mini-batch."""

    leaf: Leaf = field(default_factory=lambda: Leaf("value"))
    """Its name."""


@dataclass(frozen=True, eq=False)
class Constant(Node):
    """One number for all elements: a literal of the kernel, or an argument if rounds may change it."""

    value: float = 0.0
    """The number."""


@dataclass(frozen=True, eq=False)
class Count(Node):
    """The number of samples of a mini-batch, or of rows of a table."""

    of: Symbol = SAMPLES
    """`SAMPLES` or `ROWS`."""


@dataclass(frozen=True, eq=False)
class Pointwise(Node):
    """An operator on the same element of every input; inputs broadcast."""

    op: Op = Op.COPY
    """The operator."""


@dataclass(frozen=True, eq=False)
class View(Node):
    """The elements of its input at other places; nothing is computed."""

    index_map: IndexMap = ()
    """The index into the input for an index into the view."""
    transposed: bool = False
    """Whether the view is a transpose or another permutation of axes."""

    def at(self, index: Index) -> Index:
        """The index of the input's element for an element of the view."""
        return applied(self.index_map, index)


@dataclass(frozen=True, eq=False)
class Reduction(Node):
    """The sum or maximum, over some axes, of a product of its inputs.

    All axes have numbers: first those of the result, then those that the reduction covers. A matrix product
    `(a, s) x (s, b)` is a sum over `(s,)` with `places` `((0, 2), (2, 1))`.
    """

    over: Shape = ()
    """The sizes of the axes that it covers."""
    places: tuple[tuple[int | None, ...], ...] = ()
    """For every axis of every input, the number of the axis that indexes it; None is place 0."""
    largest: bool = False
    """Whether it is a maximum."""

    @property
    def is_global(self) -> bool:
        """Whether it covers all samples of a mini-batch, or all rows."""
        return bool(symbols_of(self.over))


@dataclass(frozen=True, eq=False)
class Concat(Node):
    """Its inputs, one after the other along an axis."""

    axis: int = 0
    """The number of the axis."""


@dataclass(frozen=True, eq=False)
class DiagonalSet(Node):
    """The first input, `(n, n)`, with the second input, `(n,)`, on its diagonal."""


def behind_views(node: Node) -> Node:
    """The node whose elements a view reads, through views of views; any other node itself."""
    while isinstance(node, View):
        (node,) = node.inputs
    return node


@dataclass(frozen=True)
class LossGraph:
    """The loss of a step and its gradients: what the trace gives to the passes."""

    loss: Node
    """The loss of a mini-batch, one number."""
    gradients: Mapping[Leaf, Node]
    """The gradient by every leaf of a trained parameter that the loss reads, in the shape of the leaf."""
    by_user: frozenset[str] = frozenset()
    """The tables that have a row for every user; other tables have one for every item."""
