"""Kernels of a training step for vectors that one matrix (nodes, nodes) propagates over a graph.

A step runs four kernels. The nodes of a mini-batch are the users and items of its training rows.

    products  for some nodes of the mini-batch: the sums of the propagation over a segment of the graph
    slopes    for a training row: its propagated vectors, scores and loss, and the gradient of each vector
    sums      for some nodes of the graph: the sum of the gradients over a share of the mini-batch's nodes
    moves     for some elements: the whole gradient, and Adam's update

A step reads only the matrix rows of its nodes, twice. By torch, it would take about fifty kernels, which read
and write many more tensors.
"""

from dataclasses import dataclass

from fedrec.native.source import KernelSource

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8
"""The constants of `fedrec.central.adam.Adam`."""
_COLUMNS = 128
"""Most columns of the matrix whose vectors a block has in shared memory; fewer if vectors are wide."""
_BESIDE = 32
"""Number of neighbouring columns of the matrix that lanes read together."""
_AT_A_TIME = 4
"""Nodes of the mini-batch whose gradients a warp of the kernel `sums` adds at a time."""
MOVED = 512
"""Number of elements in a piece of the kernel `moves`."""

_FUNCTIONS = """
#define D {width}
#define NODES {nodes}
#define WIDE (NODES - 1)
#define PAIRS {pairs}
/* What is read at once: 16 bytes. */
#define VECTOR (16 / (int)sizeof(real))
#define PARTS (D / VECTOR)
#if NATIVE_GPU
#define WARP 32
typedef struct __align__(16) {{ real at[VECTOR]; }} vector;
#else
#define WARP 1
typedef struct {{ real at[VECTOR]; }} vector;
#endif
"""

_PRODUCT_FUNCTIONS = """
#define WARPS (LANES / WARP)
#define HELD {held}
#define TOGETHER {together}
#define COLUMNS {columns}
/* A table's rows lie so far apart that lanes which read beside each other read from all banks. */
#define STRIDE (D + 4)
#define TURNS (COLUMNS / WARP)
#define FILLS ((COLUMNS * PARTS + LANES - 1) / LANES)
#define SUMS (HELD * D)
/* Of all sums, how many a lane has when those of its warp are added up, and how many lanes have the same. */
#if NATIVE_GPU
#define KEPT (SUMS < WARP ? 1 : SUMS / WARP)
#define SAME (SUMS < WARP ? WARP / SUMS : 1)
#else
#define KEPT SUMS
#define SAME 1
#endif

/* What is needed of the matrix and of the vectors between two places of the graph. */
INLINE void look(real weights[TURNS][HELD], vector own[FILLS], const real* const* weight, const real* P,
                 const real* Q, integer users, integer from, integer last) {{
  UNROLL for (int turn = 0; turn < TURNS; turn++) {{
    integer column = from + turn * WARP + LANE % WARP;
    UNROLL for (int node = 0; node < HELD; node++)
      weights[turn][node] = column < last ? weight[node][column] : 0;
  }}
  UNROLL for (int fill = 0; fill < FILLS; fill++) {{
    int cell = fill * LANES + LANE;
    integer column = from + cell / PARTS;
    if (cell >= COLUMNS * PARTS || column >= last) {{
      UNROLL for (int at = 0; at < VECTOR; at++) own[fill].at[at] = 0;
      continue;
    }}
    const real* table = column < users ? P + column * D : Q + (column - users) * D;
    own[fill] = *(const vector*)(table + cell % PARTS * VECTOR);
  }}
}}

/* Adds up the sums of all lanes of a warp, of which each lane keeps some. */
INLINE void add_up(real sum[SUMS]) {{
#if NATIVE_GPU
  int half = SUMS / 2;
  UNROLL for (int apart = WARP / 2; apart; apart >>= 1) {{
    int upper = LANE & apart;
    if (half) {{
      UNROLL for (int at = 0; at < SUMS / 2; at++)
        if (at < half) {{
          real kept = upper ? sum[at + half] : sum[at], given = upper ? sum[at] : sum[at + half];
          sum[at] = kept + __shfl_xor_sync(0xffffffffu, given, apart);
        }}
    }} else sum[0] += __shfl_xor_sync(0xffffffffu, sum[0], apart);
    half >>= 1;
  }}
#endif
}}
"""

