"""The functions that the statements of a kernel are written with, in C."""

import re

from fedrec.federation.engines.fused.adam import PAST, TERMS

_FUNCTIONS = r"""
#if NATIVE_GPU
#define EXP exp
#define LOG log
#define LOG1P log1p
#define ABS fabs
#define SQRT sqrt
#define TANH tanh
#define POW pow
/* The sums of COUNT numbers, a power of two, over the lanes of a warp: lanes halve them between them. */
template <int COUNT, int APART = 16> INLINE void sum_warp(const real* own, real* total) {
  if constexpr (COUNT == 1) {
    real x = own[0];
    UNROLL for (int apart = APART; apart; apart /= 2) x += __shfl_xor_sync(0xffffffffu, x, apart);
    if ((LANE & (2 * APART - 1)) == 0) *total = x;
  } else {
    constexpr int half = COUNT / 2;
    const bool upper = LANE & APART;
    real x[half];
    UNROLL for (int k = 0; k < half; k++) {
      const real sent = upper ? own[k] : own[k + half], kept = upper ? own[k + half] : own[k];
      x[k] = kept + __shfl_xor_sync(0xffffffffu, sent, APART);
    }
    sum_warp<half, APART / 2>(x, upper ? total + half : total);
  }
}
template <int COUNT> INLINE void sum_warps(const real* own, real* total) {
  constexpr int some = COUNT >= 16 ? 16 : COUNT >= 8 ? 8 : COUNT >= 4 ? 4 : COUNT >= 2 ? 2 : 1;
  sum_warp<some>(own, total);
  if constexpr (COUNT > some) sum_warps<COUNT - some>(own + some, total + some);
}
template <int COUNT> INLINE void sum_lanes(const real* own, real* total) {
  constexpr int warps = LANES > 32 ? LANES / 32 : 1;
  __shared__ real parts[COUNT * warps];
  sum_warps<COUNT>(own, parts + (LANE >> 5) * COUNT);
  SYNC();
  for (int k = LANE; k < COUNT; k += LANES) {
    real x = parts[k];
    UNROLL for (int warp = 1; warp < warps; warp++) x += parts[warp * COUNT + k];
    total[k] = x;
  }
  SYNC();
}
#define SUM_LANES(own, total, count) sum_lanes<count>(own, total)
#define TOTAL UNROLL
/* Neighbours are fetched and stored together, by fours or two of them, the first at a multiple of so many. */
template <int COUNT> INLINE void load(real* to, const real* from) {
#if !DOUBLE
  if (COUNT % 4 == 0) {
    UNROLL for (int k = 0; k < COUNT; k += 4) {
      const float4 four = *(const float4*)(from + k);
      to[k] = four.x, to[k + 1] = four.y, to[k + 2] = four.z, to[k + 3] = four.w;
    }
    return;
  }
  if (COUNT == 2) {
    const float2 two = *(const float2*)from;
    to[0] = two.x, to[1] = two.y;
    return;
  }
#endif
  UNROLL for (int k = 0; k < COUNT; k++) to[k] = from[k];
}
template <int COUNT> INLINE void store(real* to, const real* from) {
#if !DOUBLE
  if (COUNT % 4 == 0) {
    UNROLL for (int k = 0; k < COUNT; k += 4)
      *(float4*)(to + k) = make_float4(from[k], from[k + 1], from[k + 2], from[k + 3]);
    return;
  }
  if (COUNT == 2) {
    *(float2*)to = make_float2(from[0], from[1]);
    return;
  }
#endif
  UNROLL for (int k = 0; k < COUNT; k++) to[k] = from[k];
}
/* Four neighbours, from the memory of all into that of a block: on their way until FETCHED_BUT() so many of
   what was begun since, one part each FETCH_MORE(). */
INLINE void copy_four(real* to, const real* from) {
  real four[4];
  load<4>(four, from);
  store<4>(to, four);
}
#if DOUBLE || !defined(__CUDACC__)
#define fetch_four copy_four
#define FETCH_MORE()
#define FETCHED_BUT(later)
#else
INLINE void fetch_four(real* to, const real* from) {
  asm volatile(
    "{ .reg .u64 near; .reg .u32 place; cvta.to.shared.u64 near, %0; cvt.u32.u64 place, near;"
    " cp.async.cg.shared.global [place], [%1], 16; }" :: "l"(to), "l"(from));
}
#define FETCH_MORE() asm volatile("cp.async.commit_group;" ::: "memory")
#define FETCHED_BUT(later) asm volatile("cp.async.wait_group %0;" :: "n"(later) : "memory")
#endif
/* A record of doubles of a table. */
#define RECORD(count, name, table, number) \
  double name[count]; \
  UNROLL for (int k = 0; k < count; k += 2) { \
    const double2 two = *(const double2*)((table) + (number) * count + k); \
    name[k] = two.x, name[k + 1] = two.y; \
  }
/* Tiles of a product: four times four numbers. */
INLINE void clear(real (*total)[4]) {
  UNROLL for (int a = 0; a < 4; a++) UNROLL for (int b = 0; b < 4; b++) total[a][b] = 0;
}
INLINE void add_product(real (*total)[4], const real (*left)[4], const real (*right)[4]) {
  UNROLL for (int s = 0; s < 4; s++) UNROLL for (int a = 0; a < 4; a++)
    UNROLL for (int b = 0; b < 4; b++) total[a][b] += left[a][s] * right[s][b];
}
INLINE void add_outer(real* total, const real* left, const real* right) {
  UNROLL for (int k = 0; k < 16; k++) total[k] += left[k / 4] * right[k % 4];
}
/* How many neighbouring lanes share a tile of so many, each with some of the samples. */
INLINE constexpr int lanes_of_tile(int tiles) {
  int over = 1;
  while (over < 32 && 2 * over * tiles <= LANES) over *= 2;
  return over;
}
/* The sums of COUNT numbers over OVER neighbouring lanes, both powers of two: a lane keeps some of them. */
template <int COUNT, int OVER> INLINE void keep_sums(real* own) {
  if constexpr (OVER > 1) {
    constexpr int half = COUNT > 1 ? COUNT / 2 : 1, apart = OVER / 2;
    const bool upper = COUNT > 1 && LANE & apart;
    UNROLL for (int k = 0; k < half; k++) {
      const real sent = upper || COUNT == 1 ? own[k] : own[k + half], kept = upper ? own[k + half] : own[k];
      own[k] = kept + __shfl_xor_sync(0xffffffffu, sent, apart);
    }
    keep_sums<half, apart>(own);
  }
}
template <int COUNT, int OVER> INLINE int first_kept() {
  constexpr int half = COUNT / 2, apart = OVER / 2;
  if constexpr (half && apart) return (LANE & apart ? half : 0) + first_kept<half, apart>();
  return 0;
}
/* Sums of what groups of COUNT lanes have. */
template <int COUNT> INLINE void sum_groups(real x, real* total) {
  __shared__ real parts[LANES];
  parts[LANE] = x;
  SYNC();
  for (int k = LANE; k < COUNT; k += LANES) {
    real sum = 0;
    for (int group = 0; group < LANES / COUNT; group++) sum += parts[group * COUNT + k];
    total[k] = sum;
  }
  SYNC();
}
/* Of some neighbours of a row, the sums over its samples, chained from `head` on, by ascending number. */
template <int COUNT, class Term> INLINE void chained(real* total, int head, const int* following, Term term) {
  UNROLL for (int c = 0; c < COUNT; c++) total[c] = term(head, c);
  const int next = following[head];
  if (next < 0) return;
  if (following[next] < 0) {
    UNROLL for (int c = 0; c < COUNT; c++) total[c] += term(next, c);
    return;
  }
  UNROLL for (int c = 0; c < COUNT; c++) total[c] = 0;
  for (int before = -1;;) {
    int least = 0x7fffffff;
    for (int sample = head; sample >= 0; sample = following[sample])
      if (sample > before && sample < least) least = sample;
    if (least == 0x7fffffff) return;
    UNROLL for (int c = 0; c < COUNT; c++) total[c] += term(least, c);
    before = least;
  }
}
/* A sample of a mini-batch to come: the memory has time to find it. */
#if USERS
#define LOOK_FURTHER ahead_user = user_slots[at];
#else
#define LOOK_FURTHER
#endif
#define LOOK_AHEAD(at_epoch, from) if ((from) + LANE < samples) { \
  const integer at = s0 + order[(at_epoch) * sample_count + s0 + (from) + LANE]; \
  ahead_slot = slots[at]; \
  ahead_label = all_labels[at]; \
  LOOK_FURTHER \
}
#define log_of_1_and LOG1P
INLINE real sigmoid(real x) { return 1 / (1 + EXP(-x)); }
#else
#define TOTAL _Pragma("omp simd reduction(+:total)")
#define LARGEST _Pragma("omp simd reduction(max:largest)")
/* What the turns of a loop write, no other turn reads. */
#ifdef __clang__
#define APART _Pragma("clang loop vectorize(assume_safety)")
#else
#define APART _Pragma("GCC ivdep")
#endif
#define SUM_LANES(own, total, count) memcpy(total, own, sizeof(real) * (count))
/* Where the sum of the gradients of a row's samples is: they are chained from `head` on, and added by
   ascending number; a single one stays where it is. */
INLINE const real* gathered(real* total, const real* gradient, int width, int head, const int* following) {
  if (following[head] < 0) return gradient + head * width;
  for (int k = 0; k < width; k++) total[k] = 0;
  for (int before = -1;;) {
    int least = 0x7fffffff;
    for (int sample = head; sample >= 0; sample = following[sample])
      if (sample > before && sample < least) least = sample;
    if (least == 0x7fffffff) return total;
    for (int k = 0; k < width; k++) total[k] += gradient[least * width + k];
    before = least;
  }
}
/* What the mini-batches behind `from`, up to `to`, do to a row without samples; see `fused.cpu_rows`. */
struct idle { int from, to; real moves[4], fades1, fades2, limit; };
static __attribute__((noinline)) struct idle idle_steps(
    int from, int to, double rate, const double* tails, const double* past, const real* root,
    const double* unroot, double lowest_root) {
  const double* gone = past + (to - from) * PAST;
  const double *behind = tails + from * TERMS, *beyond = tails + to * TERMS;
  double sums[4], scale = 1;
  for (int term = 0; term < 4; term++) {
    scale *= root[from];
    sums[term] = rate * scale * (behind[term] - gone[term] * beyond[term]);
  }
  const double ratio = gone[TERMS + 2] * unroot[to] * root[from];
  return (struct idle){
    from, to,
    {
      (real)sums[0],
      (real)(1e-8 * (sums[1] - sums[0])),
      (real)(1e-16 * (sums[2] - 2 * sums[1] + sums[0])),
      (real)(1e-24 * (sums[3] - 3 * sums[2] + 3 * sums[1] - sums[0]))
    },
    (real)gone[TERMS], (real)gone[TERMS + 1], (real)(lowest_root * (ratio - 1))
  };
}
/* Of a number from 0 to 1. */
#if DOUBLE
INLINE real log_of_1_and(real x) { return log1p(x); }
#else
/* Powers of e in plain arithmetic, so that many are done at once: as powers of 2, of the nearest whole number
   and of the rest. */
INLINE real power_of_e(real x) {
  const real kept = x < -87.3f ? -87.3f : x > 88 ? 88 : x;
  const real whole = rintf(kept * 1.44269504f), rest = kept * 1.44269504f - whole + kept * 1.92596299e-8f;
  const int32_t bits = (int32_t)((uint32_t)((int32_t)whole + 127) << 23);
  real scale;
  memcpy(&scale, &bits, sizeof scale);
  const real power = scale * (1 + rest * (0.693147206f + rest * (0.240226469f + rest * (0.0555032878f
    + rest * (0.00961848896f + rest * (0.00133999314f + rest * 0.000153458118f))))));
  return x < -87.3f ? 0 : x > 88 ? (real)INFINITY : power;
}
INLINE real log_of_1_and(real x) {
  const real part = x / (2 + x), squared = part * part;
  return part * (2 + squared * (0.666666793f + squared * (0.399986909f
    + squared * (0.28620722f + squared * (0.21393251f + squared * 0.24413068f)))));
}
#endif
INLINE real sigmoid(real x) { const real power = EXP(-ABS(x)); return (x < 0 ? power : 1) / (1 + power); }
#endif
INLINE real relu(real x) { return x < 0 ? (real)0 : x; }
/* Both are read, whichever is taken: no branch that a CPU has to guess. */
INLINE real let_through(real gradient, real x, real bound) { return x <= bound ? (real)0 : gradient; }
INLINE real sign(real x) { return (real)((x > 0) - (x < 0)); }
INLINE real square(real x) { return x * x; }
/* As torch has it, without loss for scores of any size. */
INLINE real entropy(real x, real label) {
  return (1 - label) * x + log_of_1_and(EXP(-ABS(x))) + (x < 0 ? -x : (real)0);
}
INLINE real most(real x, real y) { return x > y || x != x ? x : y; }
INLINE real least(real x, real y) { return x < y || x != x ? x : y; }
INLINE real at_least(real x, real low) { return x < low ? low : x; }
INLINE real at_most(real x, real high) { return x > high ? high : x; }
"""
_CPU_MATH = {
    False: "EXP power_of_e|LOG logf|LOG1P log1pf|ABS fabsf|SQRT sqrtf|TANH tanhf|POW powf",
    True: "EXP exp|LOG log|LOG1P log1p|ABS fabs|SQRT sqrt|TANH tanh|POW pow",
}


