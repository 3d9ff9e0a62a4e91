"""What the graph of a loss is made of: few kinds of nodes, and their sizes.

Sizes are numbers, but for the two that differ from client to client: `SAMPLES`, those of a mini-batch, and
`ROWS`, those of a table.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fedrec.errors import FedrecError

SAMPLES, ROWS = 4099, 4111
"""Stand for the sizes that differ from client to client: no other axis may be as long."""
Index = tuple[str, ...]
"""Where in a tensor: an expression of C for every axis."""


class UnsupportedError(FedrecError):
    """A loss does something that is not compiled; says what."""


@dataclass(frozen=True)
class Leaf:
    """An input of a graph.

    `part` is `value` (of a parameter that is no table, or of a derived number), of a table `rows` (those of
    the mini-batch), `whole` or `training_sum`, or of the client `labels`, `size`, `occurrences`, `distinct`,
    `interactions` or `held`. A `number` is one that the loss closes over.
    """

    part: str
    name: str = ""


@dataclass(eq=False)
class Node:
    """A tensor: what it is computed from, element by element."""

    shape: tuple[int, ...]
    inputs: tuple["Node", ...] = ()
    source: str = field(default="", kw_only=True)
    """The operator that it comes from, and its line in the method's file."""

    @property
    def varying(self) -> tuple[int, ...]:
        """Its axes whose size differs from client to client."""
        return tuple(axis for axis, size in enumerate(self.shape) if size in (SAMPLES, ROWS))

    @property
    def count(self) -> int:
        """Its elements, of one sample or row where it has such an axis."""
        return math.prod(size for size in self.shape if size not in (SAMPLES, ROWS))


@dataclass(eq=False)
class Input(Node):
    """What the graph is given."""

    leaf: Leaf = field(default_factory=lambda: Leaf("value"))


@dataclass(eq=False)
class Constant(Node):
    """One number everywhere: written into the code, or given with each call where it may change."""

    value: float = 0.0


@dataclass(eq=False)
class Count(Node):
    """How many samples a mini-batch has, or rows a table."""

    of: int = SAMPLES


@dataclass(eq=False)
class Pointwise(Node):
    """A formula of the same element of every input; inputs broadcast."""

    formula: str = "{0}"


@dataclass(eq=False)
class Reindexed(Node):
    """Other names for the elements of its input: `at` gives the input's index for one of its own."""

    at: Callable[[Index], Index] = lambda index: index
    turned: bool = False
    """Whether axes have changed places."""


@dataclass(eq=False)
class Reduction(Node):
    """A sum or maximum over axes of a product of inputs.

    Its own axes come first, then those it goes over, of sizes `over`; `places` tells for each input
    which of all these axes index it.
    """

    over: tuple[int, ...] = ()
    places: tuple[tuple[int | None, ...], ...] = ()
    largest: bool = False


@dataclass(eq=False)
class Joined(Node):
    """Its inputs, one behind the other along an axis."""

    axis: int = 0


@dataclass(eq=False)
class OnDiagonal(Node):
    """The first input, with the second one on its diagonal."""


def refused(reason: str, node: Node) -> UnsupportedError:
    """The error that a loss does something with a tensor that is not compiled."""
    return UnsupportedError(f"its loss {reason} ({node.source})" if node.source else f"its loss {reason}")


@dataclass(frozen=True)
class LossGraph:
    """The loss of a step, and its gradient by every leaf of a trained parameter that it depends on."""

    loss: Node
    gradients: Mapping[Leaf, Node]
    by_user: frozenset[str] = frozenset()
    """The tables that have a row for every user, and not for every item."""
