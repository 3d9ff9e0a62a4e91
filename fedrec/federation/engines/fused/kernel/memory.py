"""The memory of a kernel: arrays of a client, of its mini-batches and of its rows."""

from collections.abc import Iterator
from dataclasses import dataclass

from fedrec.federation.engines.fused.device import Device

_ALIGNED = 64


@dataclass
class Scratch:
    """A worker's memory: arrays of so many bytes by mini-batch sample, by row, and of fixed size."""

    per_sample: int = 0
    per_row: int = 0
    fixed: int = 0
    arrays: int = 0

    def bytes(self, batch: int, rows: int) -> int:
        """What a worker needs."""
        return self.per_sample * batch + self.per_row * rows + self.fixed + _ALIGNED * (self.arrays + 1)


class KernelMemory:
    """Declares arrays, and counts what they take."""

    def __init__(self, target: Device, *, double: bool, batch: int) -> None:
        self.scratch = Scratch()
        self.near: set[str] = set()
        """Arrays of samples that lie in a block's memory on the GPU."""
        self._gpu = target.is_gpu
        self._double = double
        self._batch = batch
        self._fast_left = target.fast_bytes

    def fixed(self, name: str, size: int) -> Iterator[str]:
        """An array of known size: fast memory while there is any left."""
        count = size * (8 if self._double else 4)
        if count <= self._fast_left:
            self._fast_left -= count
            yield f"SHARED real {name}[{size}];"
            return
        self.scratch.fixed += count
        self.scratch.arrays += 1
        yield f"real* const {name} = (real*)free_; free_ += {_rounded(f'sizeof(real) * {size}')};"

    def per_sample(self, kind: str, name: str, size: int) -> Iterator[str]:
        """An array of so many numbers for each sample of a mini-batch."""
        width = 8 if kind == "real" and self._double else 4
        if self._gpu and size * width * self._batch <= self._fast_left:
            self._fast_left -= size * width * self._batch
            self.near.add(name)
            yield f"SHARED {kind} {name}[{size * self._batch}];"
            return
        self.scratch.per_sample += size * width
        self.scratch.arrays += 1
        taken = _rounded(f"sizeof({kind}) * {size} * batch")
        yield f"{kind}* const {name} = ({kind}*)free_; free_ += {taken};"

    def per_row(self, name: str, kind: str = "int", size: int = 1, rows: str = "rows") -> Iterator[str]:
        """An array of so many numbers for each of some `rows`."""
        self.scratch.per_row += size * (8 if kind == "real" and self._double else 4)
        self.scratch.arrays += 1
        taken = _rounded(f"sizeof({kind}) * {size} * {rows}")
        yield f"{kind}* const {name} = ({kind}*)free_; free_ += {taken};"


def _rounded(size: str) -> str:
    return f"({size} + {_ALIGNED - 1}) / {_ALIGNED} * {_ALIGNED}"
