"""The memory of blocks of samples that lanes of a GPU work on together, and how a block begins."""

from collections.abc import Iterator, Sequence

from fedrec.federation.engines.fused.arrays import KernelMemory
from fedrec.federation.engines.fused.gpu_blocks import Local, places, samples_of_block

_BYTES_PER_LANE = 352
"""Of a block's memory on the GPU, for each of its lanes: with all lanes a block has a processor's memory."""
_PARTS_PER_LANE = 16
"""Numbers of a sum over samples that a lane leaves for others to add up."""
_FEWEST = 32
"""Samples of a block that finds no room near its lanes."""


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
