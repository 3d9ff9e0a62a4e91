"""Counts of resampled users as numpy draws them, by a compiled kernel where there is a compiler.

A kernel draws what `numpy.random.Generator` would, number by number, from the same PCG64: the tests hold both
to each other. It is several times as fast, as what depends on a column alone is found once for all rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from fedrec.errors import NoCompilerError
from fedrec.native.kernel import Kernel
from fedrec.native.source import KernelSource

Floats = NDArray[np.float64]

_FUNCTIONS = """
typedef unsigned __int128 word128;
struct pcg { word128 state, step; };

INLINE word128 joined(word64 high, word64 low) { return ((word128)high << 64) | low; }

INLINE double next_double(struct pcg* of) {
  const word128 factor = joined(2549297995355413924ULL, 4865540595714422341ULL);
  of->state = of->state * factor + of->step;
  word64 high = (word64)(of->state >> 64), mixed = high ^ (word64)of->state;
  int turn = (int)(high >> 58);
  word64 bits = (mixed >> turn) | (mixed << (-turn & 63));
  return (double)(bits >> 11) * (1.0 / 9007199254740992.0);
}

/* How many of n succeed, each with probability p of at most a half, where few do; `odds` are p to 1 - p,
   `none` is the probability that none does. */
INLINE integer by_inversion(struct pcg* of, integer n, double p, double odds, double none) {
  double u = next_double(of);
  /* Mostly these few: without branches, which no processor could foresee. */
  double one = none * n * odds, two = one * (n - 1) * odds * 0.5, three = two * (n - 2) * odds * (1.0 / 3);
  double to_one = none + one, to_two = to_one + two, to_three = to_two + three;
  if (u <= to_three) return (u > none) + (u > to_one) + (u > to_two);
  integer found = 0;
  for (double here = none; u > here;) {
    found++;
    /* The bound is never below the smaller of n and 10, and seldom asked for. */
    if (found > n || (found > 10 && found > n * p + 10 * sqrt(n * p * (1 - p) + 1))) {
      found = 0;
      here = none;
      u = next_double(of);
    } else {
      u -= here;
      here *= (n - found + 1) * odds / found;
    }
  }
  return found;
}

/* The same where many succeed: Kachitvichyanukul and Schmeiser, "Binomial random variate generation",
   Communications of the ACM 31, 1988, algorithm BTPE, with the steps of numpy. */
static integer by_rejection(struct pcg* of, integer n, double r) {
  double q = 1 - r, nrq = n * r * q;
  /* Rounded twice, as shares of users are fractions of small numbers: this often is almost a whole number. */
  volatile double successes = n * r;
  double fm = successes + r;
  integer m = (integer)floor(fm);
  double p1 = floor(2.195 * sqrt(nrq) - 4.6 * q) + 0.5, xm = m + 0.5, xl = xm - p1, xr = xm + p1;
  double c = 0.134 + 20.5 / (15.3 + m), a = (fm - xl) / (fm - xl * r), laml = a * (1 + a / 2);
  a = (xr - fm) / (xr * q);
  double lamr = a * (1 + a / 2), p2 = p1 * (1 + 2 * c), p3 = p2 + c / laml, p4 = p3 + c / lamr;
  for (;;) {
    double u = next_double(of) * p4, v = next_double(of);
    integer y;
    if (u <= p1) return (integer)floor(xm - p1 * v + u);
    if (u <= p2) {
      double x = xl + (u - p1) / c;
      v = v * c + 1 - fabs(m - x + 0.5) / p1;
      if (v > 1) continue;
      y = (integer)floor(x);
    } else if (u <= p3) {
      y = (integer)floor(xl + log(v) / laml);
      if (y < 0 || v == 0) continue;
      v = v * (u - p2) * laml;
    } else {
      y = (integer)floor(xr - log(v) / lamr);
      if (y > n || v == 0) continue;
      v = v * (u - p3) * lamr;
    }
    integer k = y > m ? y - m : m - y;
    if (k <= 20 || k >= nrq / 2 - 1) {
      double s = r / q, all = s * (n + 1), f = 1;
      for (integer i = m + 1; i <= y; i++) f *= all / i - s;
      for (integer i = y + 1; i <= m; i++) f /= all / i - s;
      if (v <= f) return y;
      continue;
    }
    double rho = (k / nrq) * ((k * (k / 3.0 + 0.625) + 0.16666666666666666) / nrq + 0.5);
    double t = -(double)(k * k) / (2 * nrq), lv = log(v);
    if (lv < t - rho) return y;
    if (lv > t + rho) continue;
    double x1 = y + 1, f1 = m + 1, z = n + 1 - m, w = n - y + 1;
    double x2 = x1 * x1, f2 = f1 * f1, z2 = z * z, w2 = w * w;
    if (lv <= xm * log(f1 / x1) + (n - m + 0.5) * log(z / w) + (y - m) * log(w * r / (x1 * q)) +
                  (13680. - (462. - (132. - (99. - 140. / f2) / f2) / f2) / f2) / f1 / 166320. +
                  (13680. - (462. - (132. - (99. - 140. / z2) / z2) / z2) / z2) / z / 166320. +
                  (13680. - (462. - (132. - (99. - 140. / x2) / x2) / x2) / x2) / x1 / 166320. +
                  (13680. - (462. - (132. - (99. - 140. / w2) / w2) / w2) / w2) / w / 166320.)
      return y;
  }
}

