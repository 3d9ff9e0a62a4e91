"""Sums of rows of a table, some rows for each sum: what a node of a graph hears of its neighbours."""

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from fedrec.native.kernel import kernel_or_none
from fedrec.native.source import KernelSource

_BODY = """
  real sum[{width}];
  for (int k = 0; k < {width}; k++) sum[k] = 0;
  for (integer place = first[item]; place < first[item + 1]; place++) {{
    const real* row = table + chosen[place] * {width};
    for (int k = 0; k < {width}; k++) sum[k] += row[k];
  }}
  for (int k = 0; k < {width}; k++) sums[item * {width} + k] = sum[k];
"""


def bag_sums(table: Tensor, chosen: Tensor, first: Tensor) -> Tensor:
    """For each bag k the sum of the rows `chosen[first[k]:first[k + 1]]` of a table, in this order.

    `first` ends with the number of all that are chosen.
    """
    kernel = None if table.is_cuda else kernel_or_none(_source(table.shape[1], table.dtype), table.device)
    if kernel is None:
        return functional.embedding_bag(chosen, table, first, mode="sum", include_last_offset=True)
    sums = table.new_empty(len(first) - 1, table.shape[1])
    kernel(len(sums), table=table.contiguous(), chosen=chosen, first=first, sums=sums)
    return sums


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
