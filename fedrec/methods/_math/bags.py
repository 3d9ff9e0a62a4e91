"""Sums of rows of a table, some rows for each sum: what a node of a graph hears of its neighbours."""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from fedrec.federation.pairs import counted
from fedrec.native.kernel import AnyKernel, kernel_or_none
from fedrec.native.source import KernelSource

_PART = 32
"""Rows that a GPU adds one after the other."""
BLOCK_LANES = 256
"""Threads of a block of a GPU."""
_ON_CPU = """
  real sum[{width}];
  for (int k = 0; k < {width}; k++) sum[k] = 0;
  for (integer place = first[item]; place < first[item + 1]; place++) {{
    const real* row = table + chosen[place] * {width};
    for (int k = 0; k < {width}; k++) sum[k] += row[k];
  }}
  for (int k = 0; k < {width}; k++) sums[item * {width} + k] = sum[k];
"""
# A piece of work is as many bags as a block has lanes for; a lane reads four columns of a row at once where
# it can, and several rows before it has added the first.
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
class Bags:
    """Bags of rows: sum k has the rows `chosen[first[k]:first[k + 1]]`."""

    chosen: Tensor
    first: Tensor
    parts: "Bags | None" = None
    """Where these are parts of larger bags: which parts belong to which of those."""

    @classmethod
    def of(cls, chosen: Tensor, sizes: Tensor) -> "Bags":
        """Bags of these sizes, one after the other; for a GPU in parts."""
        whole = cls(chosen, _firsts(sizes))
        return whole.in_parts() if chosen.is_cuda else whole

    def in_parts(self) -> "Bags":
        """The same bags, of parts that are summed first: a GPU would wait long for the largest bag."""
        number = (self.first.diff() + _PART - 1).div(_PART, rounding_mode="floor")
        start = torch.repeat_interleave(self.first[:-1], number) + _PART * counted(number)
        parts = Bags(torch.arange(len(start), device=start.device), _firsts(number))
        return Bags(self.chosen, torch.cat((start, self.first[-1:])), parts)

    def sums(self, table: Tensor) -> Tensor:
        """The sum of each bag's rows of a table, in a fixed order."""
        sums = _sums(table, self.chosen, self.first)
        return sums if self.parts is None else self.parts.sums(sums)


def _sums(table: Tensor, chosen: Tensor, first: Tensor) -> Tensor:
    """The sums over parts of what is chosen, from place to place."""
    width, on_gpu = table.shape[1], table.is_cuda
    kernel = kernel_or_none(bag_sums(width, table.dtype, on_gpu=on_gpu), table.device, BLOCK_LANES)
    if kernel is None:
        return functional.embedding_bag(chosen, table, first, mode="sum", include_last_offset=True)
    at_once = BLOCK_LANES // lanes_of_bag(width, table.dtype) if on_gpu else 1
    return sums_by(kernel, table, chosen, first, at_once)


def sums_by(kernel: AnyKernel, table: Tensor, chosen: Tensor, first: Tensor, at_once: int) -> Tensor:
    """Compute `_sums` by a kernel of `bag_sums` with a given number of bags per work item."""
    bags = len(first) - 1
    sums = table.new_empty(bags, table.shape[1])
    pieces = -(-bags // at_once)
    kernel(pieces, table=table.contiguous(), chosen=chosen, first=first, bags=bags, sums=sums)
    return sums


def _firsts(sizes: Tensor) -> Tensor:
    """Start offset of each size, and the end of the last one."""
    return functional.pad(sizes.cumsum(0), (1, 0))


@cache
def bag_sums(width: int, dtype: torch.dtype, *, on_gpu: bool) -> KernelSource:
    """The kernel for rows of so many numbers."""
    body = _ON_CPU.format(width=width)
    if on_gpu:
        columns = width // 4 if _reads_fours(width, dtype) else width
        type_ = "four" if _reads_fours(width, dtype) else "real"
        body = _ON_GPU.format(type=type_, columns=columns, lanes=lanes_of_bag(width, dtype))
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


def lanes_of_bag(width: int, dtype: torch.dtype) -> int:
    """Number of lanes of a GPU block that share a bag."""
    return min(width // 4 if _reads_fours(width, dtype) else width, BLOCK_LANES)


def _reads_fours(width: int, dtype: torch.dtype) -> bool:
    """Whether lanes read four numbers at once."""
    return width % 4 == 0 and dtype == torch.float32
