"""Affine index expressions: which element of a tensor is read or written.

An index has an expression for every axis. Expressions are values: equal ones compare equal. Their text is C.
"""

from dataclasses import dataclass
from enum import Enum

from fedrec.federation.engines.fused.ir.dims import Shape, Symbol


@dataclass(frozen=True)
class Number:
    """A known place on an axis."""

    value: int

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True)
class Variable:
    """A variable of a kernel."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Axis:
    """In a map of indices: the place on this axis of the index that the map is given."""

    number: int

    def __str__(self) -> str:
        return f"axis{self.number}"


class Arithmetic(Enum):
    """How the parts of an expression are combined."""

    ADD = "({} + {})"
    MULTIPLY = "({} * {})"
    MULTIPLY_ADD = "({} * {} + {})"
    DIVIDE = "({} / {})"
    REMAINDER = "({} % {})"


@dataclass(frozen=True)
class Compound:
    """An expression of other expressions, all of whole numbers."""

    operator: Arithmetic
    parts: tuple["IndexExpr", ...]

    def __str__(self) -> str:
        return self.operator.value.format(*self.parts)


IndexExpr = Number | Variable | Axis | Compound
Index = tuple[IndexExpr, ...]
IndexMap = tuple[IndexExpr, ...]
"""Expressions of `Axis`: one for every axis of the tensor that is read."""

ZERO = Number(0)
CURRENT = Variable("i")
"""The current sample or row of a loop."""
ANY_SAMPLE = Variable("j")
"""A sample, where lanes do not have one each."""


def plus(left: IndexExpr, right: IndexExpr) -> IndexExpr:
    """The sum of two places."""
    return Compound(Arithmetic.ADD, (left, right))


def times(place: IndexExpr, factor: int) -> IndexExpr:
    """A multiple of a place."""
    return Compound(Arithmetic.MULTIPLY, (place, Number(factor)))


def ravel(outer: IndexExpr, size: int, inner: IndexExpr) -> IndexExpr:
    """The place on two axes as one, the inner of which has `size` places."""
    return Compound(Arithmetic.MULTIPLY_ADD, (outer, Number(size), inner))


def divided(place: IndexExpr, divisor: int) -> IndexExpr:
    """A place, divided and rounded down."""
    return Compound(Arithmetic.DIVIDE, (place, Number(divisor)))


def remainder(place: IndexExpr, divisor: int) -> IndexExpr:
    """The remainder of a place."""
    return Compound(Arithmetic.REMAINDER, (place, Number(divisor)))


def applied(index_map: IndexMap, index: Index) -> Index:
    """The index of the element that a map reads for an element of its own."""
    return tuple(_substituted(each, index) for each in index_map)


def _substituted(expression: IndexExpr, index: Index) -> IndexExpr:
    if isinstance(expression, Axis):
        return index[expression.number]
    if isinstance(expression, Compound):
        return Compound(expression.operator, tuple(_substituted(part, index) for part in expression.parts))
    return expression


def same_axes(count: int) -> IndexMap:
    """The map of a tensor of `count` axes to itself."""
    return tuple(map(Axis, range(count)))


def broadcast(index: Index, shape: Shape) -> Index:
    """The index into a tensor that is broadcast to one of more axes."""
    own = index[len(index) - len(shape) :]
    return tuple(ZERO if size == 1 else place for place, size in zip(own, shape, strict=True))


def loop_index(shape: Shape, letter: str = "k") -> Index:
    """The variables of loops over a tensor; samples and rows have the current one."""
    return tuple(
        CURRENT if isinstance(size, Symbol) else ZERO if size == 1 else Variable(f"{letter}{axis}")
        for axis, size in enumerate(shape)
    )


def inner_index(over: Shape) -> Index:
    """The variables of loops over the axes that a reduction covers."""
    return loop_index(over, "s")


def of_any_sample(index: Index) -> Index:
    """The same place of any sample, where lanes do not have one each."""
    return tuple(ANY_SAMPLE if place == CURRENT else place for place in index)


def flat(index: Index, shape: Shape) -> str:
    """The text of an element's place among those of one client, sample or row."""
    text = ""
    for place, size in zip(index, shape, strict=True):
        if isinstance(size, int) and size != 1:
            text = f"({text} * {size} + {place})" if text else str(place)
    return text or "0"
