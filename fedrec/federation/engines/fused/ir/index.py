"""Index expressions: they say which element of a tensor is read or written.

An index has one expression for every axis. Expressions compare by value, and `str` of one is its text in C.
The trace builds maps of indices, and the backend puts the variables of loops into them.
"""

from dataclasses import dataclass
from enum import Enum

from fedrec.federation.engines.fused.ir.dims import Shape, Symbol


@dataclass(frozen=True)
class Number:
    """A known place on an axis."""

    value: int
    """The place, counted from 0."""

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True)
class Variable:
    """A variable of a kernel, such as the counter of a loop."""

    name: str
    """Its name in C."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Axis:
    """In a map of indices: the place of the given index on one of its axes."""

    number: int
    """The number of that axis, from 0."""

    def __str__(self) -> str:
        return f"axis{self.number}"


class Arithmetic(Enum):
    """An operator on whole numbers; the value is its text in C, with gaps for the parts."""

    ADD = "({} + {})"
    MULTIPLY = "({} * {})"
    MULTIPLY_ADD = "({} * {} + {})"
    DIVIDE = "({} / {})"
    REMAINDER = "({} % {})"


@dataclass(frozen=True)
class Compound:
    """An expression of other expressions, all of whole numbers."""

    operator: Arithmetic
    """The operator that combines the parts."""
    parts: tuple["IndexExpr", ...]
    """The operands, one for each gap of the operator's text."""

    def __str__(self) -> str:
        return self.operator.value.format(*self.parts)


IndexExpr = Number | Variable | Axis | Compound
"""A place on one axis."""
Index = tuple[IndexExpr, ...]
"""A place on every axis of a tensor: one element."""
IndexMap = tuple[IndexExpr, ...]
"""Expressions of `Axis`, one for every axis of the tensor that is read."""

ZERO = Number(0)
"""The first place, and the only one on an axis of size 1."""
CURRENT = Variable("i")
"""The sample or row of a loop in which each lane has its own."""
ANY_SAMPLE = Variable("j")
"""The sample of a loop in which lanes share the numbers of all samples."""


def plus(left: IndexExpr, right: IndexExpr) -> IndexExpr:
    """The sum of two places."""
    return Compound(Arithmetic.ADD, (left, right))


def times(place: IndexExpr, factor: int) -> IndexExpr:
    """A multiple of a place."""
    return Compound(Arithmetic.MULTIPLY, (place, Number(factor)))


def ravel(outer: IndexExpr, size: int, inner: IndexExpr) -> IndexExpr:
    """The place on two axes joined to one: `outer * size + inner`; the inner axis has `size` places."""
    return Compound(Arithmetic.MULTIPLY_ADD, (outer, Number(size), inner))


def divided(place: IndexExpr, divisor: int) -> IndexExpr:
    """A place divided by `divisor`, rounded down."""
    return Compound(Arithmetic.DIVIDE, (place, Number(divisor)))


def remainder(place: IndexExpr, divisor: int) -> IndexExpr:
    """The remainder of a place divided by `divisor`."""
    return Compound(Arithmetic.REMAINDER, (place, Number(divisor)))


def applied(index_map: IndexMap, index: Index) -> Index:
    """The index that a map gives for an index: the map with the places of `index` in place of its axes."""
    return tuple(_substituted(each, index) for each in index_map)


def _substituted(expression: IndexExpr, index: Index) -> IndexExpr:
    if isinstance(expression, Axis):
        return index[expression.number]
    if isinstance(expression, Compound):
        return Compound(expression.operator, tuple(_substituted(part, index) for part in expression.parts))
    return expression


def same_axes(count: int) -> IndexMap:
    """The map that keeps every index of `count` axes."""
    return tuple(map(Axis, range(count)))


def broadcast(index: Index, shape: Shape) -> Index:
    """The index into a tensor of `shape` that broadcasting reads for an index into the larger result."""
    own = index[len(index) - len(shape) :]
    return tuple(ZERO if size == 1 else place for place, size in zip(own, shape, strict=True))


def loop_index(shape: Shape, letter: str = "k") -> Index:
    """The variables of loops over a tensor; on an axis of samples or rows it is `CURRENT`."""
    return tuple(
        CURRENT if isinstance(size, Symbol) else ZERO if size == 1 else Variable(f"{letter}{axis}")
        for axis, size in enumerate(shape)
    )


def inner_index(over: Shape) -> Index:
    """The variables of loops over the axes that a reduction sums over."""
    return loop_index(over, "s")


def of_any_sample(index: Index) -> Index:
    """An index with `ANY_SAMPLE` in place of `CURRENT`, for a loop in which lanes share all samples."""
    return tuple(ANY_SAMPLE if place == CURRENT else place for place in index)


def flat(index: Index, shape: Shape) -> str:
    """The text of an element's place among all numbers of one client, sample or row."""
    text = ""
    for place, size in zip(index, shape, strict=True):
        if isinstance(size, int) and size != 1:
            text = f"({text} * {size} + {place})" if text else str(place)
    return text or "0"