/* A column: the probability to succeed, the rarer outcome, its odds, and the logarithm of it not to come. */
struct column { double share, rare, odds, fail; };

/* The probability that what is rare comes none of n times. Those of some n are kept, as rows ask for the same
   again and again. */
struct none { integer n; double probability; };
INLINE double none_of(struct none* kept, integer n, double fail) {
  struct none* own = kept + (n & (KEPT - 1));
  if (own->n != n) *own = (struct none){n, exp(n * fail)};
  return own->probability;
}

/* How many of n succeed. */
INLINE integer binomial(struct pcg* of, struct none* kept, integer n, const struct column* at) {
  if (n == 0 || at->share == 0) return 0;
  integer found = at->rare * n <= 30 ? by_inversion(of, n, at->rare, at->odds, none_of(kept, n, at->fail))
                                     : by_rejection(of, n, at->rare);
  return at->share <= 0.5 ? found : n - found;
}
"""

_PARAMETERS = (
    ("word64*", "generator"), ("integer", "rows"), ("integer", "columns"), ("const integer*", "trials"),
    ("const double*", "column_facts"), ("integer", "shared"), ("double*", "space"), ("double*", "count"),
)  # fmt: skip
_BODY = """
  struct pcg of = {joined(generator[0], generator[1]), joined(generator[2], generator[3])};
  const struct column* facts = (const struct column*)column_facts;
  for (integer row = 0; row < rows; row++) {
    double* own = count + row * columns;
    integer left = trials[0];
    for (integer column = 0; column < columns; column++) {
      struct none* kept = (struct none*)space + column * KEPT;
      integer n = shared ? left : trials[column], found = n;
      if (!shared || column < columns - 1) found = binomial(&of, kept, n, facts + column);
      own[column] = found;
      left -= found;
    }
  }
  generator[0] = (word64)(of.state >> 64);
  generator[1] = (word64)of.state;
"""
_HALF_STATE = 1 << 64
_KEPT = 64
"""Probabilities that a column keeps from row to row."""
_WORDS = 2
"""Of eight bytes that each takes."""
_DRAWN = KernelSource("drawn_counts", _PARAMETERS, _BODY, f"#define KEPT {_KEPT}\n" + _FUNCTIONS, double=True)
"""One block of rows from one generator; `shared`: the columns of a row share the first number of trials."""


@dataclass
class CountDraws:
    """Counts drawn from one seed, a block of rows after another."""

    seed: int

    def __post_init__(self) -> None:
        self._numpy = np.random.Generator(np.random.PCG64(self.seed))
        self._kernel = _kernel()
        self._generator = torch.from_numpy(np.fromiter(_state_of(self._numpy), np.uint64).view(np.int64))

    def resampled(self, times: NDArray[np.int64], rows: int) -> Floats:
        """How often resamples (rows) of users hold each value (columns) that so many of them have."""
        users = int(times.sum())
        share = times / users
        if self._kernel is None:
            return self._numpy.multinomial(users, share, rows).astype(np.float64)
        # What is left for a column and those behind it, taken away one by one as numpy does.
        left = np.subtract.accumulate(np.concatenate([[1.0], share[:-1]]))
        return self._drawn(np.array([users]), share / left, rows, shared=True)

    def halved(self, times: NDArray[np.int64], rows: int) -> Floats:
        """How many of each number of coins (columns) show their face, in each of so many rows."""
        if self._kernel is None:
            return self._numpy.binomial(times, 0.5, (rows, len(times))).astype(np.float64)
        return self._drawn(times, np.full(len(times), 0.5), rows, shared=False)

    def _drawn(self, trials: NDArray[np.int64], share: Floats, rows: int, *, shared: bool) -> Floats:
        assert self._kernel is not None
        count = np.empty((rows, len(share)))
        rare = np.minimum(share, 1 - share)
        facts = np.stack([share, rare, rare / (1 - rare), np.log1p(-rare)], axis=1)
        self._kernel(
            1, generator=self._generator, rows=rows, columns=len(share),
            trials=torch.from_numpy(trials.astype(np.int64)), column_facts=torch.from_numpy(facts),
            shared=shared, space=torch.zeros(len(share) * _KEPT * _WORDS, dtype=torch.float64),
            count=torch.from_numpy(count),
        )  # fmt: skip
        return count


@cache
def _kernel() -> Kernel | None:
    """The kernel, or None where there is no compiler: numpy draws the same then, and takes longer."""
    try:
        return Kernel(_DRAWN, torch.device("cpu"))
    except NoCompilerError:
        return None


def _state_of(generator: np.random.Generator) -> Iterator[int]:
    """The state and the step of a PCG64, the upper half of each first."""
    state = generator.bit_generator.state["state"]
    for number in (state["state"], state["inc"]):
        yield from divmod(number, _HALF_STATE)
