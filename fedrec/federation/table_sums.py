"""Sums over whole tables of clients, in double precision; on a GPU, kernels read each number once.

torch would first copy all numbers to double precision, and sums the rows of a client with one thread.
"""

import torch
from torch import Tensor

from fedrec.federation.model.tables import powers
from fedrec.native.kernel import AnyKernel, kernel_or_none
from fedrec.native.source import KernelSource

_SQUARES = 2
_DOUBLE_SUM = """
INLINE double over_lanes(double x) {
  SHARED double parts[LANES];
  SYNC();
  parts[LANE] = x;
  SYNC();
  for (int apart = LANES / 2; apart; apart /= 2) {
    if (LANE < apart) parts[LANE] += parts[LANE + apart];
    SYNC();
  }
  return parts[0];
}
"""
SUM_SQUARES = KernelSource(
    "sum_squares",
    (("const real*", "rows"), ("const integer*", "start"), ("integer", "width"), ("double*", "total")),
    """
  const integer last = start[item + 1] * width;
  double sum = 0;
  _Pragma("unroll 8") for (integer at = start[item] * width + LANE; at < last; at += LANES)
    sum += (double)rows[at] * (double)rows[at];
  sum = over_lanes(sum);
  if (LANE == 0) total[item] = sum;
""",
    _DOUBLE_SUM,
)
"""A piece of work is a segment of consecutive rows. Each lane sums some numbers; then lanes are summed."""

SUM_WEIGHTED = KernelSource(
    "sum_weighted",
    (
        ("const real*", "values"), ("const double*", "weight"), ("integer", "clients"), ("integer", "width"),
        ("double*", "total"),
    ),
    """
  const integer column = item * LANES + LANE;
  double sum = 0;
  if (column < width)
    _Pragma("unroll 8") for (integer client = 0; client < clients; client++)
      sum += weight[client] * (double)values[client * width + column];
  if (column < width) total[column] += sum;
""",
)  # fmt: skip
"""A piece of work is one column per lane. Each lane sums its column, client by client."""
_LANES = 256
_WIDE = 1 << 14
"""Least number of columns for which one lane per column keeps a GPU busy."""


def segment_sums(rows: Tensor, starts: Tensor, power: int) -> Tensor:
    """The sum of the `powers` of each segment of rows, given `starts` (segments + 1): (segments, ...).

    Every call gives the same bytes.
    """
    kernel = _kernel(SUM_SQUARES, rows) if power == _SQUARES else None
    if kernel is None:
        return torch.segment_reduce(powers(rows, power), "sum", offsets=starts, initial=0)
    return sum_squares_by(kernel, rows, starts)


def per_table_sums(tables: Tensor, power: int) -> Tensor:
    """The sum of the `powers` of all rows of each table (tables, items, d): (tables, ...)."""
    kernel = _kernel(SUM_SQUARES, tables) if power == _SQUARES else None
    if kernel is None:
        return powers(tables, power).sum(1)
    starts = torch.arange(len(tables) + 1, device=tables.device) * tables.shape[1]
    return sum_squares_by(kernel, tables.flatten(0, 1), starts)


def sum_squares_by(kernel: AnyKernel, rows: Tensor, starts: Tensor) -> Tensor:
    """Compute the sum of squares of each segment of rows by the kernel `SUM_SQUARES`."""
    total = torch.empty(len(starts) - 1, 1, dtype=torch.float64, device=rows.device)
    kernel(len(total), rows=rows.contiguous(), start=starts.contiguous(), width=rows.shape[1], total=total)
    return total


def add_weighted_sum(total: Tensor, values: Tensor, weight: Tensor) -> bool:
    """Add the sum over clients (leading axis) of weight x value to `total`; return False without a kernel."""
    wide = weight.dim() == 1 and total.numel() >= _WIDE
    kernel = _kernel(SUM_WEIGHTED, values) if wide else None
    if kernel is None:
        return False
    add_weighted_sum_by(kernel, total, values, weight)
    return True


def add_weighted_sum_by(kernel: AnyKernel, total: Tensor, values: Tensor, weight: Tensor) -> None:
    """Compute `add_weighted_sum` by the kernel `SUM_WEIGHTED`."""
    width = total.numel()
    kernel(
        -(-width // _LANES), values=values.contiguous(), weight=weight.double().contiguous(),
        clients=len(values), width=width, total=total,
    )  # fmt: skip


def _kernel(source: KernelSource, values: Tensor) -> AnyKernel | None:
    """The kernel, for numbers in single precision on a GPU."""
    if values.device.type == "cpu" or values.dtype != torch.float32:
        return None
    return kernel_or_none(source, values.device, _LANES)
