"""A kernel on one device: compiled when it is made, called on tensors and numbers.

The module reads a `KernelSource` and a device. It gives a `Kernel`, for which tensors and numbers are
arguments by name.
"""

import ctypes
import logging
import struct
from functools import cache
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from fedrec.errors import NoCompilerError
from fedrec.native import on_cpu, on_gpu
from fedrec.native.source import KernelSource

Argument: TypeAlias = Tensor | int | float
"""A value for a parameter of a kernel; a tensor is passed by its address."""

logger = logging.getLogger(__name__)


class AnyKernel(Protocol):
    """A compiled kernel that executes work items on tensors and numbers."""

    def workers(self, items: int) -> int:
        """Maximum number of workers for `items` work items; each worker has its own scratch memory."""

    def __call__(self, items: int, /, **arguments: Argument) -> None:
        """Do `items` pieces of work; arguments by the names of the kernel's parameters."""


class Kernel(AnyKernel):
    """A compiled kernel, with the names and order of its parameters."""

    def __init__(
        self, source: KernelSource, device: torch.device, lanes: int = 256, *, soon: bool = False
    ) -> None:
        """Compile for the device; raise `NoCompilerError` if that fails.

        `lanes` is the number of threads of a GPU block. With `soon`, a CPU kernel compiles faster and runs
        slower.
        """
        self.source = source
        self._kernel = (
            on_cpu.cpu_kernel(source, soon)
            if device.type == "cpu"
            else on_gpu.gpu_kernel(source, lanes, device)
        )

    def workers(self, items: int) -> int:
        """Maximum number of workers for `items` work items; each worker has its own scratch memory."""
        return self._kernel.workers(items)

    def __call__(self, items: int, /, **arguments: Argument) -> None:
        """Do `items` pieces of work; arguments by the names of the kernel's parameters."""
        if items:
            self._kernel.run(items, packed(self.source, arguments))


@cache
def kernel_or_none(source: KernelSource, device: torch.device, lanes: int = 256) -> Kernel | None:
    """The kernel of a source; None if it cannot be compiled for the device, which is logged once."""
    try:
        return Kernel(source, device, lanes)
    except NoCompilerError as error:
        _say(str(error))
        return None


def packed(source: KernelSource, arguments: dict[str, Argument]) -> "ctypes.Array[ctypes.c_uint64]":
    """The arguments of a kernel, eight bytes each, in the order of its parameters."""
    words = []
    for kind, name in source.parameters:
        value = arguments[name]
        if isinstance(value, Tensor):
            assert value.is_contiguous()
            words.append(value.data_ptr())
        else:
            words.append(_bits(value, kind))
    return (ctypes.c_uint64 * max(1, len(words)))(*words)


@cache
def _say(reason: str) -> None:
    logger.warning("fedrec runs without compiled kernels, so rounds are slower: %s", reason)


def _bits(value: float, kind: str) -> int:
    """The eight bytes of a number."""
    if kind == "double":
        (bits,) = struct.unpack("<Q", struct.pack("<d", value))
        return int(bits)
    return int(value) & 0xFFFFFFFFFFFFFFFF
