"""Kernels as text, and the preludes that turn one dialect of C into a program for the CPU or the GPU.

A kernel executes `items` independent work items. On a GPU a block of threads, called lanes, executes a work
item; on a CPU one thread does, as a block with one lane. This module turns the body of a kernel into the
whole program for a device. The body uses these names on both devices:

    item, worker     indices of the work item and of the worker; each worker has its own scratch memory
    LANE, LANES      index of the lane, and number of lanes in the block
    SYNC()           barrier of all lanes of the block
    SHARED           declares an array in shared memory of the block, aligned to 16 bytes
    POOL(p, bytes)   dynamic shared memory on a GPU: `pool_bytes` of the source, once per kernel
    SUM(x)           sum of x over all lanes, in a fixed order; all lanes must call it
    BEFORE(x)        exclusive prefix sum of the integer x over lanes; all lanes must call it
    TAKE(p, x)       atomic add of the integer x to *p; gives the old value
    SWAP(p, x)       atomic exchange of *p by x; gives the old value
    MARK(p, bits)    atomic or of bits into the word *p
    ONES(x)          population count of a word
    UNROLL           before a loop with few, constant iterations, so that its arrays become registers
    real             the floating-point type: float or double
    NATIVE_GPU       1 on a GPU, else 0
"""

import hashlib
from dataclasses import dataclass

_COMMON = """
typedef {real} real;
typedef long long integer;
typedef unsigned long long word64;
typedef unsigned int word32;
struct arguments {{ {fields} }};
"""
"""The types that every kernel uses, and the structure of its arguments."""

_ON_CPU = """
#include <math.h>
#include <stdint.h>
#include <string.h>
#define NATIVE_GPU 0
#define LANE 0
#define LANES 1
#define SYNC()
#define SHARED
#define SUM(x) (x)
#define BEFORE(x) 0
#define UNROLL
#define INLINE static inline
static inline int take(int* place, int more) { int before = *place; *place += more; return before; }
static inline int swap(int* place, int next) { int before = *place; *place = next; return before; }
#define TAKE(place, more) take(place, more)
#define MARK(place, bits) (*(place) |= (bits))
#define ONES(word) __builtin_popcount(word)
#define SWAP(place, next) swap(place, next)
"""
"""The names above on a CPU."""

_ON_GPU = """
#define NATIVE_GPU 1
#define LANE ((int)threadIdx.x)
#define LANES {lanes}
#define SYNC() __syncthreads()
#define SHARED __shared__ __align__(16)
#ifndef POOL
#define POOL(name, bytes) extern __shared__ __align__(16) char name[]
#endif
#define UNROLL _Pragma("unroll")
#define INLINE __device__ __forceinline__
#define TAKE(place, more) atomicAdd(place, more)
#define MARK(place, bits) atomicOr(place, bits)
#define ONES(word) __popc(word)
#define SWAP(place, next) atomicExch(place, next)
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#endif
__device__ __forceinline__ {real} lane_sum({real} x) {{
  __shared__ {real} parts[32];
  for (int apart = 16; apart; apart >>= 1) x += __shfl_xor_sync(0xffffffffu, x, apart);
  if (LANES <= 32) return x;
  __syncthreads();
  if ((LANE & 31) == 0) parts[LANE >> 5] = x;
  __syncthreads();
  {real} total = parts[0];
  UNROLL for (int warp = 1; warp < LANES / 32; warp++) total += parts[warp];
  return total;
}}
#define SUM(x) lane_sum(x)
__device__ __forceinline__ int lanes_before(int x) {{
  __shared__ int parts[32];
  int sum = x;
  for (int apart = 1; apart < 32; apart <<= 1) {{
    int other = __shfl_up_sync(0xffffffffu, sum, apart);
    if ((LANE & 31) >= apart) sum += other;
  }}
  int before = sum - x;
  if (LANES <= 32) return before;
  __syncthreads();
  if ((LANE & 31) == 31) parts[LANE >> 5] = sum;
  __syncthreads();
  for (int warp = 0; warp < LANE >> 5; warp++) before += parts[warp];
  return before;
}}
#define BEFORE(x) lanes_before(x)
"""
"""The names above on a GPU."""

_CPU_ENTRY = """
static void work(integer item, integer worker, const struct arguments* given) {{
{unpacked}
{body}
}}
void {name}(const struct arguments* given, integer items, integer* next, integer worker) {{
  for (;;) {{
    integer item = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED);
    if (item >= items) return;
    work(item, worker, given);
  }}
}}
"""

_GPU_ENTRY = """
__device__ __forceinline__ void work(integer item, integer worker, const struct arguments* given) {{
{unpacked}
{body}
}}
extern "C" __global__ void __launch_bounds__({lanes}) {name}(
    const struct arguments given, integer items, word64* next) {{
  __shared__ integer taken;
  for (;;) {{
    __syncthreads();
    if (LANE == 0) taken = (integer)atomicAdd(next, 1ull);
    __syncthreads();
    integer item = taken;
    if (item >= items) break;
    work(item, (integer)blockIdx.x, &given);
  }}
  /* The last block to end leaves both counts as it found them: 0, for the next call. */
  if (LANE == 0 && atomicAdd(next + 1, 1ull) == gridDim.x - 1) next[0] = next[1] = 0;
}}
"""


@dataclass(frozen=True)
class KernelSource:
    """A kernel before its compilation, for any device."""

    name: str
    """Its name in C, and the beginning of its name in the cache."""
    parameters: tuple[tuple[str, str], ...]
    """The type and name of each parameter; a type is a pointer, `integer`, `word64` or `double`."""
    body: str
    """The statements for one work item."""
    functions: str = ""
    """The functions and macros that the body uses."""
    double: bool = False
    """Whether `real` is double."""
    rounds_once: bool = False
    """Whether a CPU may fuse a product and a sum to one rounding; otherwise numbers equal those of torch."""
    pool_bytes: int = 0
    """Bytes of dynamic shared memory of a block of threads, on a GPU."""

    def for_cpu(self) -> str:
        """The whole program, in C."""
        return self._common(_ON_CPU) + _CPU_ENTRY.format(
            name=self.name, body=self.body, unpacked=self._unpacked()
        )

    def for_gpu(self, lanes: int) -> str:
        """The whole program, in CUDA C, for blocks of `lanes` threads."""
        return self._common(_ON_GPU.format(lanes=lanes, real=self._real)) + _GPU_ENTRY.format(
            name=self.name, body=self.body, unpacked=self._unpacked(), lanes=lanes
        )

    @property
    def _real(self) -> str:
        return "double" if self.double else "float"

    def _common(self, prelude: str) -> str:
        fields = " ".join(f"{kind} {name};" for kind, name in self.parameters)
        return prelude + _COMMON.format(real=self._real, fields=fields) + self.functions

    def _unpacked(self) -> str:
        return "\n".join(f"  {kind} const {name} = given->{name};" for kind, name in self.parameters)


def hash_of(*texts: str) -> str:
    """The cache key of a compiled program, from its text and all that its compilation depends on."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:32]
