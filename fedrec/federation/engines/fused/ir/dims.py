"""Sizes of axes: numbers, or symbols for the two sizes that differ between clients."""

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Symbol:
    """A size that differs between clients."""

    name: str

    def __str__(self) -> str:
        return self.name


SAMPLES = Symbol("samples")
"""The samples of a mini-batch."""
ROWS = Symbol("rows")
"""The rows of a table."""
Dim = int | Symbol
Shape = tuple[Dim, ...]


def symbols_of(sizes: Iterable[Dim]) -> list[Symbol]:
    """The symbols among some sizes, in order."""
    return [size for size in sizes if isinstance(size, Symbol)]


def static_count(sizes: Iterable[Dim]) -> int:
    """The number of elements of one sample or row: the product of all sizes that are numbers."""
    return math.prod(size for size in sizes if isinstance(size, int))
