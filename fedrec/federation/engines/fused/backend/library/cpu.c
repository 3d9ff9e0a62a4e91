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
