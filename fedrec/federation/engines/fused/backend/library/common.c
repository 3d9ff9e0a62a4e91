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
