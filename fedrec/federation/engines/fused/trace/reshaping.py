"""Index maps of reshapes.

The module reads the shapes before and after a reshape. It gives the map from each index after it to the index
before.
"""

import itertools
from collections.abc import Iterator, Sequence

from fedrec.federation.engines.fused.ir.dims import Dim, Shape, Symbol, static_count, symbols_of
from fedrec.federation.engines.fused.ir.index import (
    ZERO,
    Axis,
    IndexExpr,
    IndexMap,
    divided,
    ravel,
    remainder,
)
from fedrec.federation.engines.fused.ir.nodes import UnsupportedError

_FOLDED = "its loss folds samples into another axis"
"""The message for a reshape that joins an axis of samples or rows with another axis."""


def reshaping(before: Shape, after: Shape) -> IndexMap:
    """The map from an index after a reshape to that of the same element before it."""
    found: list[IndexExpr] = []
    for old, new in _groups(before, after):
        place = _ravelled([(Axis(axis), after[axis]) for axis in new])
        found += _unravelled(place, [before[axis] for axis in old])
    return tuple(found)


def _groups(before: Shape, after: Shape) -> Iterator[tuple[list[int], list[int]]]:
    """The smallest groups of neighbouring axes, before and after, that have equally many elements."""
    old, new = iter(range(len(before))), iter(range(len(after)))
    olds: list[int] = []
    news: list[int] = []
    for axis in itertools.chain(old, [None]):
        if axis is not None:
            olds.append(axis)
        while _volume(before, olds) > _volume(after, news) or axis is None:
            following = next(new, None)
            if following is None:
                break
            news.append(following)
        if _volume(before, olds) == _volume(after, news) and (olds or news):
            _check_group([before[a] for a in olds], [after[a] for a in news])
            yield olds, news
            olds, news = [], []
    if olds or news:
        raise UnsupportedError(_FOLDED)


def _volume(shape: Shape, axes: Sequence[int]) -> tuple[list[str], int]:
    """The number of elements on some axes: the symbols among their sizes, and the product of the others."""
    sizes = [shape[axis] for axis in axes]
    return sorted(symbol.name for symbol in symbols_of(sizes)), static_count(sizes)


def _check_group(before: Sequence[Dim], after: Sequence[Dim]) -> None:
    sizes = (*before, *after)
    # An axis of samples or rows must stay one axis; only axes of size 1 may join it.
    plain = all(size == 1 or isinstance(size, Symbol) for size in sizes)
    if symbols_of(sizes) and not (plain and len(symbols_of(sizes)) == 2):
        raise UnsupportedError(_FOLDED)


def _ravelled(places: Sequence[tuple[IndexExpr, Dim]]) -> IndexExpr:
    """The place of an element among all elements of neighbouring axes."""
    text: IndexExpr | None = None
    for place, size in places:
        if text is None:
            text = place if size != 1 else None
        elif isinstance(size, int) and size != 1:
            text = ravel(text, size, place)
    return text or ZERO


def _unravelled(place: IndexExpr, sizes: Sequence[Dim]) -> list[IndexExpr]:
    """The index on neighbouring axes of the element at a place among all of them."""
    index: list[IndexExpr] = []
    for number, size in enumerate(sizes):
        if size == 1:
            index.append(ZERO)
            continue
        behind = static_count(sizes[number + 1 :])
        own = divided(place, behind) if behind != 1 else place
        is_first = all(before == 1 for before in sizes[:number])
        index.append(own if is_first or isinstance(size, Symbol) else remainder(own, size))
    return index
