"""Sizes of axes: numbers, or symbols for the two sizes that differ between clients.

The module gives `SAMPLES`, `ROWS` and the type `Shape` to every folder of the compiler.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Symbol:
    """A size that differs between clients."""

    name: str
    """`samples`, `rows`, or the two sizes of an unknown symbol, in listings and messages."""

    def __str__(self) -> str:
        return self.name


SAMPLES = Symbol("samples")
"""The number of samples of a mini-batch."""
ROWS = Symbol("rows")
"""The number of rows of a table that the engine holds for a client."""
Dim = int | Symbol
"""The size of an axis."""
Shape = tuple[Dim, ...]
"""The sizes of all axes of a tensor of one client."""


def symbols_of(sizes: Iterable[Dim]) -> list[Symbol]:
    """The symbols among `sizes`, in order."""
    return [size for size in sizes if isinstance(size, Symbol)]


def static_count(sizes: Iterable[Dim]) -> int:
    """The number of elements of one sample or row: the product of all sizes that are numbers."""
    return math.prod(size for size in sizes if isinstance(size, int))
