"""Loops over rows of tables as the lanes of a GPU share them out: a lane moves a few neighbours at once.

A lane waits for memory once for all of them. What a loop does with the number `c` of them is given as
statements.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fedrec.federation.engines.fused.adam import PAST, SECOND, TERMS

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


@dataclass(frozen=True)
class IdleSteps:
    """Steps of a row without a gradient, by its moments alone: all at once, or one by one where these are
    small.

    Of the optimiser's step `number`, whose rate is `rate` and may shrink; mini-batches count from `since` on.
    """

    number: int
    rate: str
    since: str
    shrinks: bool

    def known(self, until: str) -> list[str]:
        """What the steps up to `until` do to any number of a row; see `fused.adam`."""
        tails = "shrunk_tails" if self.shrinks else "tails"
        return [
            f"const int from = {self.since}last[i], to = {self.since}{until};",
            f"RECORD({PAST}, gone, past, to - from)",
            f"RECORD({TERMS}, since, {tails}, from)",
            f"const double* const until = {tails} + to * {TERMS};",
            *(
                f"const real moves{term} = {self.rate} "
                f"* (real)(since[{term}] - gone[{term}] * until[{term}]);"
                for term in range(TERMS)
            ),
            f"const real fades1 = (real)gone[{TERMS}];",
            f"const real fades2 = (real)gone[{TERMS + 1}];",
            f"const real lowest = (real)(lowest_root * gone[{TERMS + 2}] * unroot[to]);",
        ]

    def moved(self, width: int, until: str) -> Iterator[str]:
        """What becomes of a lane's numbers.

        A warp waits for its slowest lane: where one number is small, all of them go together.
        """
        first, second = f"first{self.number}[c]", f"second{self.number}[c]"
        shrink = " * shrink[j]" if self.shrinks else ""
        yield f"real root_[{lane_width(width)}];"
        yield "bool small_ = false;"
        yield from each_number(
            width,
            [f"root_[c] = SQRT({second});", "small_ |= !(root_[c] > lowest || root_[c] == 0);"],
        )
        yield "if (!small_) {"
        yield from each_number(
            width,
            [
                "const real inverse = root_[c] > 0 ? 1 / root_[c] : (real)0;",
                "const real small = (real)1e-8 * inverse;",
                "const real moves = moves0 - small * (moves1 - small * (moves2 - small * moves3));",
                f"value[c] -= {first} * inverse * moves;",
                f"{first} *= fades1;",
                f"{second} *= fades2;",
            ],
        )
        yield "} else {"
        yield f"for (int j = last[i] + 1; j <= {until}; j++) {{"
        yield from each_number(
            width,
            [
                f"{first} *= (real)0.9;",
                f"root_[c] *= (real){SECOND**0.5!r};",
                f"value[c] -= {self.rate}{shrink} * slope[{self.since}j] * {first} "
                f"/ (root_[c] * root[{self.since}j] + (real)1e-8);",
            ],
        )
        yield "}"
        yield from each_number(width, [f"{second} *= fades2;"])
        yield "}"
