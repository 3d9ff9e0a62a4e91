"""The reductions that are products of matrices, which kernels compute in tiles.

The module reads a reduction and gives its two factors as a `Tiled`, or None. A product of samples is
`(samples, s0)` times `(s0, k)`. A sum over samples of products is `(samples, a)` times `(samples, b)`, summed
to `(a, b)`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fedrec.federation.engines.fused.ir.dims import SAMPLES, Dim, Symbol
from fedrec.federation.engines.fused.ir.index import (
    ANY_SAMPLE,
    ZERO,
    Index,
    IndexExpr,
    Variable,
)
from fedrec.federation.engines.fused.ir.nodes import Node, Reduction

SIDE = 4
"""Numbers of a tile on each side; a device loads this number of neighbours at once."""
INNER = Variable("s0")
"""The variable of the axis over which a product of samples is summed."""


@dataclass(frozen=True)
class Factor:
    """An input of a product."""

    node: Node
    """The tensor."""
    index: Index
    """The variables of the product's axes that index the tensor, one for each of its axes."""


@dataclass(frozen=True)
class Tiled:
    """A product that is computed in tiles."""

    left: Factor
    """The factor of the rows of a tile: samples, or for a sum over samples the axis `of_left`."""
    right: Factor
    """The factor of the columns of a tile."""
    of_left: IndexExpr
    """The variable that indexes only the left factor."""
    of_right: IndexExpr
    """The variable that indexes only the right factor."""
    sizes: Mapping[IndexExpr, int]
    """The sizes of the axes, by their variables; samples have none."""


def factors_of(node: Reduction) -> tuple[list[Factor], Index, Index]:
    """The inputs of a reduction, the variables of its result's axes, and those of the axes that it covers."""
    own = tuple(_place("k", axis, size) for axis, size in enumerate(node.shape))
    inner = tuple(_place("s", axis, size) for axis, size in enumerate(node.over))
    every = (*own, *inner)
    factors = [
        Factor(each, tuple(ZERO if place is None else every[place] for place in places))
        for each, places in zip(node.inputs, node.places, strict=True)
    ]
    return factors, own, inner


def _place(letter: str, axis: int, size: Dim) -> IndexExpr:
    if size == SAMPLES:
        return ANY_SAMPLE
    return ZERO if size == 1 else Variable(f"{letter}{axis}")


def tiled_product(node: Reduction) -> Tiled | None:
    """The factors of a product of samples, on the left, with a matrix; None for other reductions."""
    is_single = len(node.over) == 1 and not isinstance(node.over[0], Symbol)
    if not is_single or SAMPLES not in node.shape or len(_wide_places(node)) != 1:
        return None
    return _tiled(node, ANY_SAMPLE, INNER)


def tiled_outer_sum(node: Reduction) -> Tiled | None:
    """The factors of a sum over samples of products of their numbers; None for other reductions."""
    if node.over != (SAMPLES,) or len(_wide_places(node)) != 2:
        return None
    return _tiled(node, _wide_places(node)[0], ANY_SAMPLE)


def _wide_places(node: Reduction) -> list[IndexExpr]:
    return [place for place, _ in _wide_axes(node)]


def _wide_axes(node: Reduction) -> Iterator[tuple[IndexExpr, int]]:
    for axis, size in enumerate(node.shape):
        if isinstance(size, int) and size != 1:
            yield Variable(f"k{axis}"), size


def _tiled(node: Reduction, of_left: IndexExpr, between: IndexExpr) -> Tiled | None:
    if len(node.inputs) != 2 or node.largest:
        return None
    of_right = _wide_places(node)[-1]
    sizes: dict[IndexExpr, int] = dict(_wide_axes(node))
    if isinstance(node.over[0], int):
        sizes[INNER] = node.over[0]
    if any(sizes[place] % SIDE for place in (of_left, of_right, between) if place != ANY_SAMPLE):
        return None
    factors, _, _ = factors_of(node)
    for left, right in (factors, factors[::-1]):
        if _indexed(left) == {of_left, between} and _indexed(right) == {of_right, between}:
            return Tiled(left, right, of_left, of_right, sizes)
    return None


def _indexed(factor: Factor) -> set[IndexExpr]:
    return set(factor.index) - {ZERO}
