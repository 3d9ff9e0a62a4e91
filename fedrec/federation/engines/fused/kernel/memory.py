"""The memory of a kernel: arrays of a client, of its mini-batches and of its rows.

The module reads names and sizes of arrays, and gives their declarations. An array goes to shared memory, or
to the stack of a CPU, while these have room. Otherwise it spills to the scratch memory of the worker.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from fedrec.federation.engines.fused.device import Device

_ALIGNED = 64
"""Arrays in scratch memory begin at a multiple of this number of bytes."""


@dataclass
class Scratch:
    """The size of a worker's scratch memory."""

    per_sample: int = 0
    """Bytes for each sample of a mini-batch."""
    per_row: int = 0
    """Bytes for each row of a client."""
    fixed: int = 0
    """Bytes of arrays whose size is known when the kernel is written."""
    arrays: int = 0
    """The number of arrays, each of which may lose bytes to alignment."""

    def bytes(self, batch: int, rows: int) -> int:
        """The bytes that a worker needs for mini-batches of `batch` samples and clients of `rows` rows."""
        return self.per_sample * batch + self.per_row * rows + self.fixed + _ALIGNED * (self.arrays + 1)


class KernelMemory:
    """Declares arrays, and counts the bytes that they need."""

    def __init__(self, target: Device, *, double: bool, batch: int) -> None:
        self.scratch = Scratch()
        """The scratch memory that the arrays need so far."""
        self.near: set[str] = set()
        """The arrays of samples in shared memory, on a GPU."""
        self._gpu = target.is_gpu
        self._double = double
        self._batch = batch
        """The samples of a mini-batch."""
        self._fast_left = target.fast_bytes
        """Bytes of fast memory that no array has yet."""

    def fixed(self, name: str, size: int) -> Iterator[str]:
        """Declare an array of `size` numbers: in fast memory if it fits, else it spills."""
        count = size * (8 if self._double else 4)
        if count <= self._fast_left:
            self._fast_left -= count
            yield f"SHARED real {name}[{size}];"
            return
        self.scratch.fixed += count
        self.scratch.arrays += 1
        yield f"real* const {name} = (real*)free_; free_ += {_rounded(f'sizeof(real) * {size}')};"

    def per_sample(self, kind: str, name: str, size: int) -> Iterator[str]:
        """Declare an array of `size` numbers for each sample of a mini-batch; on a CPU it always spills."""
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
        """Declare an array of `size` numbers for each row in scratch memory; `rows` is their number in C."""
        self.scratch.per_row += size * (8 if kind == "real" and self._double else 4)
        self.scratch.arrays += 1
        taken = _rounded(f"sizeof({kind}) * {size} * {rows}")
        yield f"{kind}* const {name} = ({kind}*)free_; free_ += {taken};"


def _rounded(size: str) -> str:
    return f"({size} + {_ALIGNED - 1}) / {_ALIGNED} * {_ALIGNED}"
