"""The nodes of operators that reduce axes, and of products of matrices.

Each function reads a `Call` and gives its node.
"""

import math
from collections.abc import Callable, Sequence

from fedrec.federation.engines.fused.ir.dims import Dim, Shape
from fedrec.federation.engines.fused.ir.nodes import Node, Pointwise, Reduction, UnsupportedError
from fedrec.federation.engines.fused.ir.ops import Op
from fedrec.federation.engines.fused.trace.calls import Call
from fedrec.federation.engines.fused.trace.sizes import size_node


def total(call: Call) -> Node:
    """The sum over axes."""
    return _reduced(call, call.node("self"))


def how_many(call: Call) -> Node:
    """The sum over axes, of real numbers or of booleans."""
    if call.kind == "count" and call.kind_of("self") != "bool":
        raise UnsupportedError("its loss sums integers")
    return total(call)


def mean(call: Call) -> Node:
    """The mean over axes."""
    base = call.node("self")
    made: Node = _reduced(call, base)
    for axis in _axes(call, base.shape):
        made = call.pointwise(Op.DIV, made, size_node(base.shape[axis], call.origin))
    return made


def largest(call: Call) -> Node:
    """The largest number along axes."""
    return _reduced(call, call.node("self"), largest=True)


def smallest(call: Call) -> Node:
    """The smallest number along axes."""
    base = call.node("self")
    negative = Pointwise(base.shape, (base,), Op.NEG, origin=call.origin)
    return call.pointwise(Op.NEG, _reduced(call, negative, largest=True))


def norm(call: Call) -> Node:
    """The length of vectors, of order 1, 2 or infinity."""
    base, order = call.node("self"), call.plain("ord")
    if order in (1, math.inf):
        sizes = Pointwise(base.shape, (base,), Op.ABS, origin=call.origin)
        return _reduced(call, sizes, largest=order != 1)
    if order != 2:
        raise UnsupportedError(f"its loss uses a norm of order {order}")
    squares = Pointwise(base.shape, (base,), Op.SQUARE, origin=call.origin)
    return call.pointwise(Op.SQRT, _reduced(call, squares))


def _reduced(call: Call, base: Node, largest: bool = False) -> Node:
    gone, keep = _axes(call, base.shape), len(call.shape) == len(base.shape)
    own = iter(range(len(call.shape)))
    places: list[int | None] = []
    over: list[Dim] = []
    for axis, size in enumerate(base.shape):
        if axis in gone:
            places.append(len(call.shape) + len(over))
            over.append(size)
            if keep:
                next(own)
        else:
            places.append(next(own))
    return Reduction(call.shape, (base,), tuple(over), (tuple(places),), largest, origin=call.origin)


def _axes(call: Call, shape: Shape) -> list[int]:
    """The axes that a call reduces; all axes if it names none."""
    given = call.plain("dim") if call.takes("dim") else None
    axes: Sequence[int] = [given] if isinstance(given, int) else given or ()
    return sorted({axis % len(shape) for axis in axes} or range(len(shape))) if shape else []


def matrix_product(left: str, right: str, *places: tuple[int | None, ...]) -> Callable[[Call], Node]:
    """A product of two tensors over the last axis of the first; `places` as in `Reduction`."""

    def made(call: Call) -> Node:
        a, b = call.node(left), call.node(right)
        return Reduction(call.shape, (a, b), (a.shape[-1],), places, origin=call.origin)

    return made
