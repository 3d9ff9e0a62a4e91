"""Products and sums over samples as the lanes of a GPU share them out.

Products are done by tiles (see `gpu_products`). Other sums over samples are shared out among groups of lanes.
Sums go on in registers from block to block, and in whatever shape, a number is added up in one order.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fedrec.federation.engines.fused.nodes import ROWS, SAMPLES, Index, Node, Reduction

SIDE = 4
"""Numbers of a tile in each direction, which are fetched at once."""
_AT_ONCE = 8
"""Numbers of samples that a lane has under way."""


class Reader(Protocol):
    """What knows the expressions of tensors."""

    def read(self, node: Node, index: Sequence[str]) -> str:
        """The expression of an element."""
        ...

    def is_run(self, node: Node, index: Sequence[str], place: str) -> bool:
        """Whether elements lie side by side as `place` goes up, the first at a multiple of four."""
        ...


@dataclass(frozen=True)
class Factor:
    """An input of a product, and which places of the product index it."""

    node: Node
    index: Index

    def at(self, reader: Reader, given: Mapping[str, str]) -> str:
        """The expression of an element."""
        return reader.read(self.node, [given.get(place, place) for place in self.index])

    def fetched(self, reader: Reader, into: str, along: str, given: Mapping[str, str]) -> list[str]:
        """Statements that fetch four elements, from `given[along]` on."""
        if reader.is_run(self.node, self.index, along):
            return [f"load<{SIDE}>({into}, &{self.at(reader, given)});"]
        first = given[along]
        return [
            f"{into}[{number}] = {self.at(reader, {**given, along: f'({first} + {number})'})};"
            for number in range(SIDE)
        ]


def factors_of(node: Reduction) -> tuple[list[Factor], Index, Index]:
    """The inputs of a reduction, and the names of its own places and of those it goes over."""
    own = tuple(_place("k", axis, size) for axis, size in enumerate(node.shape))
    inner = tuple(_place("s", axis, size) for axis, size in enumerate(node.over))
    every = (*own, *inner)
    factors = [
        Factor(each, tuple("0" if place is None else every[place] for place in places))
        for each, places in zip(node.inputs, node.places, strict=True)
    ]
    return factors, own, inner


def _place(letter: str, axis: int, size: int) -> str:
    return "j" if size == SAMPLES else "0" if size == 1 else f"{letter}{axis}"


@dataclass(frozen=True)
class Tiled:
    """A product that is done by tiles: its factors, and the places that index them, with their sizes."""

    left: Factor
    right: Factor
    of_left: str
    of_right: str
    sizes: Mapping[str, int]


def product_of(node: Reduction) -> Tiled | None:
    """A product of every sample's numbers with a matrix, if it is that: left are samples."""
    return _tiled(node, "j", _single(node.over), node.shape)


def outer_of(node: Reduction) -> Tiled | None:
    """A sum over samples of products of their numbers, if it is that."""
    if node.over != (SAMPLES,):
        return None
    return _tiled(node, _wide_places(node)[0] if len(_wide_places(node)) == len("ab") else None, "j", ())


def _wide_places(node: Reduction) -> list[str]:
    return [f"k{axis}" for axis, size in enumerate(node.shape) if size not in (SAMPLES, ROWS, 1)]


def _single(over: tuple[int, ...]) -> str | None:
    return "s0" if len(over) == 1 and over[0] not in (SAMPLES, ROWS) else None


def _tiled(node: Reduction, of_left: str | None, between: str | None, shape: tuple[int, ...]) -> Tiled | None:
    if len(node.inputs) != len("ab") or node.largest or of_left is None or between is None:
        return None
    if shape and (SAMPLES not in shape or len(_wide_places(node)) != 1):
        return None
    of_right = _wide_places(node)[-1]
    sizes = {f"k{axis}": size for axis, size in enumerate(node.shape)} | {"s0": node.over[0]}
    whole = [place for place in (of_left, of_right, between) if place != "j"]
    if any(sizes[place] % SIDE for place in whole):
        return None
    factors, _, _ = factors_of(node)
    for left, right in (factors, factors[::-1]):
        if _indexed(left) == {of_left, between} and _indexed(right) == {of_right, between}:
            return Tiled(left, right, of_left, of_right, sizes)
    return None


