"""Products of samples on a GPU, in tiles of four times four numbers per lane.

The module reads a `Tiled` and gives statements. A lane uses each loaded number four times. A product of
samples with a matrix has tiles of four samples times four columns. In a sum over samples of products,
neighbouring lanes share a tile and divide the samples; each keeps a part of the tile in registers from block
to block.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fedrec.federation.engines.fused.backend.cuda.samples import Sum
from fedrec.federation.engines.fused.backend.reader import Reader, element, fetched
from fedrec.federation.engines.fused.ir.index import ZERO, Index, Variable
from fedrec.federation.engines.fused.ir.nodes import Node, Reduction
from fedrec.federation.engines.fused.passes.tiling import INNER, SIDE, Tiled


@dataclass(frozen=True)
class Epilogue:
    """The formula that is computed with each number of a product, and the tensor that stores the result."""

    result: Node
    """The tensor that is stored: the product, or the formula's tensor."""
    index: Index
    """The index of the number in that tensor."""
    formula: str
    """The text of the formula; `PRODUCT` in it is the number of the product."""


PRODUCT = "total[c][b]"
"""The text of a number of a product: an element of the lane's tile."""


def turned(reader: Reader, tiled: Tiled, into: str) -> list[str]:
    """Statements that copy a matrix to the array `into`, transposed to row by row.

    Neighbouring lanes read and write different banks of shared memory.
    """
    columns, depth = tiled.sizes[tiled.of_right], tiled.sizes[INNER]
    number = element(reader, tiled.right, {INNER: Variable("s"), tiled.of_right: Variable("k")})
    return [
        f"for (int e = LANE; e < {columns * depth}; e += LANES) {{",
        f"const int k = e % {columns}, s = (e / {columns} + k) % {depth};",
        f"{into}[s * {columns} + k] = {number};",
        "}",
        "SYNC();",
    ]


def product(
    reader: Reader, tiled: Tiled, matrix: str, left: Epilogue, targets: Sequence[str], half: int
) -> list[str]:
    """Statements that multiply the samples of a block by a matrix, stored row by row at `matrix`.

    The result of the epilogue `left` goes to all `targets`. The lower (0) or upper (1) `half` of the lanes
    begins, so that an independent product can start on the other half. The four samples of a lane are far
    apart, so that neighbouring lanes have neighbouring samples.
    """
    column, inside = tiled.of_right, INNER
    columns, depth = tiled.sizes[column], tiled.sizes[inside]
    places = {column: Variable("column")}
    places[inside] = INNER
    tiles = columns // SIDE
    start = "(LANE + LANES / 2) % LANES" if half else "LANE"
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
        *fetched(reader, tiled.left, "left[c]", inside, places),
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


def outer(reader: Reader, node: Reduction, tiled: Tiled, name: str) -> Sum:
    """A sum over samples of products: neighbouring lanes divide the samples of a tile and keep its sums."""
    row, column = tiled.of_left, tiled.of_right
    tiles, columns = node.count // SIDE**2, tiled.sizes[column] // SIDE
    places = {row: Variable("a0"), column: Variable("b0")}
    target = reader.read(node, [ZERO] * len(node.shape))
    each = [
        f"UNROLL for (int turn = 0; turn < turns_{name}; turn++) {{",
        f"const int tile = LANE / over_{name} + turn * (LANES / over_{name});",
        f"const int a0 = tile / {columns} * {SIDE}, b0 = tile % {columns} * {SIDE};",
    ]
    return Sum(
        [
            f"constexpr int over_{name} = lanes_of_tile({tiles});",
            f"constexpr int turns_{name} = ({tiles} * over_{name} + LANES - 1) / LANES;",
            f"constexpr int kept_{name} = {SIDE**2} > over_{name} ? {SIDE**2} / over_{name} : 1;",
            f"real own_{name}[turns_{name} * kept_{name}] = {{0}};",
        ],
        [
            *each,
            f"real total[{SIDE**2}] = {{0}};",
            f"if (tile < {tiles})",
            f'_Pragma("unroll 4") for (int j = i0 + LANE % over_{name}; j < i1; j += over_{name}) {{',
            f"real left[{SIDE}], right[{SIDE}];",
            *fetched(reader, tiled.left, "left", row, places),
            *fetched(reader, tiled.right, "right", column, places),
            "add_outer(total, left, right);",
            "}",
            f"keep_sums<{SIDE**2}, over_{name}>(total);",
            f"UNROLL for (int k = 0; k < kept_{name}; k++) own_{name}[turn * kept_{name} + k] += total[k];",
            "}",
        ],
        [
            *each,
            f"if (tile < {tiles}) UNROLL for (int k = 0; k < kept_{name}; k++) {{",
            f"const int number = first_kept<{SIDE**2}, over_{name}>() + k;",
            f"(&{target})[(a0 + number / {SIDE}) * {columns * SIDE} + b0 + number % {SIDE}]",
            f"= own_{name}[turn * kept_{name} + k];",
            "}",
            "}",
        ],
    )
