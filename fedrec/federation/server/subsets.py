"""Means over many subsets of clients, with few additions.

Six clients at a time have 64 subsets. The sums of all subsets take 64 additions of two vectors. Each mean
then adds one vector per six clients instead of up to six.
"""

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from fedrec.native.kernel import kernel_or_none
from fedrec.native.source import KernelSource

_FEWEST = 64
"""Number of clients below which 64 subsets of six are more than the means need."""
_SIX = 6
_CHOICES = 1 << _SIX
_TABLES = 4
"""Sixes that are processed together, so that each mean's running sum is read and written once for them."""
_WIDTH = 32
"""Columns that are processed together, so that all sums fit into the L1 cache."""

_PARAMETERS = (
    ("real*", "values"), ("integer", "columns"), ("integer", "clients"), ("integer", "sixes"),
    ("const unsigned char*", "chosen"), ("const real*", "scale"), ("real*", "scratch"),
)  # fmt: skip
_BODY = """
  const integer first = item * WIDTH, left = columns - first, width = left < WIDTH ? left : WIDTH;
  real* const own = scratch + worker * ((SIX * sixes + clients + TABLES * CHOICES) * WIDTH);
  real *const total = own + SIX * sixes * WIDTH, *const sums = total + clients * WIDTH;
  memset(own, 0, sizeof(real) * (SIX * sixes + clients) * WIDTH);
  for (integer client = 0; client < clients; client++)
    memcpy(own + client * WIDTH, values + client * columns + first, sizeof(real) * width);
  for (integer six = 0; six < sixes; six += TABLES) {
    for (int table = 0; table < TABLES; table++)
      all_choices(sums + table * CHOICES * WIDTH, own + (six + table) * SIX * WIDTH);
    for (integer client = 0; client < clients; client++)
      add_chosen(total + client * WIDTH, sums, chosen + six * clients + client, clients);
  }
  for (integer client = 0; client < clients; client++)
    for (integer k = 0; k < width; k++)
      values[client * columns + first + k] = scale[client] * total[client * WIDTH + k];
"""
_FUNCTIONS = f"""
#define SIX {_SIX}
#define CHOICES {_CHOICES}
#define TABLES {_TABLES}
#define WIDTH {_WIDTH}
/* The sums of every choice of six rows. A choice without its first row came before. */
INLINE void all_choices(real* sums, const real* rows) {{
  memset(sums, 0, sizeof(real) * WIDTH);
  for (int choice = 1; choice < CHOICES; choice++) {{
    const real* restrict const before = sums + (choice & (choice - 1)) * WIDTH;
    const real* restrict const row = rows + __builtin_ctz(choice) * WIDTH;
    real* restrict const sum = sums + choice * WIDTH;
    for (int k = 0; k < WIDTH; k++) sum[k] = before[k] + row[k];
  }}
}}
/* What one mean needs of some sixes, whose choices lie so far `apart`. */
INLINE void add_chosen(real* restrict total, const real* sums, const unsigned char* chosen, integer apart) {{
  const real* restrict const a = sums + chosen[0] * WIDTH;
  const real* restrict const b = sums + (CHOICES + chosen[apart]) * WIDTH;
  const real* restrict const c = sums + (2 * CHOICES + chosen[2 * apart]) * WIDTH;
  const real* restrict const d = sums + (3 * CHOICES + chosen[3 * apart]) * WIDTH;
  for (int k = 0; k < WIDTH; k++) total[k] += (a[k] + b[k]) + (c[k] + d[k]);
}}
"""


def mixed_by_subsets(values: Tensor, weights: Tensor) -> bool:
    """Replace `values` (clients, numbers) by the matrix product `weights` x `values`; return whether it did.

    Each row of `weights` must have one value for all its clients with a weight. The function does nothing for
    other weights, for few clients, on a GPU, or without a compiler.
    """
    clients, columns = values.shape
    if clients < _FEWEST or values.is_cuda or not values.is_contiguous():
        return False
    scale, chosen = weights.amax(1), weights != 0
    if not torch.equal(weights, chosen * scale.unsqueeze(1)):
        return False
    kernel = kernel_or_none(_source(values.dtype), values.device)
    if kernel is None:
        return False
    sixes = _TABLES * -(-clients // (_TABLES * _SIX))
    bits = functional.pad(chosen, (0, _SIX * sixes - clients)).view(clients, sixes, _SIX)
    number = (bits * (1 << torch.arange(_SIX))).sum(2)
    pieces = -(-columns // _WIDTH)
    space = (_SIX * sixes + clients + _TABLES * _CHOICES) * _WIDTH
    kernel(
        pieces,
        values=values, columns=columns, clients=clients, sixes=sixes,
        chosen=number.T.to(torch.uint8).contiguous(), scale=scale.to(values.dtype).contiguous(),
        scratch=values.new_empty(kernel.workers(pieces) * space),
    )  # fmt: skip
    return True


@cache
def _source(dtype: torch.dtype) -> KernelSource:
    return KernelSource("subset_means", _PARAMETERS, _BODY, _FUNCTIONS, double=dtype == torch.float64)
