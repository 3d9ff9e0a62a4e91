"""Kernels on a GPU: compiled by NVRTC, which comes with torch, and launched through the driver.

The module reads a `KernelSource` and gives a `GpuKernel`.
"""

import ctypes
from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from pathlib import Path

import torch

from fedrec.errors import NoCompilerError
from fedrec.native.cache import loaded_kernel
from fedrec.native.source import KernelSource, hash_of

_FLAGS = ("--use_fast_math", "--std=c++17", "-default-device")
_MOST_CHARACTERS = 400
_FIXED_BYTES = 48 << 10
"""The bytes of shared memory that a kernel may declare as arrays; the rest is dynamic."""
_POOL_BYTES = 8
"""The driver's constant for the dynamic shared memory of a kernel."""


def memory_of_block(device: torch.device) -> int:
    """Bytes of dynamic shared memory available to a block, after its kernel's static part."""
    properties = torch.cuda.get_device_properties(device)
    # Torch's annotations and AMD's devices lack this attribute.
    most: int = getattr(properties, "shared_memory_per_block_optin", properties.shared_memory_per_block)
    return max(0, most - _FIXED_BYTES)


class GpuKernel:
    """A compiled kernel, called with the number of work items and its packed arguments."""

    def __init__(self, binary: Path, name: str, lanes: int, device: torch.device, pool: int = 0) -> None:
        self._lanes, self._device, self._pool = lanes, device, pool
        """The threads of a block, the GPU, and the bytes of dynamic shared memory of a block."""
        self._processors = torch.cuda.get_device_properties(device).multi_processor_count
        """The number of processors of the GPU."""
        # Counters of taken work items and of ended blocks; every call resets them to 0.
        # The driver loads into torch's context, which exists from here on.
        self._counts = torch.zeros(2, dtype=torch.int64, device=device)
        self._place = ctypes.c_uint64(self._counts.data_ptr())
        self._number = self._counts.get_device()
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        image = binary.read_bytes()
        _check(_driver().cuModuleLoadData(ctypes.byref(module), image), f"load {name}")
        _check(
            _driver().cuModuleGetFunction(ctypes.byref(self._function), module, name.encode()), f"find {name}"
        )
        if pool:
            _check(_driver().cuFuncSetAttribute(self._function, _POOL_BYTES, pool), f"give {name} its memory")
        blocks = ctypes.c_int()
        _check(
            _driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(
                ctypes.byref(blocks), self._function, lanes, ctypes.c_size_t(pool)
            ),
            f"fit {name}",
        )
        self._resident = max(1, blocks.value) * self._processors
        """The most blocks that run at the same time."""

    def workers(self, items: int) -> int:
        """The number of blocks for `items` work items: as many as fit on the device at once."""
        return max(1, min(self._resident, items))

    def run(self, items: int, arguments: "ctypes.Array[ctypes.c_uint64]") -> None:
        """Launch on torch's stream. Calls of one kernel do not overlap."""
        # Switching devices takes as long as a launch, and is rarely needed.
        inside = torch.cuda.current_device() == self._number
        with nullcontext() if inside else torch.cuda.device(self._device):
            count = ctypes.c_longlong(items)
            pointers = (ctypes.c_void_p * 3)(
                ctypes.addressof(arguments), ctypes.addressof(count), ctypes.addressof(self._place)
            )
            stream = ctypes.c_void_p(torch._C._cuda_getCurrentRawStream(self._number))
            shape = (self.workers(items), 1, 1, self._lanes, 1, 1, self._pool)
            result = _driver().cuLaunchKernel(self._function, *shape, stream, pointers, None)
            _check(result, "launch a kernel")


@cache
def gpu_kernel(source: KernelSource, lanes: int, device: torch.device) -> GpuKernel:
    """The kernel of a source; raise `NoCompilerError` if NVRTC is missing or rejects it."""
    text = source.for_gpu(lanes)
    major, minor = torch.cuda.get_device_capability(device)
    exact = ("--fmad=false",) if source.double else ()
    flags = (*_FLAGS, *exact, f"--gpu-architecture=sm_{major}{minor}")
    name = f"{source.name}-{hash_of(text, *flags, str(torch.version.cuda))}.cubin"
    return loaded_kernel(
        name,
        text,
        lambda path: _compile(text, flags, path),
        lambda path: GpuKernel(path, source.name, lanes, device, source.pool_bytes),
    )


def _compile(text: str, flags: tuple[str, ...], path: Path) -> None:
    nvrtc = _nvrtc()
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None)
    options = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
    try:
        if nvrtc.nvrtcCompileProgram(program, len(flags), options):
            raise NoCompilerError(f"NVRTC does not compile a kernel: {_log(program)[:_MOST_CHARACTERS]}")
        size = ctypes.c_size_t()
        nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
        binary = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetCUBIN(program, binary)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    path.write_bytes(binary.raw)


def _log(program: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    _nvrtc().nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    _nvrtc().nvrtcGetProgramLog(program, log)
    return log.value.decode(errors="replace").strip()


@cache
def _nvrtc() -> ctypes.CDLL:
    for path in _nvrtc_places():
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    raise NoCompilerError("NVRTC was not found; install torch for CUDA, which contains it")


def _nvrtc_places() -> Iterator[str]:
    """Candidate paths of the library: torch, its dependencies, the system's library path."""
    major = str(torch.version.cuda).partition(".")[0]
    packages = Path(torch.__file__).parents[1]
    for folder in (packages / "torch" / "lib", *sorted(packages.glob("nvidia/*/lib"))):
        for path in sorted(folder.glob(f"libnvrtc.so.{major}*")):
            yield str(path)
    yield f"libnvrtc.so.{major}"
    yield "libnvrtc.so"


@cache
def _driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise NoCompilerError(f"the driver of the GPU was not found: {error}") from None


def _check(status: int, what: str) -> None:
    """Raise `RuntimeError` if a call of the driver failed."""
    if status:
        name = ctypes.c_char_p()
        _driver().cuGetErrorString(status, ctypes.byref(name))
        raise RuntimeError(f"the GPU cannot {what}: {(name.value or b'').decode()}")
