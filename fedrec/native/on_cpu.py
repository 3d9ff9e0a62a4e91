"""Kernels on a CPU: compiled by the machine's C compiler, run by torch's number of threads.

The module reads a `KernelSource` and gives a `CpuKernel`.
"""

import ctypes
import importlib.util
import os
import platform
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import torch

from fedrec.errors import NoCompilerError
from fedrec.native.cache import loaded_kernel
from fedrec.native.compiler_process import compiler_output
from fedrec.native.source import KernelSource, hash_of

FLAGS = "FEDREC_KERNEL_FLAGS"
"""The environment variable with further compiler flags: `-O1` compiles faster."""
_FLAGS = (
    # Vectors may change the order of sums. NaN stays NaN.
    "-O2", "-std=c11", "-shared", "-fPIC", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros",
    "-fassociative-math", "-fopenmp-simd", "-w",
)  # fmt: skip
_OF_GCC = ("-ftree-vectorize", "-fvect-cost-model=dynamic", "-fpeel-loops")
"""The vectorisation and unrolling of `-O3` with less compile time; clang needs no flags for them."""
_SOON = ("-O0",)
"""Flags for kernels that run only briefly."""
_NATIVE = "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"
"""The flag for code that uses all instructions of this machine."""
_COMPILERS = ("cc", "gcc", "clang")
"""The commands to look for, in this order."""


class CpuKernel:
    """A compiled kernel, called with the number of work items and its packed arguments."""

    def __init__(self, library: Path, name: str) -> None:
        try:
            self._function = getattr(ctypes.CDLL(str(library)), name)
        except AttributeError as error:
            raise OSError(f"the library does not contain this kernel: {error}") from error
        self._function.restype = None

    def workers(self, items: int) -> int:
        """Number of threads for `items` work items."""
        return max(1, min(torch.get_num_threads(), items))

    def run(self, items: int, arguments: "ctypes.Array[ctypes.c_uint64]") -> None:
        """Execute all work items, then return."""
        following, workers = ctypes.c_longlong(0), self.workers(items)

        def work(worker: int) -> None:
            self._function(
                arguments, ctypes.c_longlong(items), ctypes.byref(following), ctypes.c_longlong(worker)
            )

        if workers == 1:
            work(0)
            return
        with ThreadPoolExecutor(workers) as pool:
            # Raises the error of a thread that failed.
            list(pool.map(work, range(workers)))


@cache
def cpu_kernel(source: KernelSource, soon: bool = False) -> CpuKernel:
    """The kernel of a source; with `soon` it compiles faster and runs slower.

    Raise `NoCompilerError` if there is no compiler, or if it rejects the source.
    """
    rounding = "-ffp-contract=fast" if source.rounds_once else "-ffp-contract=off"
    text, command = source.for_cpu(), (*compiler(), rounding, *flags(), *(_SOON if soon else ()))
    name = f"{source.name}-{hash_of(text, *command, _machine())}.so"
    return loaded_kernel(
        name, text, lambda path: _compile(command, text, path), lambda path: CpuKernel(path, source.name)
    )


def flags() -> tuple[str, ...]:
    """The compiler flags of all kernels."""
    vectors = () if "clang" in _version() else _OF_GCC
    return (*_FLAGS, *vectors, _NATIVE, *os.environ.get(FLAGS, "").split())


def compilation() -> str:
    """The part of a cache key beside the text: the compiler, its flags and the machine."""
    try:
        return "\n".join([*compiler(), *flags(), _machine()])
    except NoCompilerError:
        return "no compiler"


@cache
def compiler() -> tuple[str, ...]:
    """The command of a C compiler: the machine's, or that of the package `ziglang`."""
    for name in _COMPILERS:
        if (path := shutil.which(name)) is not None:
            return (path,)
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    raise NoCompilerError(
        "there is no C compiler (cc, gcc, clang); install one, or the package ziglang, which contains one"
    )


def _compile(command: tuple[str, ...], text: str, path: Path) -> None:
    """Compile a text; the compiler's other outputs go to the folder of `path`, too."""
    output = [*command, "-x", "c", "-o", str(path), "-", "-lm"]
    compiler_output(output, text, TMPDIR=str(path.parent))


@cache
def _machine() -> str:
    """The meaning of `-march=native` on this machine, as far as compiled code depends on it."""
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.is_file() else []
    facts = [line for line in lines if line.startswith(("flags", "Features", "model name", "CPU part"))]
    return "\n".join([platform.machine(), _version(), *sorted(set(facts))])


@cache
def _version() -> str:
    """The first line that the compiler prints about its version."""
    return compiler_output([*compiler(), "--version"]).partition("\n")[0]
