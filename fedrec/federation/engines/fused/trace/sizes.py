"""The sizes of the two made-up clients of a trace, and the nodes of numbers that follow from sizes.

The module reads a size or number of both clients. Equal ones are the same for all clients and become
constants. Different ones follow from the numbers of samples or rows and become nodes of these.
"""

import math
from collections.abc import Mapping

from fedrec.federation.engines.fused.ir.dims import ROWS, SAMPLES, Dim, Shape, Symbol, symbols_of
from fedrec.federation.engines.fused.ir.nodes import (
    Constant,
    Count,
    Node,
    Origin,
    Pointwise,
    UnsupportedError,
)
from fedrec.federation.engines.fused.ir.ops import Op

Sizes = Mapping[Symbol, int]
"""The number of samples and rows of a made-up client."""
FIRST: Sizes = {SAMPLES: 4099, ROWS: 4111}
"""The first client. The sizes are primes, so no product of widths equals one of them."""
SECOND: Sizes = {SAMPLES: 2, ROWS: 3}
"""The second client."""
_SYMBOLS = {(FIRST[symbol], SECOND[symbol]): symbol for symbol in (SAMPLES, ROWS)}
"""The symbol of a size, by its value for both clients."""


def unusual() -> UnsupportedError:
    """The error for a loss that depends on the number of samples in a way that no kernel can compute."""
    return UnsupportedError("its loss goes by the number of samples in an unusual way")


def dims_of(shape: tuple[int, ...], other: tuple[int, ...]) -> Shape:
    """The shape of a tensor with the shapes `shape` and `other` for both clients.

    A size that differs otherwise than samples or rows becomes an unknown symbol.
    """
    if len(shape) != len(other):
        raise unusual()
    return tuple(_dim(size, second) for size, second in zip(shape, other, strict=True))


def _dim(size: int, other: int) -> Dim:
    return size if size == other else _SYMBOLS.get((size, other), Symbol(f"{size} or {other}"))


def check_known(shape: Shape) -> None:
    """Raise `UnsupportedError` for an unknown symbol, such as the number of samples minus 1."""
    if not set(symbols_of(shape)) <= {SAMPLES, ROWS}:
        raise unusual()


def size_node(size: Dim, origin: Origin) -> Node:
    """The size of an axis, as a node of one number."""
    if isinstance(size, int):
        return Constant((), value=float(size), origin=origin)
    return number_node((), float(FIRST[size]), float(SECOND[size]), origin)


def number_node(shape: Shape, value: float, other: float, origin: Origin) -> Node:
    """The node of a number that is `value` for the first client and `other` for the second.

    It is a constant, or a multiple of the samples or rows, or a constant divided by these.
    """
    if same_value(value, other):
        return Constant(shape, value=value, origin=origin)
    for symbol in (SAMPLES, ROWS):
        size, other_size = FIRST[symbol], SECOND[symbol]
        count = Count((), of=symbol, origin=origin)
        if math.isclose(value / size, other / other_size, rel_tol=1e-12):
            factor = Constant((), value=value / size, origin=origin)
            return Pointwise(shape, (count, factor), Op.MUL, origin=origin)
        if math.isclose(value * size, other * other_size, rel_tol=1e-12):
            factor = Constant((), value=float(f"{value * size:.15g}"), origin=origin)
            return Pointwise(shape, (factor, count), Op.DIV, origin=origin)
    raise unusual()


def same_value(value: object, other: object) -> bool:
    """Whether two arguments are equal and of one type; NaN equals itself."""
    if isinstance(value, float) and isinstance(other, float) and math.isnan(value):
        return math.isnan(other)
    return bool(value == other) and type(value) is type(other)
