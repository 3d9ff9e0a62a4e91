"""Operators that add up or compare numbers along axes, and products of matrices."""

import math
from collections.abc import Callable, Sequence

from fedrec.federation.engines.fused.calls import Call, size_node
from fedrec.federation.engines.fused.nodes import Node, Pointwise, Reduction, UnsupportedError


def total(call: Call) -> Node:
    """The sum over axes."""
    return _reduced(call, call.node("self"))


def how_many(call: Call) -> Node:
    """The sum over axes: of real numbers, or of how often something is true."""
    if call.kind == "count" and call.kind_of("self") != "bool":
        raise UnsupportedError("its loss adds up whole numbers")
    return total(call)


def mean(call: Call) -> Node:
    """The mean over axes."""
    base = call.node("self")
    made: Node = _reduced(call, base)
    for axis in _axes(call, base.shape):
        made = Pointwise(call.shape, (made, size_node(base.shape[axis])), "({0} / {1})")
    return made


def largest(call: Call) -> Node:
    """The largest number along axes."""
    return _reduced(call, call.node("self"), largest=True)


def smallest(call: Call) -> Node:
    """The smallest number along axes."""
    base = call.node("self")
    turned = Pointwise(base.shape, (base,), "(-{0})")
    return Pointwise(call.shape, (_reduced(call, turned, largest=True),), "(-{0})")


def norm(call: Call) -> Node:
    """The length of vectors, of order 1, 2 or infinity."""
    base, order = call.node("self"), call.plain("ord")
    if order in (1, math.inf):
        sizes = Pointwise(base.shape, (base,), "ABS({0})")
        return _reduced(call, sizes, largest=order != 1)
    if order != 2:
        raise UnsupportedError(f"its loss uses a norm of order {order}")
    squares = Pointwise(base.shape, (base,), "square({0})")
    return Pointwise(call.shape, (_reduced(call, squares),), "SQRT({0})")


def _reduced(call: Call, base: Node, largest: bool = False) -> Node:
    gone, keep = _axes(call, base.shape), len(call.shape) == len(base.shape)
    own = iter(range(len(call.shape)))
    places: list[int | None] = []
    over: list[int] = []
    for axis, size in enumerate(base.shape):
        if axis in gone:
            places.append(len(call.shape) + len(over))
            over.append(size)
            if keep:
                next(own)
        else:
            places.append(next(own))
    return Reduction(call.shape, (base,), tuple(over), (tuple(places),), largest)


def _axes(call: Call, shape: tuple[int, ...]) -> list[int]:
    """The axes that are meant: none given are all."""
    given = call.plain("dim") if call.takes("dim") else None
    axes: Sequence[int] = [given] if isinstance(given, int) else given or ()
    return sorted({axis % len(shape) for axis in axes} or range(len(shape))) if shape else []


def matrix_product(left: str, right: str, *places: tuple[int | None, ...]) -> Callable[[Call], Node]:
    """A product of two tensors over the last axis of the first; `places` as in `Reduction`."""

    def made(call: Call) -> Node:
        a, b = call.node(left), call.node(right)
        return Reduction(call.shape, (a, b), (a.shape[-1],), places)

    return made
