"""The arrays of blocks of samples in the shared memory of a GPU, and their places there.

The module reads the phases that need each array, and gives places and the size of a block. A stage with
products of samples takes a mini-batch block by block. A block loads its inputs from other stages at its start
and keeps its results in shared memory. Arrays that are not needed at the same time share a place. All lanes
synchronise after each phase.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedrec.federation.engines.fused.device import H200, Device

_APART, _EVEN = 4, 8
"""Entries of a multiple of `_EVEN` numbers get `_APART` more, so that they begin in different banks."""


@dataclass(frozen=True)
class Local:
    """An array with one entry per sample of a block."""

    name: str
    """Its name in C."""
    count: int
    """The numbers of an entry."""
    stage: int
    """The stage of the block."""
    born: int
    """The phase that writes it; 0 if it is loaded when the block begins."""
    dies: int
    """The last phase that reads it."""
    source: str = ""
    """The table, or the array of all samples, that it is loaded from; empty if the block computes it."""
    slots: str = ""
    """The array with the row of each sample, if the source is a table."""
    reads: int = 1
    """The first phase that reads it, which waits until it is loaded."""

    @property
    def stride(self) -> int:
        """The distance between the entries of two samples, in numbers."""
        return stride(self.count)


def stride(count: int) -> int:
    """The distance between entries of `count` numbers: lanes load neighbours at once from different banks."""
    return count + _APART if count % _EVEN == 0 else count


def places(arrays: Iterable[Local]) -> tuple[dict[str, int], int]:
    """The place of each array, in numbers per sample, and the numbers per sample of all places.

    Arrays of different stages, or of phases that do not overlap, may share a place.
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
    """The samples of a block with `width` numbers of `size` bytes each in `budget` bytes; 0 if none fit."""
    step = target.samples_step
    return max(0, min(target.block_samples, budget // (width * size) // step * step))
