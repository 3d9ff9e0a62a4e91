"""Loops over rows of tables as a CPU does them: all numbers of a row at once, by vectors.

What a loop does with a number `k1` of a row is given as statements, without a branch and without a read that
a write might hinder. Roots and divisions are dear: so that a row is caught up without any, the step that
moved it last leaves `inverse` = 1 / (sqrt(v) bias2_l + eps), or 0 where v is 0. Behind mini-batch l the row
moves in mini-batch j = l + i by

    rate bias1_j 0.9^i m inverse ratio / (1 + (ratio - 1) eps inverse)
    ratio = bias2_l / (0.999^(i/2) bias2_j)

which is a series in (ratio - 1) eps inverse: ratio is little above 1, and eps inverse is 1 at most. Its terms
are sums of those of `fused.adam`, since ratio is bias2_l times what these are powers of. They are the same
for all rows, and the first four are taken where the next one is far below rounding.
"""

from collections.abc import Iterable, Iterator, Sequence

RowArrays = Sequence[tuple[str, str]]
"""What a loop reads and writes of a row: its name there, and the array it is of."""
KNOWN = 64
"""Stretches of mini-batches of which a client remembers what they do to its rows."""


def row_by_row(count: str, row: str, body: Iterable[str]) -> Iterator[str]:
    """A loop over `count` rows of a table, the next of which is `row`."""
    yield f"for (int z = 0; z < {count}; z++) {{"
    yield f"const int i = {row};"
    yield from body
    yield "}"


def of_row(arrays: RowArrays, width: int) -> Iterator[str]:
    """Where the row's numbers are; no two of these arrays overlap."""
    return (f"real* restrict const {name} = {array} + (integer)i * {width};" for name, array in arrays)


def each_of_row(width: int, body: Iterable[str]) -> Iterator[str]:
    """Do something with every number of a row, many at once."""
    yield f"APART for (int k1 = 0; k1 < {width}; k1++) {{"
    yield from body
    yield "}"


def sampled_gradient(width: int, array: str, *, perhaps: bool) -> Iterator[str]:
    """The sums of what samples have left in `array` for the row; with `perhaps` a row may have none."""
    found = f"gradient = gathered(own, {array}, {width}, mark[i] - base, following);"
    yield f"if (mark[i] >= base) {found} else memset(own, 0, sizeof own);" if perhaps else found


def idle_steps(known: str, rate: str, tails: str, width: int) -> Iterator[str]:
    """What the steps from `from` to `to` do to any row, and whether the row is `steady`: not so near to rest
    that the series would miss something.
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
    """All those steps at once."""
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