_SLOPE_FUNCTIONS = """
INLINE real softplus(real x) { return (x > 0 ? x : 0) + log1p(exp(x > 0 ? -x : x)); }
INLINE real sigmoid(real x) { return 1 / (1 + exp(-x)); }

/* The loss of a row with these scores, of which there are `rows`, and its slope for each score. */
INLINE real ranked(const real* score, const real* label, real* slope, integer rows) {
  real lost = 0;
  if (PAIRS) {
    slope[0] = 0;
    for (int at = 1; at < WIDE; at++) {
      real apart = score[at] - score[0];
      lost += softplus(apart);
      slope[at] = sigmoid(apart) / (real)(rows * (WIDE - 1));
      slope[0] -= slope[at];
    }
    return lost / (real)(rows * (WIDE - 1));
  }
  for (int at = 0; at < WIDE; at++) {
    lost += softplus(score[at]) - label[at] * score[at];
    slope[at] = (sigmoid(score[at]) - label[at]) / (real)(rows * WIDE);
  }
  return lost / (real)(rows * WIDE);
}
"""

_OF_FIRST = (
    ("const integer*", "counters"), ("const integer*", "sample_user"), ("const integer*", "sample_item"),
    ("integer", "batch"), ("integer", "every"), ("integer", "users"), ("integer", "items"),
    ("integer*", "chosen"), ("const real*", "P"), ("const real*", "Q"),
    ("const real*", "matrix"), ("integer", "stretches"), ("integer", "stretch"), ("real*", "parts"),
)  # fmt: skip
"""Parameters of `products`: `chosen` are the mini-batch's nodes, `parts` their sums over each segment."""

_PRODUCTS = """
  integer count = users + items, begin = counters[0] * batch;
  integer rows = every - begin < batch ? every - begin : batch, nodes = rows * NODES;
  integer tile = item / stretches * TOGETHER, first = item % stretches * stretch;
  integer last = first + stretch < count ? first + stretch : count;
  if (tile >= nodes) return;
  SHARED real table[COLUMNS * STRIDE];
  for (integer own = tile + LANE / WARP * HELD; own < tile + TOGETHER; own += WARPS * HELD) {
    const real* weight[HELD];
    UNROLL for (int held = 0; held < HELD; held++) {
      integer node = own + held < nodes ? own + held : nodes - 1, row = begin + node / NODES;
      int within = node % NODES;
      integer place = within ? users + sample_item[row * WIDE + within - 1] : sample_user[row];
      weight[held] = matrix + place * count;
      if (first == 0 && LANE % WARP == 0) chosen[node] = place;
    }
    real sum[SUMS] = {0}, weights[TURNS][HELD], next[TURNS][HELD];
    vector fill[FILLS];
    look(next, fill, weight, P, Q, users, first, last);
    for (integer from = first; from < last; from += COLUMNS) {
      SYNC();
      UNROLL for (int at = 0; at < FILLS; at++) {
        int cell = at * LANES + LANE;
        if (cell < COLUMNS * PARTS)
          *(vector*)(table + cell / PARTS * STRIDE + cell % PARTS * VECTOR) = fill[at];
      }
      UNROLL for (int turn = 0; turn < TURNS; turn++)
        UNROLL for (int node = 0; node < HELD; node++) weights[turn][node] = next[turn][node];
      SYNC();
      /* What comes next is read while this is worked on. */
      look(next, fill, weight, P, Q, users, from + COLUMNS, last);
      UNROLL for (int turn = 0; turn < TURNS; turn++) {
        const real* mine = table + (turn * WARP + LANE % WARP) * STRIDE;
        UNROLL for (int part = 0; part < PARTS; part++) {
          vector number = *(const vector*)(mine + part * VECTOR);
          UNROLL for (int node = 0; node < HELD; node++)
            UNROLL for (int at = 0; at < VECTOR; at++)
              sum[node * D + part * VECTOR + at] += weights[turn][node] * number.at[at];
        }
      }
    }
    add_up(sum);
    UNROLL for (int kept = 0; kept < KEPT; kept++) {
      int at = LANE % WARP / SAME * KEPT + kept;
      if (own + at / D < nodes) parts[(item % stretches * batch * NODES + own) * D + at] = sum[kept];
    }
  }
"""

_OF_SECOND = (
    ("const integer*", "counters"), ("const integer*", "chosen"), ("const real*", "sample_label"),
    ("integer", "batch"), ("integer", "every"), ("integer", "users"), ("const real*", "P"),
    ("const real*", "Q"), ("double", "reg"), ("integer", "stretches"), ("const real*", "parts"),
    ("integer*", "now"), ("double*", "factors"), ("real*", "slopes"), ("real*", "lost"), ("int*", "times"),
)  # fmt: skip
"""Parameters of `slopes`, which writes for later kernels:

- `now`: the number of the step, and its number of rows
- `factors`: Adam's corrections
- `slopes`: the gradient of each chosen node
- `lost`: the loss of each row
- `times`: the number of occurrences of each node"""

