"""Where the elements of a tensor were before its shape changed."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from fedrec.federation.engines.fused.nodes import ROWS, SAMPLES, Index, UnsupportedError


def reshaping(before: tuple[int, ...], after: tuple[int, ...]) -> Callable[[Index], Index]:
    """How an index after a reshape finds its element before it."""
    groups = list(_groups(before, after))

    def at(index: Index) -> Index:
        found: list[str] = []
        for old, new in groups:
            found += _unravelled(_ravelled([index[axis] for axis in new], [after[axis] for axis in new]),
                                 [before[axis] for axis in old])  # fmt: skip
        return tuple(found)

    return at


def _groups(before: tuple[int, ...], after: tuple[int, ...]) -> Iterator[tuple[list[int], list[int]]]:
    """Neighbouring axes on both sides that hold the same elements."""
    old, new = iter(range(len(before))), iter(range(len(after)))
    olds: list[int] = []
    news: list[int] = []
    for axis in itertools.chain(old, [None]):
        if axis is not None:
            olds.append(axis)
        while math.prod(before[a] for a in olds) > math.prod(after[a] for a in news) or axis is None:
            following = next(new, None)
            if following is None:
                break
            news.append(following)
        if math.prod(before[a] for a in olds) == math.prod(after[a] for a in news) and (olds or news):
            _check_group([before[a] for a in olds], [after[a] for a in news])
            yield olds, news
            olds, news = [], []


def _check_group(before: list[int], after: list[int]) -> None:
    varying = [size for size in (*before, *after) if size in (SAMPLES, ROWS)]
    # An axis of samples or rows goes over into one, with axes of size 1 beside it at most.
    plain = all(size in (1, SAMPLES, ROWS) for size in (*before, *after))
    if varying and not (plain and len(varying) == 2):
        raise UnsupportedError("its loss folds samples into another axis")


def _ravelled(index: Sequence[str], sizes: Sequence[int]) -> str:
    """The place of an index among all of neighbouring axes."""
    real = [(place, size) for place, size in zip(index, sizes, strict=True) if size != 1]
    if not real:
        return "0"
    text = real[0][0]
    for place, size in real[1:]:
        text = f"({text} * {size} + {place})"
    return text


def _unravelled(place: str, sizes: Sequence[int]) -> list[str]:
    """The index of a place among neighbouring axes."""
    real = [size for size in sizes if size != 1]
    index: list[str] = []
    for number, size in enumerate(sizes):
        if size == 1:
            index.append("0")
            continue
        real = real[1:]
        behind = math.prod(real)
        own = f"({place} / {behind})" if behind != 1 else place
        first = all(before == 1 for before in sizes[:number])
        index.append(own if first else f"({own} % {size})")
    return index
