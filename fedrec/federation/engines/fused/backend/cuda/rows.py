"""Loops over rows of tables on a GPU: a lane changes a few neighbouring numbers of a row at once.

The module reads the statements for the number `c` of a lane, and gives the loops around them. A lane loads
its numbers together, so it waits for memory only once.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fedrec.federation.engines.fused.adam import PAST, SECOND, TERMS

Arrays = Sequence[tuple[str, str]]
"""The parts of a row that a loop reads and writes: the name of a lane's numbers, the array of all rows."""


def lane_width(width: int) -> int:
    """The number of numbers of a row that a lane changes at once: 4, 2 or 1."""
    return 4 if width % 4 == 0 else 2 if width % 2 == 0 else 1


def over_rows(count: str, row: str, width: int, body: Iterable[str]) -> Iterator[str]:
    """A loop over `count` rows of a table; `row` is the current row, `k0` the lane's first number in it."""
    few = lane_width(width)
    each = width // few
    yield f"for (int e = LANE; e < {count} * {each}; e += LANES) {{"
    yield f"const int z = e / {each}, k0 = e % {each} * {few}, i = {row};"
    yield f"const integer place = (integer)i * {width} + k0;"
    yield from body
    yield "}"


def moved_by_lanes(parts: Arrays, width: int, body: Iterable[str]) -> Iterator[str]:
    """Statements that load a lane's numbers of a row, change them by `body`, and store them."""
    few = lane_width(width)
    for name, array in parts:
        yield f"real {name}[{few}];"
        yield f"load<{few}>({name}, {array} + place);"
    yield from body
    yield from (f"store<{few}>({array} + place, {name});" for name, array in parts)


def each_number(width: int, body: Iterable[str]) -> Iterator[str]:
    """A loop over the numbers of a lane: number `c` of the lane is number `k1` of the row."""
    yield f"UNROLL for (int c = 0; c < {lane_width(width)}; c++) {{"
    yield "const int k1 = k0 + c;"
    yield from body
    yield "}"


def gradient_of_samples(width: int, term: str, *, perhaps: bool) -> Iterator[str]:
    """Statements that sum `term` over the row's samples `s`; with `perhaps` a row may have none."""
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
    """Missed steps of a row by its moments alone: all at once, or one by one if a second moment is small."""

    number: int
    """The number of the optimiser step in the fit."""
    rate: str
    """The variable with the step's rate."""
    since: str
    """The text before a mini-batch that adds the mini-batches of earlier rounds; empty if there are none."""
    shrinks: bool
    """Whether the rate shrinks in every mini-batch."""

    def known(self, until: str) -> list[str]:
        """Statements that load the effect of the steps up to `until` on any number (see `adam.py`)."""
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
        """Statements that apply the missed steps to a lane's numbers.

        A warp waits for its slowest lane. So if one number is small, the lane takes single steps for all.
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