_SLOPES = """
  integer begin = counters[0] * batch, rows = every - begin < batch ? every - begin : batch;
  if (item == 0 && LANE == 0) {
    double step = (double)(counters[0] + counters[1] + 1);
    now[0] = rows > 0 ? counters[0] : -1;
    now[1] = rows;
    factors[0] = 1 / (1 - pow(BETA1, step));
    factors[1] = 1 / sqrt(1 - pow(BETA2, step));
  }
  if (item >= rows) return;
  for (int node = LANE; node < NODES; node += LANES) TAKE(times + chosen[item * NODES + node], 1);
  SHARED real spread[NODES * D], score[WIDE], slope[WIDE];
  for (int at = LANE; at < NODES * D; at += LANES) {
    real total = 0;
    for (integer from = 0; from < stretches; from++) total += parts[(from * batch + item) * NODES * D + at];
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

_OF_THIRD = (
    ("const integer*", "chosen"), ("integer", "users"), ("integer", "items"), ("const real*", "matrix"),
    ("const integer*", "now"), ("const real*", "slopes"), ("integer", "shares"), ("integer", "share"),
    ("real*", "sums"),
)  # fmt: skip

_SUM_FUNCTIONS = """
#define OWN {held}
#define BESIDE {beside}
#define TURN {turn}
#define WIDTH (LANES < BESIDE ? LANES : BESIDE)
#define GROUPS (LANES / WIDTH)
#define EACH (TURN / GROUPS)
#define FILLS ((TURN * PARTS + LANES - 1) / LANES)
/* Numbers of a node that are handed from warp to warp at once: what a block can share has 48 KB. */
#define MOST (32768 / LANES / (int)sizeof(real))
#define AT_ONCE (D < MOST ? D : MOST)
#define SPACE (TURN * D > LANES * (AT_ONCE + 1) ? TURN * D : LANES * (AT_ONCE + 1))

/* What is needed of the matrix and of the slopes for the nodes of the mini-batch from one of them on. */
INLINE void look(real weights[EACH][OWN], vector fill[FILLS], const real* matrix, integer count,
                 const integer* column, const integer* chosen, const real* slopes, integer from,
                 integer last) {{
  UNROLL for (int each = 0; each < EACH; each++) {{
    integer node = from + LANE / WIDTH * EACH + each;
    const real* row = matrix + (node < last ? chosen[node] : 0) * count;
    UNROLL for (int own = 0; own < OWN; own++) weights[each][own] = node < last ? row[column[own]] : 0;
  }}
  UNROLL for (int at = 0; at < FILLS; at++) {{
    int cell = at * LANES + LANE;
    if (cell < TURN * PARTS && from + cell / PARTS < last)
      fill[at] = *(const vector*)(slopes + from * D + cell * VECTOR);
    else
      UNROLL for (int number = 0; number < VECTOR; number++) fill[at].at[number] = 0;
  }}
}}
"""

_SUMS = """
  if (now[0] < 0) return;
  integer count = users + items, nodes = now[1] * NODES, first = item % shares * share;
  integer last = first + share < nodes ? first + share : nodes;
  SHARED real space[SPACE];
  for (int beside = 0; beside < BESIDE; beside += WIDTH) {
    integer start = item / shares * (OWN * BESIDE) + beside, column[OWN];
    UNROLL for (int own = 0; own < OWN; own++) {
      column[own] = start + own * BESIDE + LANE % WIDTH;
      if (column[own] >= count) column[own] = count - 1;
    }
    real sum[OWN][D] = {{0}}, weights[EACH][OWN], next[EACH][OWN];
    vector fill[FILLS];
    look(next, fill, matrix, count, column, chosen, slopes, first, last);
    for (integer from = first; from < last; from += TURN) {
      SYNC();
      UNROLL for (int at = 0; at < FILLS; at++)
        if (at * LANES + LANE < TURN * PARTS) *(vector*)(space + (at * LANES + LANE) * VECTOR) = fill[at];
      UNROLL for (int each = 0; each < EACH; each++)
        UNROLL for (int own = 0; own < OWN; own++) weights[each][own] = next[each][own];
      SYNC();
      /* What comes next is read while this is worked on. */
      look(next, fill, matrix, count, column, chosen, slopes, from + TURN, last);
      UNROLL for (int each = 0; each < EACH; each++)
        UNROLL for (int part = 0; part < D; part += VECTOR) {
          vector slope = *(const vector*)(space + (LANE / WIDTH * EACH + each) * D + part);
          UNROLL for (int own = 0; own < OWN; own++)
            UNROLL for (int at = 0; at < VECTOR; at++)
              sum[own][part + at] += weights[each][own] * slope.at[at];
        }
    }
    UNROLL for (int own = 0; own < OWN; own++)
      UNROLL for (int from = 0; from < D; from += AT_ONCE) {
        SYNC();
        UNROLL for (int at = 0; at < AT_ONCE; at++) space[LANE * (AT_ONCE + 1) + at] = sum[own][from + at];
        SYNC();
        for (int cell = LANE; cell < WIDTH * AT_ONCE; cell += LANES) {
          int of = cell / AT_ONCE, at = cell % AT_ONCE;
          integer place = start + own * BESIDE + of;
          if (place >= count) continue;
          real total = 0;
          for (int one = 0; one < GROUPS; one++) total += space[(one * WIDTH + of) * (AT_ONCE + 1) + at];
          sums[(item % shares * count + place) * D + from + at] = total;
        }
      }
  }
