"""A kernel on the device at hand: compiled when it is first asked for, called on tensors and numbers."""

import ctypes
import struct
from typing import TypeAlias

import torch
from torch import Tensor

from fedrec.native import on_cpu, on_gpu
from fedrec.native.source import Source

Argument: TypeAlias = Tensor | int | float


class Kernel:
    """A compiled kernel, with the names and order of its parameters."""

    def __init__(self, source: Source, device: torch.device, lanes: int = 256) -> None:
        """Raise `NoCompilerError` where it cannot be compiled for the device. `lanes` are a GPU block's threads."""
        self.source = source
        self._kernel = (
            on_cpu.compiled(source) if device.type == "cpu" else on_gpu.compiled(source, lanes, device)
        )

    def workers(self, items: int) -> int:
        """How many workers at most share `items` pieces of work: scratch memory is given by worker."""
        return self._kernel.workers(items)

    def __call__(self, items: int, **arguments: Argument) -> None:
        """Do `items` pieces of work; arguments by the names of the kernel's parameters."""
        packed = (ctypes.c_uint64 * max(1, len(self.source.parameters)))()
        for place, (kind, name) in enumerate(self.source.parameters):
            packed[place] = _bits(arguments[name], kind)
        if items:
            self._kernel.run(items, packed)


def _bits(value: Argument, kind: str) -> int:
    """The eight bytes of an argument."""
    if isinstance(value, Tensor):
        assert value.is_contiguous()
        return value.data_ptr()
    if kind == "double":
        (bits,) = struct.unpack("<Q", struct.pack("<d", value))
        return int(bits)
    return int(value) & 0xFFFFFFFFFFFFFFFF
