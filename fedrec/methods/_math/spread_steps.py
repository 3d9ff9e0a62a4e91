"""Steps of vectors that are spread over a graph by one product with a matrix: each is two kernels.

    slopes   a piece of work is a training row: the spread vectors of its user, item and negatives, their
             scores, the loss, and its slope for each of these vectors
    moves    a piece is some nodes: what all slopes come to there, and Adam's move

A step reads of the matrix the rows of its nodes alone, and the second kernel finds them in the GPU's cache.
Taken by torch it is some fifty pieces of work, and to hand these out takes longer than to do them.
"""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.central.adam import Adam
from fedrec.central.steps import EpochSamples, Steps
from fedrec.native.kernel import AnyKernel, Argument, Kernel
from fedrec.native.source import KernelSource

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8
"""Adam's, as `Adam` has them."""
_LANES = 256
_TILE = 32
"""Nodes of a piece of the second kernel: as many as lanes that read beside each other."""
_VECTOR = 4
"""Numbers that a lane of a GPU reads at once."""
_MOST_NODES = 12
"""Of a training row, whose sums a lane keeps in registers."""
_STEPS_AT_ONCE = 64
"""Steps that are handed out to a GPU together; those behind the last one of an epoch do nothing."""

_FUNCTIONS = """
#define D {width}
#define NODES {nodes}
#define WIDE (NODES - 1)
#define TILE {tile}
#define PAIRS {pairs}
#if NATIVE_GPU
#define VECTOR {vector}
#define WARPS (LANES / 32)
#define SOME _Pragma("unroll 4")
typedef struct __align__(16) {{ real at[VECTOR]; }} vector;
#else
#define VECTOR D
#define WARPS 1
#define SOME
typedef struct {{ real at[VECTOR]; }} vector;
#endif
/* Lanes that share a row of a table, and rows that all lanes have before them at once. */
#define SHARING (D / VECTOR)
#define ROWS (LANES / SHARING)

/* Adds to the sums of all nodes the rows of a table, each times its place in the rows of the matrix. */
INLINE void add_products(real sum[NODES][VECTOR], const real* const* weight, integer before,
                         const real* table, integer rows) {{
  int part = LANE % SHARING;
  SOME for (integer row = LANE / SHARING; row < rows; row += ROWS) {{
    vector own = *(const vector*)(table + row * D + part * VECTOR);
    UNROLL for (int node = 0; node < NODES; node++) {{
      real times = weight[node][before + row];
      UNROLL for (int at = 0; at < VECTOR; at++) sum[node][at] += times * own.at[at];
    }}
  }}
}}

INLINE real softplus(real x) {{ return (x > 0 ? x : 0) + log1p(exp(x > 0 ? -x : x)); }}
INLINE real sigmoid(real x) {{ return 1 / (1 + exp(-x)); }}

/* The loss of a row with these scores, of which there are `rows`, and its slope for each score. */
INLINE real ranked(const real* score, const real* label, real* slope, integer rows) {{
  real lost = 0;
  if (PAIRS) {{
    slope[0] = 0;
    for (int at = 1; at < WIDE; at++) {{
      real apart = score[at] - score[0];
      lost += softplus(apart);
      slope[at] = sigmoid(apart) / (real)(rows * (WIDE - 1));
      slope[0] -= slope[at];
    }}
    return lost / (real)(rows * (WIDE - 1));
  }}
  for (int at = 0; at < WIDE; at++) {{
    lost += softplus(score[at]) - label[at] * score[at];
    slope[at] = (sigmoid(score[at]) - label[at]) / (real)(rows * WIDE);
  }}
  return lost / (real)(rows * WIDE);
}}
"""