"""

_OF_LAST = (
    ("integer*", "counters"), ("integer", "users"), ("integer", "items"), ("double", "reg"),
    ("double", "rate"), ("const integer*", "now"), ("const double*", "factors"), ("const real*", "lost"),
    ("real*", "losses"), ("int*", "times"), ("integer", "shares"), ("const real*", "sums"),
    *(("real*", f"{name}{what}") for what in ("", "_first", "_second") for name in ("P", "Q")),
)  # fmt: skip

_MOVES = """
  if (now[0] < 0) return;
  integer rows = now[1], of_users = users * D, every = of_users + items * D, end = (item + 1) * MOVED;
  if (end > every) end = every;
  double each = reg / (double)rows;
  for (integer cell = item * MOVED + LANE; cell < end; cell += LANES) {
    real slope = 0;
    for (integer share = 0; share < shares; share++) slope += sums[share * every + cell];
    integer within = cell < of_users ? cell : cell - of_users;
    real* value = (cell < of_users ? P : Q) + within;
    real* first_moment = (cell < of_users ? P_first : Q_first) + within;
    real* second_moment = (cell < of_users ? P_second : Q_second) + within;
    slope += (real)(each * times[cell / D]) * *value;
    real m = (real)BETA1 * *first_moment + (real)(1 - BETA1) * slope;
    real v = (real)BETA2 * *second_moment + (real)(1 - BETA2) * slope * slope;
    *first_moment = m;
    *second_moment = v;
    *value -= (real)(rate * factors[0]) * m / ((real)sqrt(v) * (real)factors[1] + (real)EPSILON);
  }
  SYNC();
  /* Those of the next step are counted from here. */
  for (integer node = item * MOVED / D + LANE; node < end / D; node += LANES) times[node] = 0;
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


@dataclass(frozen=True)
class Shape:
    """The sizes for which kernels are compiled: the width of vectors, and the nodes of a training row."""

    width: int
    nodes: int
    pairs: bool
    double: bool

    @property
    def held(self) -> int:
        """Number of nodes whose sums a lane has in registers, of the mini-batch and of the graph."""
        return max(1, min(4, 128 // self.width))

    @property
    def lanes(self) -> dict[str, int]:
        """Number of lanes per block of each kernel; more lanes have fewer registers each."""
        many = 512 if self.width <= 16 else 256
        return {"products": many, "slopes": 64, "sums": many, "moves": 256}

    @property
    def together(self) -> int:
        """Number of nodes in a piece of the kernel `products`."""
        return self.held * self.lanes["products"] // 32

    @property
    def beside(self) -> int:
        """Number of nodes of the graph in a piece of the kernel `sums`."""
        return self.held * _BESIDE

    @property
    def turn(self) -> int:
        """Number of the mini-batch's nodes whose gradients a block of the kernel `sums` adds at a time."""
        return _AT_A_TIME * self.lanes["sums"] // 32

    @property
    def columns(self) -> int:
        """Number of matrix columns whose vectors the kernel `products` has in shared memory at once."""
        return max(32, min(_COLUMNS, 4096 // self.width))

    def sources(self) -> dict[str, KernelSource]:
        """The sources of the kernels by name."""
        common = _FUNCTIONS.format(width=self.width, nodes=self.nodes, pairs=int(self.pairs))
        of_products = _PRODUCT_FUNCTIONS.format(held=self.held, together=self.together, columns=self.columns)
        of_sums = _SUM_FUNCTIONS.format(held=self.held, beside=_BESIDE, turn=self.turn)
        adam = f"#define BETA1 {_BETA1}\n#define BETA2 {_BETA2}\n#define EPSILON {_EPSILON}\n"
        made = (
            ("products", _OF_FIRST, _PRODUCTS, of_products),
            ("slopes", _OF_SECOND, _SLOPES, adam + _SLOPE_FUNCTIONS),
            ("sums", _OF_THIRD, _SUMS, of_sums),
            ("moves", _OF_LAST, _MOVES, adam + f"#define MOVED {MOVED}\n"),
        )
        return {
            name: KernelSource(f"spread_{name}", parameters, body, common + functions, self.double)
            for name, parameters, body, functions in made
        }
