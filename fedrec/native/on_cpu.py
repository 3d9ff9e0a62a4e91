"""Kernels on the CPU: compiled by the machine's C compiler, run by as many threads as torch has."""

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
"""The environment variable that names flags of the compiler behind our own: `-O1` compiles sooner."""
_FLAGS = (
    # Sums may be taken in another order than they are written in, by vectors; what is no number stays none.
    "-O2", "-std=c11", "-shared", "-fPIC", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros",
    "-fassociative-math", "-fopenmp-simd", "-w",
)  # fmt: skip
_OF_GCC = ("-ftree-vectorize", "-fvect-cost-model=dynamic", "-fpeel-loops")
"""Vectors and short loops as `-O3` has them, in less time to compile; clang has them without flags."""
_SOON = ("-O0",)
"""For kernels that run for a moment."""
_NATIVE = "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"
_COMPILERS = ("cc", "gcc", "clang")


class CpuKernel:
    """A compiled kernel: called with the number of pieces of work and its packed arguments."""

    def __init__(self, library: Path, name: str) -> None:
        try:
            self._function = getattr(ctypes.CDLL(str(library)), name)
        except AttributeError as error:
            raise OSError(f"it is no library of this kernel: {error}") from error
        self._function.restype = None

    def workers(self, items: int) -> int:
        """Number of threads for `items` work items."""
        return max(1, min(torch.get_num_threads(), items))

    def run(self, items: int, arguments: "ctypes.Array[ctypes.c_uint64]") -> None:
        """Do the work, and return when all of it is done."""
        following, workers = ctypes.c_longlong(0), self.workers(items)

        def work(worker: int) -> None:
            self._function(
                arguments, ctypes.c_longlong(items), ctypes.byref(following), ctypes.c_longlong(worker)
            )

        if workers == 1:
            work(0)
            return
        with ThreadPoolExecutor(workers) as pool:
            # A thread that fails is heard of.
            list(pool.map(work, range(workers)))


@cache
def cpu_kernel(source: KernelSource, soon: bool = False) -> CpuKernel:
    """The kernel of a source, with `soon` one that is compiled in less time.

    Raise `NoCompilerError` where there is no compiler, or it does not take it.
    """
    rounding = "-ffp-contract=fast" if source.rounds_once else "-ffp-contract=off"
    text, command = source.for_cpu(), (*compiler(), rounding, *flags(), *(_SOON if soon else ()))
    name = f"{source.name}-{hash_of(text, *command, _machine())}.so"
    return loaded_kernel(
        name, text, lambda path: _compile(command, text, path), lambda path: CpuKernel(path, source.name)
    )


def flags() -> tuple[str, ...]:
    """Compiler command of kernels."""
    vectors = () if "clang" in _version() else _OF_GCC
    return (*_FLAGS, *vectors, _NATIVE, *os.environ.get(FLAGS, "").split())


def compilation() -> str:
    """Cache key of kernels in addition to their text: the compiler, its flags and the machine."""
    try:
        return "\n".join([*compiler(), *flags(), _machine()])
    except NoCompilerError:
        return "no compiler"


@cache
def compiler() -> tuple[str, ...]:
    """The command of a C compiler: the machine's, or that of the package `ziglang`."""
    for name in _COMPILERS:
        if (found := shutil.which(name)) is not None:
            return (found,)
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    raise NoCompilerError(
        "there is no C compiler (cc, gcc, clang); install one, or the package ziglang, which holds one"
    )


def _compile(command: tuple[str, ...], text: str, path: Path) -> None:
    """Compile a text; the compiler's other outputs go to the folder of `path`, too."""
    output = [*command, "-x", "c", "-o", str(path), "-", "-lm"]
    compiler_output(output, text, TMPDIR=str(path.parent))


@cache
def _machine() -> str:
    """Meaning of `native` on this machine, as far as compiled code depends on it."""
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.is_file() else []
    facts = [line for line in lines if line.startswith(("flags", "Features", "model name", "CPU part"))]
    return "\n".join([platform.machine(), _version(), *sorted(set(facts))])


@cache
def _version() -> str:
    """Version line of the compiler."""
    return compiler_output([*compiler(), "--version"]).partition("\n")[0]
