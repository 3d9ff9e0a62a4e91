"""Loops over rows of tables on a CPU: the C compiler vectorises over the numbers of a row.

The module reads the statements for a number `k1` of a row, and gives the loops around them. The statements
have no branch, and no read that a write could change, so that they vectorise.

Roots and divisions are slow. To apply missed steps without any, the last step of a row stores `inverse` =
1 / (sqrt(v) bias2_l + eps), or 0 if v is 0. After mini-batch l, mini-batch j = l + i changes the row by

    rate bias1_j 0.9^i m inverse ratio / (1 + (ratio - 1) eps inverse)
    ratio = bias2_l / (0.999^(i/2) bias2_j)

which is a series in (ratio - 1) eps inverse: ratio is little above 1, and eps inverse is at most 1. Its terms
are sums of the terms in `fused/adam.py`, which are powers of ratio / bias2_l. They are the same for all rows.
The kernel uses the first four, and only if the next one is far below rounding.
"""

from collections.abc import Iterable, Iterator, Sequence

RowArrays = Sequence[tuple[str, str]]
"""The parts of a row that a loop reads and writes: the name in the loop, and the array of all rows."""
KNOWN = 64
"""Entries of a client's table of computed catch-ups, by the first missed mini-batch."""


def row_by_row(count: str, row: str, body: Iterable[str]) -> Iterator[str]:
    """A loop over `count` rows of a table, the next of which is `row`."""
    yield f"for (int z = 0; z < {count}; z++) {{"
    yield f"const int i = {row};"
    yield from body
    yield "}"


def of_row(arrays: RowArrays, width: int) -> Iterator[str]:
    """Statements that point at the row's numbers in `arrays`, which must not overlap."""
    return (f"real* restrict const {name} = {array} + (integer)i * {width};" for name, array in arrays)


def each_of_row(width: int, body: Iterable[str]) -> Iterator[str]:
    """A loop over the `width` numbers of a row, which vectorises."""
    yield f"APART for (int k1 = 0; k1 < {width}; k1++) {{"
    yield from body
    yield "}"


def sampled_gradient(width: int, array: str, *, perhaps: bool) -> Iterator[str]:
    """Statements that sum the gradients of the row's samples in `array`; with `perhaps` it may have none."""
    found = f"gradient = gathered(own, {array}, {width}, mark[i] - base, following);"
    yield f"if (mark[i] >= base) {found} else memset(own, 0, sizeof own);" if perhaps else found


def idle_steps(known: str, rate: str, tails: str, width: int) -> Iterator[str]:
    """Statements that find the effect of the steps after `from` up to `to`, and whether the row is `steady`.

    A row is steady if the terms that the series omits are far below rounding.
    """
    yield "real largest = 0;"
    yield f"LARGEST for (int k1 = 0; k1 < {width}; k1++)"
    yield "largest = inverse[k1] > largest ? inverse[k1] : largest;"
    yield f"struct idle* const idle = {known} + from % {KNOWN};"
    yield "if (idle->from != from || idle->to != to)"
    yield f"*idle = idle_steps(from, to, {rate}, {tails}, past, root, unroot, lowest_root);"
    yield "const struct idle by = *idle;"
    yield "const int steady = largest * by.limit < 1;"


def caught_up(width: int, first: str, second: str) -> Iterator[str]:
    """A loop that applies all missed steps to a steady row at once."""
    terms = "by.moves[0] - x * (by.moves[1] - x * (by.moves[2] - x * by.moves[3]))"
    return each_of_row(
        width,
        [
            "const real x = inverse[k1];",
            f"value[k1] -= {first}[k1] * x * ({terms});",
            f"{first}[k1] *= by.fades1;",
            f"{second}[k1] *= by.fades2;",
        ],
    )
