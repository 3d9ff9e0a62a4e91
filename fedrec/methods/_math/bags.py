"""Sums of rows of a table, some rows for each sum: what a node of a graph hears of its neighbours."""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from fedrec.federation.pairs import counted
from fedrec.native.kernel import kernel_or_none
from fedrec.native.source import KernelSource

_PART = 32
"""Rows that a GPU adds one after the other."""
_BODY = """
  real sum[{width}];
  for (int k = 0; k < {width}; k++) sum[k] = 0;
  for (integer place = first[item]; place < first[item + 1]; place++) {{
    const real* row = table + chosen[place] * {width};
    for (int k = 0; k < {width}; k++) sum[k] += row[k];
  }}
  for (int k = 0; k < {width}; k++) sums[item * {width} + k] = sum[k];
"""


@dataclass(frozen=True)
class Bags:
    """Which rows of a table belong to which sum: to sum k those at `chosen[first[k]:first[k + 1]]`."""

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
    kernel = None if table.is_cuda else kernel_or_none(_source(table.shape[1], table.dtype), table.device)
    if kernel is None:
        return functional.embedding_bag(chosen, table, first, mode="sum", include_last_offset=True)
    sums = table.new_empty(len(first) - 1, table.shape[1])
    kernel(len(sums), table=table.contiguous(), chosen=chosen, first=first, sums=sums)
    return sums


def _firsts(sizes: Tensor) -> Tensor:
    """Where each of some sizes begins, and where the last one ends."""
    return functional.pad(sizes.cumsum(0), (1, 0))


@cache
def _source(width: int, dtype: torch.dtype) -> KernelSource:
    return KernelSource(
        "bag_sums",
        (
            ("const real*", "table"),
            ("const integer*", "chosen"),
            ("const integer*", "first"),
            ("real*", "sums"),
        ),
        _BODY.format(width=width),
        double=dtype == torch.float64,
    )
