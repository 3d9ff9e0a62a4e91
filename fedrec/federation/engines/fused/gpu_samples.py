"""Products and sums over samples as the lanes of a GPU share them out.

A product of every sample with a matrix, and a product of two tensors summed over samples, are done by tiles:
a lane has four times four numbers of the result, so that what it fetches serves four times. Other sums over
samples are shared out among groups of lanes. In whatever shape, a number is added up in one order.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fedrec.federation.engines.fused.nodes import ROWS, SAMPLES, Index, Node, Reduction

SIDE = 4
"""Numbers of a tile in each direction, which are fetched at once."""
_MOST_GROUPS = 8
"""Groups of lanes whose tiles are added up, one after the other."""
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
class Epilogue:
    """What becomes of a number of a product: the tensor it goes to, its place there, and a formula of it."""

    result: Node
    index: Index
    formula: str


PRODUCT = "total[c][b]"
"""A number of a product, in its tile."""


def turned(reader: Reader, tiled: Tiled, into: str) -> list[str]:
    """A matrix that lies the other way, row by row; neighbouring lanes read and write different banks."""
    columns, depth = tiled.sizes[tiled.of_right], tiled.sizes["s0"]
    element = tiled.right.at(reader, {"s0": "s", tiled.of_right: "k"})
    return [
        f"for (int e = LANE; e < {columns * depth}; e += LANES) {{",
        f"const int k = e % {columns}, s = (e / {columns} + k) % {depth};",
        f"{into}[s * {columns} + k] = {element};",
        "}",
        "SYNC();",
    ]


def product(
    reader: Reader, tiled: Tiled, matrix: str, left: Epilogue, targets: Sequence[str], beside: int
) -> list[str]:
    """Every sample's numbers times a matrix, which lies row by row from `matrix` on.

    What is left of it goes to all `targets`. With as many products `beside` it that wait for nothing of each
    other, other lanes begin. A lane's samples are far apart, so that those of neighbours are neighbours.
    """
    column, inside = tiled.of_right, "s0"
    columns, depth = tiled.sizes[column], tiled.sizes[inside]
    places = {"j": "j", inside: "s0", column: "column"}
    tiles = columns // SIDE
    start = "(LANE + LANES / 2) % LANES" if beside % 2 else "LANE"
    return [
        "{",
        f"const int apart = (i1 - i0 + {SIDE - 1}) / {SIDE};",
        f"for (int e = {start}; e < apart * {tiles}; e += LANES) {{",
        f"const int j0 = i0 + e / {tiles}, column = e % {tiles} * {SIDE};",
        "real total[4][4];",
        "clear(total);",
        f"for (int s0 = 0; s0 < {depth}; s0 += {SIDE}) {{",
        "real left[4][4], right[4][4];",
        f"UNROLL for (int c = 0; c < {SIDE}; c++) {{",
        "const int j = j0 + c * apart < i1 ? j0 + c * apart : i1 - 1;",
        *tiled.left.fetched(reader, "left[c]", inside, places),
        f"load<{SIDE}>(right[c], {matrix} + (s0 + c) * {columns} + column);",
        "}",
        "add_product(total, left, right);",
        "}",
        f"UNROLL for (int c = 0; c < {SIDE}; c++) {{",
        "const int j = j0 + c * apart;",
        "if (j >= i1) break;",
        f"real own[{SIDE}];",
        f"UNROLL for (int b = 0; b < {SIDE}; b++) {{",
        f"const int {column} = column + b;",
        f"own[b] = {left.formula};",
        "}",
        *(f"store<{SIDE}>(&{target}, own);" for target in targets),
        "}",
        "}",
        "}",
    ]


def outer(reader: Reader, node: Reduction, tiled: Tiled) -> list[str]:
    """A sum over samples of products: groups of lanes take samples in turn, and their tiles are added up."""
    row, column = tiled.of_left, tiled.of_right
    rows, columns = tiled.sizes[row] // SIDE, tiled.sizes[column] // SIDE
    places = {row: "a0", column: "b0"}
    line = reader.read(node, [{row: "(a0 + c)"}.get(place, places.get(place, place)) for place in _own(node)])
    first = reader.read(node, ["0"] * len(node.shape))
    return [
        "{",
        f"const int tiles = {rows * columns}, most = LANES / tiles > 1 ? LANES / tiles : 1;",
        f"const int groups = most < {_MOST_GROUPS} ? most : {_MOST_GROUPS}, group = LANE / tiles;",
        "for (int tile = LANE % tiles; tile < tiles && group < groups; tile += LANES) {",
        f"const int a0 = tile / {columns} * {SIDE}, b0 = tile % {columns} * {SIDE};",
        "real total[4][4];",
        "clear(total);",
        '_Pragma("unroll 4") for (int j = i0 + group; j < i1; j += groups) {',
        "real left[4], right[4];",
        *tiled.left.fetched(reader, "left", row, places),
        *tiled.right.fetched(reader, "right", column, places),
        "add_outer(total, left, right);",
        "}",
        f"UNROLL for (int c = 0; c < {SIDE}; c++) {{",
        "if (groups > 1) {",
        f"store<{SIDE}>(parts + group * {node.count} + (a0 + c) * {columns * SIDE} + b0, total[c]);",
        "} else {",
        f"if (i0) add_stored(total[c], &{line});",
        f"store<{SIDE}>(&{line}, total[c]);",
        "}",
        "}",
        "}",
        "if (groups > 1) {",
        "SYNC();",
        f"for (int e = LANE; e < {node.count}; e += LANES) {{",
        f"real total = i0 ? (&{first})[e] : (real)0;",
        f"for (int g = 0; g < groups; g++) total += parts[g * {node.count} + e];",
        f"(&{first})[e] = total;",
        "}",
        "SYNC();",
        "}",
        "}",
    ]


def grouped_sum(reader: Reader, node: Reduction) -> list[str]:
    """A sum over samples of a formula: groups of lanes take samples in turn."""
    factors, own, inner = factors_of(node)
    count = node.count
    term = " * ".join(factor.at(reader, {}) for factor in factors)
    static = [(place, size) for place, size in zip(inner, node.over, strict=True) if place not in ("j", "0")]
    loops = [f"for (int {place} = 0; {place} < {size}; {place}++)" for place, size in static]
    places = _decoded(zip(own, node.shape, strict=True), count)
    add = [*loops, f"total += {term};"]
    target = reader.read(node, ["0"] * len(node.shape))
    each = [
        "{",
        f"const int groups = LANES / {count}, group = LANE / {count}, e = LANE % {count};",
        *places,
        "real total = 0;",
        'if (group < groups) _Pragma("unroll 4") for (int j = i0 + group; j < i1; j += groups) {', *add, "}",
        f"sum_groups<{count}>(total, &{target}, i0);",
        "}",
    ]  # fmt: skip
    some = [
        f"for (int e = LANE; e < {count}; e += LANES) {{",
        *places,
        "real total = 0;",
        "for (int j = i0; j < i1; j++) {", *add, "}",
        f"(&{target})[e] = i0 ? (&{target})[e] + total : total;",
        "}",
    ]  # fmt: skip
    return [f"#if LANES >= {2 * count}", *each, "#else", *some, "#endif"]


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


def _own(node: Reduction) -> Index:
    return factors_of(node)[1]