_RARE = {
    "SIN": "sin", "COS": "cos", "ERF": "erf", "EXPM1": "expm1", "LOG2": "log2", "LOG10": "log10",
    "ATAN": "atan", "TAN": "tan", "ASIN": "asin", "ACOS": "acos",
    "EXP2": "exp2", "ERFC": "erfc", "SINH": "sinh", "COSH": "cosh", "FLOOR": "floor", "CEIL": "ceil",
    "TRUNC": "trunc", "RINT": "rint", "FMOD": "fmod",
}  # fmt: skip
"""Functions of C's mathematics that few losses use."""
_RARE_FUNCTIONS = {
    "floored": """
/* The whole number below a quotient, which itself may be rounded to the one above. */
INLINE real floored(real x, real y) {
  if (y == 0) return x / y;
  const real left = FMOD(x, y), whole = (x - left) / y;
  const real below = left != 0 && (y < 0) != (left < 0) ? whole - 1 : whole, lowest = FLOOR(below);
  return below - lowest > (real)0.5 ? lowest + 1 : lowest;
}
""",
    "most_of_lanes": """
/* The largest of what lanes have, of each of COUNT numbers. */
template <int COUNT> INLINE void most_of_lanes(const real* own, real* total) {
  __shared__ real parts[LANES];
  for (int k = 0; k < COUNT; k++) {
    parts[LANE] = own[k];
    SYNC();
    for (int apart = LANES / 2; apart; apart /= 2) {
      if (LANE < apart) parts[LANE] = most(parts[LANE], parts[LANE + apart]);
      SYNC();
    }
    if (LANE == 0) total[k] = parts[0];
    SYNC();
  }
}
""",
    "remainder_of": """
/* What a division leaves, with the sign of the divisor. */
INLINE real remainder_of(real x, real y) {
  const real left = FMOD(x, y);
  return left != 0 && (y < 0) != (left < 0) ? left + y : left;
}
""",
}


def rare_functions(body: str, *, gpu: bool, double: bool) -> str:
    """The functions of few losses that the statements of a kernel use."""
    functions = "".join(text for name, text in _RARE_FUNCTIONS.items() if re.search(rf"\b{name}\b", body))
    suffix = "" if gpu or double else "f"
    names = (name for name in _RARE if re.search(rf"\b{name}\(", body + functions))
    return "".join(f"#define {name} {_RARE[name]}{suffix}\n" for name in names) + functions


def functions_for(*, gpu: bool, double: bool, users: bool = False) -> str:
    """The functions, for the CPU with the mathematics of its precision; on a GPU one name serves both.

    With `users`, samples are about rows of users, too.
    """
    tables = (f"TERMS {TERMS}", f"PAST {PAST}")
    mathematics = "".join(f"#define {one}\n" for one in (*_CPU_MATH[double].split("|"), *tables))
    precision = f"#define DOUBLE {int(double)}\n#define USERS {int(users)}\n"
    return precision + ("" if gpu else mathematics) + _FUNCTIONS
