"""Kernels as a GPU runs them, without one: the text for the GPU, with a thread of the CPU for every lane.

Lanes run in whatever order the machine lets them, so that a missing SYNC() or an unsafe count has its chance to
show. One block does all the work.
"""

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest
import torch

from fedrec.native.kernel import AnyKernel, Argument, packed
from fedrec.native.source import KernelSource

_CUDA = r"""
#include <math.h>
#include <pthread.h>
#define __device__ static
#define __forceinline__ inline
#define __shared__ static
#define __align__(bytes)
#define POOL(name, bytes) static char name[bytes] __attribute__((aligned(16)))
#define __global__
#define __launch_bounds__(lanes)
struct double2 { double x, y; };
struct float2 { float x, y; };
static float2 make_float2(float x, float y) { return {x, y}; }
struct float4 { float x, y, z, w; };
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
struct place { unsigned x; };
static thread_local place threadIdx;
static place blockIdx, gridDim = {1};
static pthread_barrier_t barrier;
static void __syncthreads() { pthread_barrier_wait(&barrier); }
template <class T> static T atomicAdd(T* p, T x) { return __atomic_fetch_add(p, x, __ATOMIC_SEQ_CST); }
template <class T> static T atomicOr(T* p, T x) { return __atomic_fetch_or(p, x, __ATOMIC_SEQ_CST); }
template <class T> static T atomicExch(T* p, T x) { return __atomic_exchange_n(p, x, __ATOMIC_SEQ_CST); }
static int __popc(unsigned x) { return __builtin_popcount(x); }
static pthread_barrier_t warp_barriers[32];
/* Lanes of a warp give each other numbers; other warps may do something else. */
template <class T> static T of_lane(T x, unsigned lane) {
  static T cell[1024];
  cell[threadIdx.x] = x;
  pthread_barrier_wait(warp_barriers + threadIdx.x / 32);
  T other = cell[lane];
  pthread_barrier_wait(warp_barriers + threadIdx.x / 32);
  return other;
}
template <class T> static T __shfl_xor_sync(unsigned, T x, int apart) { return of_lane(x, threadIdx.x ^ apart); }
template <class T> static T __shfl_up_sync(unsigned, T x, int apart) {
  return of_lane(x, (threadIdx.x & 31) >= (unsigned)apart ? threadIdx.x - apart : threadIdx.x);
}
"""
_BLOCK = r"""
static const arguments* all;
static integer all_items;
static word64 counts[2];
static void* lane(void* number) {
  threadIdx.x = (unsigned)(size_t)number;
  NAME(*all, all_items, counts);
  return 0;
}
extern "C" void run_block(const arguments* given, integer items) {
  pthread_t lanes[LANES];
  all = given, all_items = items;
  pthread_barrier_init(&barrier, 0, LANES);
  for (int i = 0; i < LANES / 32; i++) pthread_barrier_init(warp_barriers + i, 0, 32);
  for (size_t i = 0; i < LANES; i++) pthread_create(&lanes[i], 0, lane, (void*)i);
  for (int i = 0; i < LANES; i++) pthread_join(lanes[i], 0);
  pthread_barrier_destroy(&barrier);
  for (int i = 0; i < LANES / 32; i++) pthread_barrier_destroy(warp_barriers + i);
}
"""


class LanesKernel(AnyKernel):
    """A kernel's text for the GPU, run by one block of `lanes` threads of the CPU; a test without a compiler
    of C++ is skipped."""

    def __init__(self, source: KernelSource, lanes: int = 64) -> None:
        self.source = source
        self._run = _compiled(source, lanes).run_block

    def workers(self, items: int) -> int:  # noqa: ARG002 - see override
        return 1

    def __call__(self, items: int, /, **arguments: Argument) -> None:
        if items:
            self._run(packed(self.source, arguments), ctypes.c_longlong(items))


class CudaCompiler:
    """NVIDIA's compiler, where it is installed: it takes or refuses a kernel's text for an H100."""

    def __init__(self) -> None:
        found = shutil.which("nvcc")
        if found is None:
            pytest.skip("nvcc is not installed: whether a GPU takes a kernel is not tested here")
        # What is refused is refused however little is made of the rest, which takes most of the time.
        little = ("-Xcicc", "-O1", "-Xptxas", "-O1")
        self._command = [found, "-arch=sm_90", "-cubin", "-w", "-std=c++17", *little]

    def refusal(self, source: KernelSource, lanes: int = 256) -> str:
        """What it says against a kernel; nothing if it takes it."""
        with tempfile.NamedTemporaryFile("w", suffix=".cu") as file:
            file.write(source.for_gpu(lanes))
            file.flush()
            command = [*self._command, "-x", "cu", "-o", "/dev/null", file.name]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
        return result.stdout + result.stderr if result.returncode else ""


def with_two_threads(kernel_call):
    """What a call gives where torch, and so a kernel, has two threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        return kernel_call()
    finally:
        torch.set_num_threads(before)


@cache
def _compiled(source: KernelSource, lanes: int) -> ctypes.CDLL:
    found = shutil.which("g++")
    if found is None:
        pytest.skip("g++ is not installed: the lanes of a GPU cannot be played by threads")
    folder = Path(tempfile.mkdtemp(prefix="fedrec-lanes-"))
    text, library = folder / "lanes.cpp", folder / "lanes.so"
    text.write_text(_CUDA + source.for_gpu(lanes) + _BLOCK.replace("NAME", source.name))
    # Compiling takes longest, and lanes mostly wait for each other.
    command = [found, "-O0", "-w", "-std=c++17", "-shared", "-fPIC", "-pthread", "-o", library, text]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(library))
    shutil.rmtree(folder)
    return loaded
