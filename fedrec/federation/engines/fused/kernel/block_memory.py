"""The memory of blocks of samples on a GPU, and the statements that begin a block.

The module reads the arrays of all steps (`Local`), the number of lanes and a `Device`. It gives statements to
the kernel: declarations, loops over blocks, loads and waits.
"""

from collections.abc import Iterator, Sequence

from fedrec.federation.engines.fused.backend.cuda.blocks import Local, places, samples_of_block
from fedrec.federation.engines.fused.device import Device
from fedrec.federation.engines.fused.kernel.memory import KernelMemory


class BlockMemory:
    """The memory of blocks, which all steps of a fit use: in shared memory, or spilled if it is too large."""

    def __init__(self, of_steps: Sequence[Sequence[Local]], *, lanes: int, size: int, target: Device) -> None:
        """Choose the places of arrays and the samples of a block.

        `of_steps` has the arrays of each step; a number has `size` bytes.
        """
        self._of_steps = of_steps
        """The arrays of each step."""
        placed = [places(arrays) for arrays in of_steps]
        self._places = {name: place for given, _ in placed for name, place in given.items()}
        """The place of each array, in numbers per sample."""
        width = max(1, *(width for _, width in placed))
        most, given = target.bytes_per_lane * lanes, target.block_bytes
        fitting = samples_of_block(width, size, most if given is None else min(most, given), target)
        self._samples = fitting or target.distant_samples
        """The most samples of a block."""
        self._numbers = width * self._samples
        """The count of numbers of the memory."""
        self.pool_bytes = self._numbers * size if fitting else 0
        """Bytes of dynamic shared memory that a launch gives to each client; 0 if the memory spills."""

    def declared(self, memory: KernelMemory) -> Iterator[str]:
        """Statements that declare the memory and its arrays."""
        if self.pool_bytes:
            yield f"POOL(pool, {self.pool_bytes});"
            yield "real* const block = (real*)pool;"
        else:
            yield from memory.fixed("block", self._numbers)
        for name, place in self._places.items():
            yield f"real* const {name} = block + {place * self._samples};"

    def opened(self, step: int, stage: int, memory: KernelMemory) -> Iterator[str]:
        """Open a loop over blocks of nearly equal size, and start to load the inputs of a block."""
        yield f"const int blocks_ = (n + {self._samples - 1}) / {self._samples};"
        yield "const int each_ = ((n + blocks_ - 1) / blocks_ + 3) / 4 * 4;"
        yield "for (int i0 = 0; i0 < n; i0 += each_) {"
        yield "const int i1 = n - i0 < each_ ? n : i0 + each_;"
        arrays = self._fetched_by(step, stage)
        for phase in sorted({each.reads for each in arrays}):
            yield from self._fetched([each for each in arrays if each.reads == phase], memory)
            yield "FETCH_MORE();"

    def has_room_for(self, rows: Sequence[Local], samples: int) -> bool:
        """Whether the rows of `samples` samples fit into the shared memory of blocks."""
        fits = sum(each.stride for each in rows) * samples <= self._numbers
        return fits and bool(self.pool_bytes) and all(each.count % 4 == 0 for each in rows)

    def of_all_lanes(self, rows: Sequence[Local], lanes: int, memory: KernelMemory) -> Iterator[str]:
        """Open a loop that takes one sample per lane, and load the rows of these samples together.

        The rows use the memory of blocks, so no other block may be open.
        """
        yield "{"
        first = 0
        for each in rows:
            yield f"real* const {each.name} = block + {first};"
            first += each.stride * lanes
        yield "for (int i0 = 0; i0 < n; i0 += LANES) {"
        yield "const int i1 = n - i0 < LANES ? n : i0 + LANES;"
        yield from self._fetched(rows, memory)
        yield from ("FETCH_MORE();", "FETCHED_BUT(0);", "SYNC();")

    def waited(self, step: int, stage: int, phase: int) -> Iterator[str]:
        """Wait for the loads whose arrays `phase` is the first to read."""
        phases = {each.reads for each in self._fetched_by(step, stage)}
        if phase in phases:
            yield f"FETCHED_BUT({sum(each > phase for each in phases)});"
            yield "SYNC();"

    def _fetched_by(self, step: int, stage: int) -> list[Local]:
        return [each for each in self._of_steps[step] if each.stage == stage and each.source]

    def _fetched(self, arrays: Sequence[Local], memory: KernelMemory) -> Iterator[str]:
        """Statements that load the entries of a block's samples; arrays of equal width share a loop."""
        for fours in sorted({each.count // 4 for each in arrays}):
            yield f'_Pragma("unroll 2") for (int e = LANE; e < (i1 - i0) * {fours}; e += LANES) {{'
            yield f"const int j = i0 + e / {fours}, k = e % {fours} * 4;"
            for each in arrays:
                if each.count // 4 == fours:
                    # Only loads from global into shared memory can be asynchronous.
                    far = self.pool_bytes and each.source not in memory.near
                    how = "fetch_four" if far else "copy_four"
                    yield f"{how}({each.name} + (j - i0) * {each.stride} + k, {_row(each)} + k);"
            yield "}"


def _row(array: Local) -> str:
    """The address of the entry of sample `j` in the array or table that a block loads from."""
    row = f"(integer){array.slots}[j]" if array.slots else "j"
    return f"{array.source} + {row} * {array.count}"