_OF_BOTH = (
    ("const real*", "matrix"), ("integer", "users"), ("integer", "items"), ("double", "reg"),
    ("integer*", "now"), ("double*", "factors"), ("integer*", "chosen"), ("real*", "slopes"),
    ("real*", "lost"),
)  # fmt: skip
"""The matrix, and what the first kernel leaves for the second: which step it is and how many rows it has,
Adam's corrections, the rows' nodes, what the loss slopes by in each of these, and the loss of each row."""

_SLOPES = """
  integer count = users + items, begin = counters[0] * batch;
  integer rows = every - begin < batch ? every - begin : batch;
  if (item == 0 && LANE == 0) {
    double step = (double)(counters[0] + counters[1] + 1);
    now[0] = rows > 0 ? counters[0] : -1;
    now[1] = rows;
    factors[0] = 1 / (1 - pow(BETA1, step));
    factors[1] = 1 / sqrt(1 - pow(BETA2, step));
  }
  if (item >= rows) return;
  const real* weight[NODES];
  UNROLL for (int node = 0; node < NODES; node++) {
    integer place = node ? users + sample_item[(begin + item) * WIDE + node - 1] : sample_user[begin + item];
    weight[node] = matrix + place * count;
    if (LANE == 0) chosen[item * NODES + node] = place;
  }
  real sum[NODES][VECTOR] = {{0}};
  add_products(sum, weight, 0, P, users);
  add_products(sum, weight, users, Q, items);
  SHARED real parts[WARPS * NODES * D], spread[NODES * D], score[WIDE], slope[WIDE];
  UNROLL for (int node = 0; node < NODES; node++)
    UNROLL for (int at = 0; at < VECTOR; at++) {
#if NATIVE_GPU
      for (int apart = SHARING; apart < 32; apart <<= 1)
        sum[node][at] += __shfl_xor_sync(0xffffffffu, sum[node][at], apart);
      if (LANE % 32 < SHARING)
#endif
        parts[(LANE / 32 * NODES + node) * D + LANE % SHARING * VECTOR + at] = sum[node][at];
    }
  SYNC();
  for (int at = LANE; at < NODES * D; at += LANES) {
    real total = 0;
    for (int warp = 0; warp < WARPS; warp++) total += parts[warp * NODES * D + at];
    spread[at] = total;
  }
  SYNC();
  for (int other = LANE; other < WIDE; other += LANES) {
    real product = 0;
    for (int at = 0; at < D; at++) product += spread[at] * spread[(1 + other) * D + at];
    score[other] = product;
  }
  SYNC();
  real loss = 0, squares = 0;
  if (LANE == 0) loss = ranked(score, sample_label + (begin + item) * WIDE, slope, rows);
  SYNC();
  for (int at = LANE; at < NODES * D; at += LANES) {
    int node = at / D, number = at % D;
    real own = 0;
    if (node) own = slope[node - 1] * spread[number];
    else for (int other = 0; other < WIDE; other++) own += slope[other] * spread[(1 + other) * D + number];
    slopes[item * NODES * D + at] = own;
    integer place = chosen[item * NODES + node];
    real before = place < users ? P[place * D + number] : Q[(place - users) * D + number];
    squares += before * before;
  }
  squares = SUM(squares);
  if (LANE == 0) lost[item] = loss + (real)(reg / 2 / (double)rows) * squares;
"""

