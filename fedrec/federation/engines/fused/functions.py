"""The functions that the statements of a kernel are written with, in C."""

_FUNCTIONS = r"""
#if NATIVE_GPU
#define EXP exp
#define LOG log
#define LOG1P log1p
#define ABS fabs
#define SQRT sqrt
#define TANH tanh
#define POW pow
template <int COUNT> INLINE void sum_lanes(const real* own, real* total) {
  __shared__ real parts[COUNT * (LANES > 32 ? LANES / 32 : 1)];
  UNROLL for (int k = 0; k < COUNT; k++) {
    real x = own[k];
    UNROLL for (int apart = 16; apart; apart >>= 1) x += __shfl_xor_sync(0xffffffffu, x, apart);
    if ((LANE & 31) == 0) parts[(LANE >> 5) * COUNT + k] = x;
  }
  SYNC();
  for (int k = LANE; k < COUNT; k += LANES) {
    real x = parts[k];
    for (int warp = 1; warp < LANES / 32; warp++) x += parts[warp * COUNT + k];
    total[k] = x;
  }
  SYNC();
}
#define SUM_LANES(own, total, count) sum_lanes<count>(own, total)
#define TOTAL UNROLL
/* A sample of a mini-batch to come: the memory has time to find it. */
#define LOOK_AHEAD(at_epoch, from) if ((from) + LANE < samples) { \
  const integer at = s0 + order[(at_epoch) * sample_count + s0 + (from) + LANE]; \
  ahead_slot = slots[at]; \
  ahead_label = all_labels[at]; \
}
#else
#define TOTAL _Pragma("omp simd reduction(+:total)")
#define LEAST_ROOT _Pragma("omp simd reduction(min:least_root)")
#define SUM_LANES(own, total, count) memcpy(total, own, sizeof(real) * (count))
#endif
INLINE real sigmoid(real x) { return 1 / (1 + EXP(-x)); }
INLINE real relu(real x) { return x < 0 ? (real)0 : x; }
INLINE real sign(real x) { return (real)((x > 0) - (x < 0)); }
INLINE real square(real x) { return x * x; }
/* As torch has it, without loss for scores of any size. */
INLINE real entropy(real x, real label) {
  return (1 - label) * x + LOG1P(EXP(-ABS(x))) + (x < 0 ? -x : (real)0);
}
INLINE real most(real x, real y) { return x > y || x != x ? x : y; }
INLINE real least(real x, real y) { return x < y || x != x ? x : y; }
INLINE real at_least(real x, real low) { return x < low ? low : x; }
INLINE real at_most(real x, real high) { return x > high ? high : x; }
/* The sum of the gradients of a row's samples, which are chained from `head` on, by ascending number. */
INLINE void gathered(real* total, const real* gradient, int width, int head, const int* following) {
  int next = following[head];
  if (next < 0) { for (int k = 0; k < width; k++) total[k] = gradient[head * width + k]; return; }
  for (int k = 0; k < width; k++) total[k] = 0;
  for (int before = -1;;) {
    int least = 0x7fffffff;
    for (int sample = head; sample >= 0; sample = following[sample])
      if (sample > before && sample < least) least = sample;
    if (least == 0x7fffffff) return;
    for (int k = 0; k < width; k++) total[k] += gradient[least * width + k];
    before = least;
  }
}
INLINE real chained(const real* gradient, int width, int k, int head, const int* following) {
  real total = gradient[head * width + k];
  int next = following[head];
  if (next < 0) return total;
  if (following[next] < 0) return total + gradient[next * width + k];
  total = 0;
  for (int before = -1;;) {
    int least = 0x7fffffff;
    for (int sample = head; sample >= 0; sample = following[sample])
      if (sample > before && sample < least) least = sample;
    if (least == 0x7fffffff) return total;
    total += gradient[least * width + k];
    before = least;
  }
}
"""
_CPU_MATH = {
    False: "EXP expf|LOG logf|LOG1P log1pf|ABS fabsf|SQRT sqrtf|TANH tanhf|POW powf",
    True: "EXP exp|LOG log|LOG1P log1p|ABS fabs|SQRT sqrt|TANH tanh|POW pow",
}


def functions_for(*, gpu: bool, double: bool) -> str:
    """The functions, for the CPU with the mathematics of its precision; on a GPU one name serves both."""
    mathematics = "".join(f"#define {one}\n" for one in _CPU_MATH[double].split("|"))
    return ("" if gpu else mathematics) + _FUNCTIONS
