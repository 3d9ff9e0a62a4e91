"""Sums over samples and formulas of all samples that the lanes of a GPU share.

The module reads a node and gives statements. Products have tiles instead (`products.py`). A sum stays in
registers from block to block, and every number is summed in the same order.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from fedrec.federation.engines.fused.backend.reader import Reader, element
from fedrec.federation.engines.fused.ir.dims import Dim, static_count
from fedrec.federation.engines.fused.ir.index import ANY_SAMPLE, ZERO, Index, IndexExpr
from fedrec.federation.engines.fused.ir.nodes import Node, Reduction
from fedrec.federation.engines.fused.passes.tiling import factors_of

_AT_ONCE = 8
"""Numbers that a lane loads before it stores the first one."""
_NO_LOOP = (ANY_SAMPLE, ZERO)
"""The places that have no loop: a sample, and the place on an axis of size 1."""


@dataclass(frozen=True)
class Sum:
    """The statements of a sum over the samples of all blocks."""

    before: list[str]
    """Statements before the first block."""
    block: list[str]
    """Statements in each block."""
    behind: list[str]
    """Statements after the last block."""


def grouped_sum(reader: Reader, node: Reduction, name: str) -> Sum:
    """A sum over samples of a formula; `name` is a part of names in C.

    With many lanes, groups of lanes divide the samples. Otherwise each lane sums some of the numbers.
    """
    factors, own, inner = factors_of(node)
    count = node.count
    term = " * ".join(element(reader, factor, {}) for factor in factors)
    static = [(place, size) for place, size in zip(inner, node.over, strict=True) if place not in _NO_LOOP]
    loops = [f"for (int {place} = 0; {place} < {size}; {place}++)" for place, size in static]
    target = reader.read(node, [ZERO] * len(node.shape))
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
    """A loop over every number of every sample; a lane loads several before it stores the first."""
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
    """Statements that compute one number as a long sum of the client's numbers: lanes divide the terms."""
    count = static_count(node.over)
    places = _decoded(zip(inner, node.over, strict=True), count)
    return [
        f"real {into} = 0;",
        f"for (int e = LANE; e < {count}; e += LANES) {{", *places, f"{into} += {term};", "}",
        f"{into} = SUM({into});",
    ]  # fmt: skip


def _decoded(places: Iterable[tuple[IndexExpr, Dim]], count: int) -> list[str]:
    """Statements that compute the places of the element `e` of `count`; places without a loop are omitted."""
    lines = []
    for place, size in places:
        if place not in _NO_LOOP and isinstance(size, int):
            count //= size
            lines.append(f"const int {place} = e / {count} % {size};")
    return lines