_MOVES = """
#define WIDTH (LANES < TILE ? LANES : TILE)
#define GROUPS (LANES / WIDTH)
#define AT_ONCE (D < 16 ? D : 16)
  if (now[0] < 0) return;
  integer count = users + items, rows = now[1], nodes = rows * NODES;
  SHARED real parts[GROUPS * WIDTH * (AT_ONCE + 1)];
  SHARED int times[GROUPS * WIDTH];
  int own = LANE % WIDTH, group = LANE / WIDTH;
  for (int first = 0; first < TILE; first += WIDTH)
    for (int from = 0; from < D; from += AT_ONCE) {
      integer column = item * TILE + first + own;
      real sum[AT_ONCE] = {0};
      int met = 0;
      if (column < count)
        SOME for (integer node = group; node < nodes; node += GROUPS) {
          integer place = chosen[node];
          real weight = matrix[place * count + column];
          met += place == column;
          UNROLL for (int at = 0; at < AT_ONCE; at++) sum[at] += weight * slopes[node * D + from + at];
        }
      SYNC();
      UNROLL for (int at = 0; at < AT_ONCE; at++) parts[LANE * (AT_ONCE + 1) + at] = sum[at];
      times[LANE] = met;
      SYNC();
      for (int cell = LANE; cell < WIDTH * AT_ONCE; cell += LANES) {
        int of = cell / AT_ONCE, at = cell % AT_ONCE, all = 0;
        integer place = item * TILE + first + of;
        if (place >= count) continue;
        real slope = 0;
        for (int one = 0; one < GROUPS; one++) {
          slope += parts[(one * WIDTH + of) * (AT_ONCE + 1) + at];
          all += times[one * WIDTH + of];
        }
        integer within = (place < users ? place : place - users) * D + from + at;
        real* value = (place < users ? P : Q) + within;
        real* first_moment = (place < users ? P_first : Q_first) + within;
        real* second_moment = (place < users ? P_second : Q_second) + within;
        slope += (real)(reg * all / (double)rows) * *value;
        real m = (real)BETA1 * *first_moment + (real)(1 - BETA1) * slope;
        real v = (real)BETA2 * *second_moment + (real)(1 - BETA2) * slope * slope;
        *first_moment = m;
        *second_moment = v;
        *value -= (real)(rate * factors[0]) * m / ((real)sqrt(v) * (real)factors[1] + (real)EPSILON);
      }
    }
  if (item == 0) {
    real total = 0;
    for (integer row = LANE; row < rows; row += LANES) total += lost[row];
    total = SUM(total);
    if (LANE == 0) {
      losses[now[0]] = total;
      counters[0] += 1;
    }
  }
"""


class RankedPairs(Protocol):
    """What is needed of a method whose scores are products of spread vectors."""

    users: int
    items: int
    pairwise: bool
    """Whether its loss compares negatives with their positive (BPR), or is the entropy of each."""
    settings: Mapping[str, float]


def fits_kernels(width: int, nodes: int) -> bool:
    """Whether there are kernels for vectors of this width, and rows of so many nodes."""
    return width in (4, 8, 16, 32, 64, 128) and nodes <= _MOST_NODES and nodes * width <= 3 * 128


def sources(width: int, nodes: int, *, pairs: bool, double: bool) -> tuple[KernelSource, KernelSource]:
    """Both kernels, for vectors of this width and rows of so many nodes."""
    constants = f"#define BETA1 {_BETA1}\n#define BETA2 {_BETA2}\n#define EPSILON {_EPSILON}\n"
    functions = constants + _FUNCTIONS.format(
        width=width, nodes=nodes, tile=_TILE, pairs=int(pairs), vector=min(_VECTOR, width)
    )
    of_slopes = (
        *_OF_BOTH, ("const integer*", "counters"), ("const integer*", "sample_user"),
        ("const integer*", "sample_item"), ("const real*", "sample_label"), ("integer", "batch"),
        ("integer", "every"), ("const real*", "P"), ("const real*", "Q"),
    )  # fmt: skip
    moved = (f"{name}{what}" for what in ("", "_first", "_second") for name in ("P", "Q"))
    of_moves = (
        *_OF_BOTH, ("integer*", "counters"), ("double", "rate"), ("real*", "losses"),
        *(("real*", name) for name in moved),
    )  # fmt: skip
    return (
        KernelSource("spread_slopes", of_slopes, _SLOPES, functions, double),
        KernelSource("spread_moves", of_moves, _MOVES, functions, double),
    )


