"""Products of samples on a CPU, in tiles that stay in registers.

The module reads a `Tiled` and gives statements that call functions of C, and these functions. Samples are
taken in blocks that fit into the nearest cache. A product of a block with a matrix has tiles of four samples
times some columns, so each loaded number is used several times. A sum over samples of products has tiles of
four rows times some columns of the result, to which one sample after the other is added. Every number is
summed in the same order, whatever the shape of its tile.
"""

from fedrec.federation.engines.fused.backend.library.device_library import library_text
from fedrec.federation.engines.fused.backend.reader import Reader, element
from fedrec.federation.engines.fused.ir.index import ZERO, IndexExpr, Variable
from fedrec.federation.engines.fused.passes.tiling import INNER, SIDE, Factor, Tiled

BLOCK = 64
"""Samples of a block."""
_MOST = 4
"""The most groups of four columns in a tile: with four samples they fill half of a CPU's registers."""


def tile_functions() -> str:
    """The functions of tiles in C: a product and an outer sum for every number of groups of columns."""
    each = [_product_function(fours) + _outer_function(fours) for fours in range(1, _MOST + 1)]
    return "\n" + library_text("tiles.c") + "\n".join([*(line for lines in each for line in lines), ""])


def block_product(reader: Reader, tiled: Tiled, matrix: str, target: str) -> list[str]:
    """Statements that multiply the samples of a block, `(samples, s0)`, by a matrix, `(s0, k)`.

    `matrix` points at the matrix, stored row by row. The result, `(samples, k)`, goes to `target`.
    """
    columns, depth = tiled.sizes[tiled.of_right], tiled.sizes[INNER]
    lines = ["{", *_places(reader, tiled.left, INNER, "left")]
    for first, fours in _strips(columns):
        lines.append(
            f"product_{fours}({target} + {first}, left, {matrix} + {first}, i1 - i0, {depth}, {columns});"
        )
    return [*lines, "}"]


def matrix_by_rows(reader: Reader, tiled: Tiled, into: str) -> list[str]:
    """Statements that copy a matrix of the client to the array `into`, row by row."""
    columns, depth = tiled.sizes[tiled.of_right], tiled.sizes[INNER]
    number = element(reader, tiled.right, {INNER: Variable("s"), tiled.of_right: Variable("k")})
    return [
        f"for (int s = 0; s < {depth}; s++) for (int k = 0; k < {columns}; k++)",
        f"{into}[s * {columns} + k] = {number};",
    ]


def block_outer(reader: Reader, tiled: Tiled, target: str) -> list[str]:
    """Statements that add the products of each sample's numbers to the matrix at `target`, `(a, b)`."""
    rows, columns = tiled.sizes[tiled.of_left], tiled.sizes[tiled.of_right]
    lines = [
        "{",
        *_places(reader, tiled.left, tiled.of_left, "left"),
        *_places(reader, tiled.right, tiled.of_right, "right"),
    ]
    for first, fours in _strips(columns):
        lines.append(f"outer_{fours}({target} + {first}, left, right, {first}, i1 - i0, {rows}, {columns});")
    return [*lines, "}"]


def _places(reader: Reader, factor: Factor, place: IndexExpr, name: str) -> list[str]:
    """Statements that point at the numbers of every sample of the block."""
    return [
        f"const real* {name}[{BLOCK}];",
        f"for (int j = i0; j < i1; j++) {name}[j - i0] = &{element(reader, factor, {place: ZERO})};",
    ]


def _strips(columns: int) -> list[tuple[int, int]]:
    """The first column of each tile, and its number of groups of four columns."""
    fours = columns // SIDE
    return [(SIDE * first, min(_MOST, fours - first)) for first in range(0, fours, _MOST)]


def _product_function(fours: int) -> list[str]:
    """The function that multiplies `count` samples by some columns of a matrix.

    A tile that exceeds the samples computes the last sample again, to the same result.
    """
    places = [(sample, four) for sample in range(SIDE) for four in range(fours)]
    samples = [(sample, f"(j + {sample} < count ? j + {sample} : count - 1)") for sample in range(SIDE)]
    return [
        f"TILES product_{fours}(real* to, const real* const* left, const real* matrix,",
        "    int count, int depth, int columns) {",
        f"  for (int j = 0; j < count; j += {SIDE}) {{",
        *(f"    const int j{sample} = {place};" for sample, place in samples),
        *(f"    const real* const left{sample} = left[j{sample}];" for sample, _ in samples),
        *(f"    four t{sample}_{four} = {{0}};" for sample, four in places),
        # One step per iteration: with several, a C compiler may separate sums from their products.
        "    for (int s = 0; s < depth; s++) {",
        *(f"      const four m{four} = FOUR(matrix + s * columns + {SIDE * four});" for four in range(fours)),
        *(f"      t{sample}_{four} += m{four} * left{sample}[s];" for sample, four in places),
        "    }",
        *(
            f"    FOUR(to + j{sample} * columns + {SIDE * four}) = t{sample}_{four};"
            for sample, four in places
        ),
        "  }",
        "}",
    ]


def _outer_function(fours: int) -> list[str]:
    """The function that adds the products of `count` samples to some columns of a matrix of `rows` rows."""
    places = [(row, four) for row in range(SIDE) for four in range(fours)]
    at = {(row, four): f"FOUR(to + (a + {row}) * columns + {SIDE * four})" for row, four in places}
    return [
        f"TILES outer_{fours}(real* to, const real* const* left, const real* const* right, int first,",
        "    int count, int rows, int columns) {",
        f"  for (int a = 0; a < rows; a += {SIDE}) {{",
        *(f"    four t{row}_{four} = {at[row, four]};" for row, four in places),
        "    for (int j = 0; j < count; j++) {",
        "      const four l = FOUR(left[j] + a);",
        *(f"      const four r{four} = FOUR(right[j] + first + {SIDE * four});" for four in range(fours)),
        *(f"      t{row}_{four} += r{four} * l[{row}];" for row, four in places),
        "    }",
        *(f"    {at[row, four]} = t{row}_{four};" for row, four in places),
        "  }",
        "}",
    ]
