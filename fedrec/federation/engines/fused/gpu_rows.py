"""Loops over rows of tables as the lanes of a GPU share them out: a lane moves a few neighbours at once.

A lane waits for memory once for all of them. What a loop does with the number `c` of them is given as
statements.
"""

from collections.abc import Iterable, Iterator, Sequence

Arrays = Sequence[tuple[str, str]]
"""What a loop reads and writes of a row: the name of a lane's own numbers, and the array they are of."""


def lane_width(width: int) -> int:
    """How many numbers of a row a lane moves at once."""
    return 4 if width % 4 == 0 else 2 if width % 2 == 0 else 1


def over_rows(count: str, row: str, width: int, body: Iterable[str]) -> Iterator[str]:
    """A loop over `count` rows of a table, the next of which is `row`; a lane's numbers begin at `k0`."""
    few = lane_width(width)
    each = width // few
    yield f"for (int e = LANE; e < {count} * {each}; e += LANES) {{"
    yield f"const int z = e / {each}, k0 = e % {each} * {few}, i = {row};"
    yield f"const integer place = (integer)i * {width} + k0;"
    yield from body
    yield "}"


def moved_by_lanes(parts: Arrays, width: int, body: Iterable[str]) -> Iterator[str]:
    """Fetch a lane's numbers of a row, do something with them, and store them."""
    few = lane_width(width)
    for name, array in parts:
        yield f"real {name}[{few}];"
        yield f"load<{few}>({name}, {array} + place);"
    yield from body
    yield from (f"store<{few}>({array} + place, {name});" for name, array in parts)


def each_number(width: int, body: Iterable[str]) -> Iterator[str]:
    """Do something with every number of a lane's: the number `k1` of the row, `c` of the lane."""
    yield f"UNROLL for (int c = 0; c < {lane_width(width)}; c++) {{"
    yield "const int k1 = k0 + c;"
    yield from body
    yield "}"


def gradient_of_samples(width: int, term: str, *, perhaps: bool) -> Iterator[str]:
    """The sums of `term` over a row's samples `s`; with `perhaps` a row may have none."""
    few = lane_width(width)
    yield f"real gradient[{few}];"
    if perhaps:
        yield f"UNROLL for (int c = 0; c < {few}; c++) gradient[c] = 0;"
        yield "if (mark[i] >= base)"
    yield f"chained<{few}>(gradient, mark[i] - base, following, [&](int s, int c) {{"
    yield "const int k1 = k0 + c;"
    yield f"return {term};"
    yield "});"