class SpreadSteps(Steps):
    """Adam's steps on the vectors `P` and `Q` of a method, spread by `matrix`.

    On a GPU they are recorded once as a graph of work, and played again. Raise `NoCompilerError` where there
    are no kernels for the device.
    """

    said = "compiled"

    def __init__(self, method: RankedPairs, optimiser: Adam, matrix: Tensor) -> None:
        self._optimiser, self._matrix = optimiser, matrix
        values = optimiser.values
        width, self._nodes = values["P"].shape[1], 2 + int(method.settings["negatives"])
        self._batch_size = int(method.settings["batch_size"])
        self._of_slopes, self._of_moves = self.kernels(
            sources(width, self._nodes, pairs=method.pairwise, double=matrix.dtype == torch.float64)
        )
        device, rows = matrix.device, self._batch_size * self._nodes
        self._counters = torch.zeros(2, dtype=torch.int64, device=device)
        self._shared: dict[str, Argument] = {
            "matrix": matrix, "users": method.users, "items": method.items, "reg": method.settings["reg"],
            "now": torch.zeros(2, dtype=torch.int64, device=device),
            "factors": torch.zeros(2, dtype=torch.float64, device=device),
            "chosen": torch.zeros(rows, dtype=torch.int64, device=device),
            "slopes": torch.zeros(rows * width, dtype=matrix.dtype, device=device),
            "lost": torch.zeros(self._batch_size, dtype=matrix.dtype, device=device),
            "counters": self._counters,
        }  # fmt: skip
        self._moved: dict[str, Argument] = {}
        for name in ("P", "Q"):
            first, second = optimiser.moments(name)
            moved = {name: values[name].detach(), f"{name}_first": first, f"{name}_second": second}
            self._moved |= moved
        self._samples: EpochSamples | None = None
        self._record: torch.cuda.CUDAGraph | None = None

    def kernels(self, both: tuple[KernelSource, KernelSource]) -> tuple[AnyKernel, AnyKernel]:
        """Both of them, for the device of the matrix."""
        slopes, moves = (Kernel(source, self._matrix.device, _LANES) for source in both)
        return slopes, moves

    @override
    def epoch(self, samples: EpochSamples) -> float:
        self._place(samples)
        steps = -(-len(samples.user) // self._batch_size)
        self._counters.copy_(torch.tensor([0, self._optimiser.taken]))
        if self._matrix.device.type == "cuda":
            self._play(steps)
        else:
            for _ in range(steps):
                self._take_one()
        self._optimiser.advance(steps)
        return float(self._losses.mean())

    def _place(self, samples: EpochSamples) -> None:
        """Put samples where steps read them: always in the same place."""
        if self._samples is None:
            self._samples = EpochSamples(*(tensor.clone().contiguous() for tensor in samples.tensors()))
            steps = -(-len(samples.user) // self._batch_size)
            self._losses = torch.zeros(steps, dtype=self._matrix.dtype, device=self._matrix.device)
            return
        for own, tensor in zip(self._samples.tensors(), samples.tensors(), strict=True):
            own.copy_(tensor)

    def _play(self, steps: int) -> None:
        if self._record is None:
            # What is loaded at first use must not be recorded.
            self._take_one()
            steps -= 1
            self._record = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._record):
                for _ in range(_STEPS_AT_ONCE):
                    self._take_one()
        for _ in range(0, steps, _STEPS_AT_ONCE):
            self._record.replay()

    def _take_one(self) -> None:
        assert self._samples is not None
        user, item, label = self._samples.tensors()
        self._of_slopes(
            min(self._batch_size, len(user)), **self._shared,
            sample_user=user, sample_item=item, sample_label=label, batch=self._batch_size, every=len(user),
            P=self._moved["P"], Q=self._moved["Q"],
        )  # fmt: skip
        self._of_moves(
            -(-len(self._matrix) // _TILE), **self._shared, **self._moved,
            rate=self._optimiser.rate, losses=self._losses,
        )  # fmt: skip