def _indexed(factor: Factor) -> set[str]:
    return set(factor.index) - {"0"}


@dataclass(frozen=True)
class Sum:
    """A sum over the samples of all blocks: statements before the first, in each, and behind the last."""

    before: list[str]
    block: list[str]
    behind: list[str]


def grouped_sum(reader: Reader, node: Reduction, name: str) -> Sum:
    """A sum over samples of a formula: groups of lanes take samples in turn, or a lane has some numbers."""
    factors, own, inner = factors_of(node)
    count = node.count
    term = " * ".join(factor.at(reader, {}) for factor in factors)
    static = [(place, size) for place, size in zip(inner, node.over, strict=True) if place not in ("j", "0")]
    loops = [f"for (int {place} = 0; {place} < {size}; {place}++)" for place, size in static]
    target = reader.read(node, ["0"] * len(node.shape))
    each = [
        f"UNROLL for (int turn = 0; turn < turns_{name}; turn++) {{",
        f"const int group = groups_{name} > 1 ? LANE / {count} : 0;",
        f"const int e = LANE - group * {count} + turn * LANES;",
    ]
    return Sum(
        [
            f"constexpr int groups_{name} = LANES >= {2 * count} ? LANES / {count} : 1;",
            f"constexpr int turns_{name} = ({count} + LANES - 1) / LANES;",
            f"real own_{name}[turns_{name}] = {{0}};",
        ],
        [
            *each,
            *_decoded(zip(own, node.shape, strict=True), count),
            f"if (e < {count} && group < groups_{name})",
            f'_Pragma("unroll 4") for (int j = i0 + group; j < i1; j += groups_{name})',
            *loops,
            f"own_{name}[turn] += {term};",
            "}",
        ],
        [
            f"if (groups_{name} > 1) sum_groups<{count}>(own_{name}[0], &{target});",
            f"else {{ {' '.join(each)} if (e < {count}) (&{target})[e] = own_{name}[turn]; }} }}",
        ],
    )


def each_number_of_samples(reader: Reader, node: Node, index: Index, formula: str) -> list[str]:
    """A formula for every number of every sample: a lane fetches some before it stores the first."""
    count = node.count
    places = [f"const int j = i0 + e / {count};", *_decoded(zip(index, node.shape, strict=True), count)]
    return [
        f"for (int first_e = LANE; first_e < (i1 - i0) * {count}; first_e += {_AT_ONCE} * LANES) {{",
        f"real own[{_AT_ONCE}];",
        f"UNROLL for (int c = 0; c < {_AT_ONCE}; c++) {{",
        f"const int e = first_e + c * LANES < (i1 - i0) * {count} ? first_e + c * LANES : LANE;",
        *places,
        f"own[c] = {formula};",
        "}",
        f"UNROLL for (int c = 0; c < {_AT_ONCE}; c++) {{",
        "const int e = first_e + c * LANES;",
        *places,
        f"if (e < (i1 - i0) * {count}) {reader.read(node, index)} = own[c];",
        "}",
        "}",
    ]


def lane_total(node: Reduction, term: str, inner: Index, into: str) -> list[str]:
    """One number that is a sum of many of the client's: lanes add up some each."""
    places = _decoded(zip(inner, node.over, strict=True), math.prod(node.over))
    return [
        f"real {into} = 0;",
        f"for (int e = LANE; e < {math.prod(node.over)}; e += LANES) {{", *places, f"{into} += {term};", "}",
        f"{into} = SUM({into});",
    ]  # fmt: skip


def _decoded(places: Iterable[tuple[str, int]], count: int) -> list[str]:
    """The places of the element `e` of so many; samples and axes of one have none."""
    lines = []
    for place, size in places:
        if place not in ("j", "0"):
            count //= size
            lines.append(f"const int {place} = e / {count} % {size};")
    return lines
