"""Sums of rows of a table, some rows for each sum, such as those of a node's neighbours in a graph."""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from fedrec.federation.pairs import aranges
from fedrec.native.kernel import AnyKernel, kernel_or_none
from fedrec.native.source import KernelSource

_PART = 32
"""Number of rows that a GPU sums in one piece."""
BLOCK_LANES = 256
"""Number of threads of a GPU block."""
_ON_CPU = """
  real sum[{width}];
  for (int k = 0; k < {width}; k++) sum[k] = 0;
  for (integer place = first[item]; place < first[item + 1]; place++) {{
    const real* row = table + chosen[place] * {width};
    for (int k = 0; k < {width}; k++) sum[k] += row[k];
  }}
  for (int k = 0; k < {width}; k++) sums[item * {width} + k] = sum[k];
"""
# A work item has as many sums as a block has lanes for. If possible, a lane reads four columns of a row at
# once, and several rows before it adds the first.
_TYPES = """
struct __align__(16) four { float a, b, c, d; };
INLINE void add(four* sum, four x) { sum->a += x.a; sum->b += x.b; sum->c += x.c; sum->d += x.d; }
INLINE void add(real* sum, real x) { *sum += x; }
"""
_ON_GPU = """
  const {type}* rows = (const {type}*)table;
  const integer bag = item * (LANES / {lanes}) + LANE / {lanes};
  if (LANE / {lanes} < LANES / {lanes} && bag < bags)
    for (int k = LANE % {lanes}; k < {columns}; k += {lanes}) {{
      {type} sum = {{}};
      const integer last = first[bag + 1];
      _Pragma("unroll 8") for (integer place = first[bag]; place < last; place++)
        add(&sum, rows[chosen[place] * {columns} + k]);
      (({type}*)sums)[bag * {columns} + k] = sum;
    }}
"""


@dataclass(frozen=True)
class RowSums:
    """Sums of rows: sum k has the rows `chosen[first[k]:first[k + 1]]`."""

    chosen: Tensor
    first: Tensor
    parts: "RowSums | None" = None
    """The parts of each larger sum, if these sums are parts of larger sums."""

    @classmethod
    def of(cls, chosen: Tensor, sizes: Tensor) -> "RowSums":
        """Consecutive sums of these sizes; for a GPU in parts."""
        whole = cls(chosen, _firsts(sizes))
        return whole.in_parts() if chosen.is_cuda else whole

    def in_parts(self) -> "RowSums":
        """Split the sums into parts, which are summed first: otherwise a GPU waits for the largest sum."""
        number = (self.first.diff() + _PART - 1).div(_PART, rounding_mode="floor")
        start = torch.repeat_interleave(self.first[:-1], number) + _PART * aranges(number)
        parts = RowSums(torch.arange(len(start), device=start.device), _firsts(number))
        return RowSums(self.chosen, torch.cat((start, self.first[-1:])), parts)

    def sums(self, table: Tensor) -> Tensor:
        """Sum the rows of a table (rows, d), in a fixed order: (sums, d)."""
        sums = _sums(table, self.chosen, self.first)
        return sums if self.parts is None else self.parts.sums(sums)


def _sums(table: Tensor, chosen: Tensor, first: Tensor) -> Tensor:
    """Sums (sums, d) of the rows `chosen` between consecutive offsets `first`."""
    width, on_gpu = table.shape[1], table.is_cuda
    kernel = kernel_or_none(row_sum_kernel(width, table.dtype, on_gpu=on_gpu), table.device, BLOCK_LANES)
    if kernel is None:
        return functional.embedding_bag(chosen, table, first, mode="sum", include_last_offset=True)
    at_once = BLOCK_LANES // lanes_of_sum(width, table.dtype) if on_gpu else 1
    return sums_by(kernel, table, chosen, first, at_once)


def sums_by(kernel: AnyKernel, table: Tensor, chosen: Tensor, first: Tensor, at_once: int) -> Tensor:
    """Compute `_sums` by a kernel of `row_sum_kernel` with a given number of sums per work item."""
    bags = len(first) - 1
    sums = table.new_empty(bags, table.shape[1])
    pieces = -(-bags // at_once)
    kernel(pieces, table=table.contiguous(), chosen=chosen, first=first, bags=bags, sums=sums)
    return sums


def _firsts(sizes: Tensor) -> Tensor:
    """Start offset of each size, and the end of the last one."""
    return functional.pad(sizes.cumsum(0), (1, 0))


@cache
def row_sum_kernel(width: int, dtype: torch.dtype, *, on_gpu: bool) -> KernelSource:
    """Kernel for rows of `width` numbers."""
    body = _ON_CPU.format(width=width)
    if on_gpu:
        columns = width // 4 if _reads_fours(width, dtype) else width
        type_ = "four" if _reads_fours(width, dtype) else "real"
        body = _ON_GPU.format(type=type_, columns=columns, lanes=lanes_of_sum(width, dtype))
    return KernelSource(
        "bag_sums",
        (
            ("const real*", "table"),
            ("const integer*", "chosen"),
            ("const integer*", "first"),
            ("integer", "bags"),
            ("real*", "sums"),
        ),
        body,
        _TYPES if on_gpu else "",
        double=dtype == torch.float64,
    )


def lanes_of_sum(width: int, dtype: torch.dtype) -> int:
    """Number of lanes of a GPU block that share a sum."""
    return min(width // 4 if _reads_fours(width, dtype) else width, BLOCK_LANES)


def _reads_fours(width: int, dtype: torch.dtype) -> bool:
    """Whether lanes read four numbers at once."""
    return width % 4 == 0 and dtype == torch.float32
