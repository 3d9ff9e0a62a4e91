"""Blocks of samples that lanes of a GPU work on together, in memory that is as near as registers' neighbours.

A stage with products of samples goes over a mini-batch block by block. What a block needs of elsewhere is
fetched at once, what it makes of that stays there, and arrays that are not needed at the same time lie in the
same place. In a block a turn has what waits for nothing of that turn; lanes meet behind each.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fedrec.federation.engines.fused.arrays import KernelMemory

_BYTES_PER_LANE = 352
"""Of a block's memory on the GPU, for each of its lanes: with all lanes a block has a processor's memory."""
_PARTS_PER_LANE = 16
"""Numbers of a sum over samples that a lane leaves for others to add up."""
_MOST = 256
_STEP = 16
"""Samples of a block at most, and what they are a multiple of."""
_FEWEST = 32
"""Samples of a block that finds no room near its lanes."""


_APART, _EVEN = 4, 8
"""Where rows of numbers would begin in few of the memory's banks, they are moved by so many numbers."""


@dataclass(frozen=True)
class Local:
    """An array of a block: numbers of a sample, its stage, and the turns from and up to which it is needed.

    `source` is where it is fetched from when the block begins: an array of all samples, or a table, of which
    `slots` tells each sample's row.
    """

    name: str
    count: int
    stage: int
    born: int
    dies: int
    source: str = ""
    slots: str = ""

    @property
    def stride(self) -> int:
        """How far the numbers of a sample are from those of the next one."""
        return stride(self.count)


def stride(count: int) -> int:
    """How far samples of so many numbers are apart: neighbours are fetched at once if banks are different."""
    return count + _APART if count % _EVEN == 0 else count


def places(arrays: Iterable[Local]) -> tuple[dict[str, int], int]:
    """Where each array begins, in numbers of a sample, and how many there are of one in all.

    Arrays of different stages, or of one that are not needed at the same time, may share a place.
    """
    given: dict[str, int] = {}
    alive: list[Local] = []
    stage, width = -1, 0
    for array in sorted(arrays, key=lambda each: (each.stage, each.born)):
        alive = [each for each in alive if each.dies >= array.born] if array.stage == stage else []
        stage = array.stage
        given[array.name] = _first_gap(array.stride, [(given[each.name], each.stride) for each in alive])
        alive.append(array)
        width = max(width, given[array.name] + array.stride)
    return given, width


def _first_gap(count: int, taken: Sequence[tuple[int, int]]) -> int:
    place = 0
    for first, length in sorted(taken):
        if first - place >= count:
            break
        place = max(place, first + length)
    return place


def samples_of_block(width: int, size: int, budget: int) -> int:
    """How many samples a block may have, of so many numbers of `size` bytes; 0 where there is no room."""
    return max(0, min(_MOST, budget // (width * size) // _STEP * _STEP))


class BlockMemory:
    """The memory of blocks of samples, which all steps of a fit share: near the lanes, if it has room."""

    def __init__(
        self, of_steps: Sequence[Sequence[Local]], *, lanes: int, size: int, near: int | None
    ) -> None:
        """Numbers have `size` bytes; a block can be given `near` bytes, None for an H200's."""
        self._of_steps = of_steps
        placed = [places(arrays) for arrays in of_steps]
        self._places = {name: place for given, _ in placed for name, place in given.items()}
        width = max(1, *(width for _, width in placed))
        self._parts = _PARTS_PER_LANE * lanes
        most = _BYTES_PER_LANE * lanes
        room = (most if near is None else min(most, near)) - self._parts * size
        fitting = samples_of_block(width, size, room)
        self._samples = fitting or _FEWEST
        self._numbers = self._parts + width * self._samples
        self.pool_bytes = self._numbers * size if fitting else 0
        """What a launch gives a block for it."""

    def declared(self, memory: KernelMemory) -> Iterator[str]:
        """Statements that declare its arrays, and where lanes leave parts of sums."""
        if self.pool_bytes:
            yield f"POOL(pool, {self.pool_bytes});"
            yield "real* const parts = (real*)pool;"
        else:
            yield from memory.fixed("parts", self._numbers)
        for name, place in self._places.items():
            yield f"real* const {name} = parts + {self._parts + place * self._samples};"

    def opened(self, step: int, stage: int, memory: KernelMemory) -> Iterator[str]:
        """The opening of a loop over blocks of a mini-batch, of about the same size each."""
        yield f"const int blocks_ = (n + {self._samples - 1}) / {self._samples};"
        yield "const int each_ = ((n + blocks_ - 1) / blocks_ + 3) / 4 * 4;"
        yield "for (int i0 = 0; i0 < n; i0 += each_) {"
        yield "const int i1 = n - i0 < each_ ? n : i0 + each_;"
        arrays = [each for each in self._of_steps[step] if each.stage == stage and each.source]
        for array in arrays:
            # What is on its way comes from far and goes near.
            far = self.pool_bytes and array.source not in memory.near
            yield from _fetched(array, "fetch_four" if far else "copy_four")
        if arrays:
            yield "FETCHED();"
            yield "SYNC();"


def _fetched(array: Local, how: str) -> Iterator[str]:
    """Statements that fetch what a block needs of an array."""
    fours = array.count // 4
    row = f"(integer){array.slots}[j]" if array.slots else "j"
    there = f"{array.source} + {row} * {array.count} + k"
    yield f"for (int e = LANE; e < (i1 - i0) * {fours}; e += LANES) {{"
    yield f"const int j = i0 + e / {fours}, k = e % {fours} * 4;"
    yield f"{how}({array.name} + (j - i0) * {array.stride} + k, {there});"
    yield "}"
