"""Blocks of samples that lanes of a GPU work on together, in memory near to them: arrays, and their places.

A stage with products of samples goes over a mini-batch block by block. What a block needs of elsewhere is
fetched at once, what it makes of that stays there, and arrays that are not needed at the same time lie in the
same place. In a block a phase has what waits for nothing of that phase; lanes meet behind each.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedrec.federation.engines.fused.device import H200, Device

_APART, _EVEN = 4, 8
"""Where rows of numbers would begin in few of the memory's banks, they are moved by so many numbers."""


@dataclass(frozen=True)
class Local:
    """An array of a block: numbers of a sample, its stage, and the phases from and up to which it is needed.

    `source` is where it is fetched from when the block begins: an array of all samples, or a table, of which
    `slots` tells each sample's row. It is waited for in the phase that `reads` it first.
    """

    name: str
    count: int
    stage: int
    born: int
    dies: int
    source: str = ""
    slots: str = ""
    reads: int = 1

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


def samples_of_block(width: int, size: int, budget: int, target: Device = H200) -> int:
    """How many samples a block may have, of so many numbers of `size` bytes; 0 where there is no room."""
    step = target.samples_step
    return max(0, min(target.block_samples, budget // (width * size) // step * step))
