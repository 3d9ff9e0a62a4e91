"""A kernel as text, and the two preludes that make one dialect of C into a program for the CPU or the GPU.

A kernel does `items` pieces of work, each by itself. On a GPU a block of threads, its lanes, does one piece;
on a CPU one thread does, as a block of one lane. The body of a kernel is written for either:

    item, worker     the piece of work, and who does it: workers have scratch memory of their own
    LANE, LANES      which of the block's lanes this is, and how many there are
    SYNC()           all lanes have come here
    SHARED           what all lanes of a block share; it begins at a multiple of 16 bytes
    POOL(p, bytes)   more of that on a GPU, where it is not little: `pool_bytes` of the source, once a kernel
    SUM(x)           the sum of x over all lanes, in a fixed order; all lanes must come here
    BEFORE(x)        the sum of the whole number x over the lanes before this one; all lanes must come here
    TAKE(p, x)       adds the whole number x to *p and gives what was there; lanes may do it at once
    SWAP(p, x)       replaces *p by x and gives what was there; lanes may do it at once
    MARK(p, bits)    sets bits of the word *p; lanes may do it at once
    ONES(x)          how many bits of a word are set
    UNROLL           before a loop of few and known turns: its arrays shall be registers
    real             the type of numbers: float or double
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
    """A kernel: its name, what it is given, the functions it uses, and what it does with a piece of work.

    `parameters` are pairs of type and name, the type a pointer, `integer`, `word64` or `double`. Where it
    `rounds_once`, a CPU may do a product and a sum as one operation; otherwise numbers are those of torch.
    """

    name: str
    parameters: tuple[tuple[str, str], ...]
    body: str
    functions: str = ""
    double: bool = False
    rounds_once: bool = False
    pool_bytes: int = 0

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
    """Cache key of a compiled program."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:32]
