"""Sums of uploaded rows, item by item, in a fixed order on any device."""

import torch
from torch import Tensor

from fedrec.native.kernel import AnyKernel, kernel_or_none
from fedrec.native.source import KernelSource

ADD_ROWS = KernelSource(
    "add_rows",
    (
        ("const integer*", "order"), ("const integer*", "start"), ("const real*", "row"),
        ("integer", "width"), ("real*", "total"),
    ),
    """
  SHARED real part[LANES];
  integer columns = width < LANES ? width : LANES, groups = LANES / columns;
  integer group = LANE / columns;
  for (integer from = 0; from < width; from += columns) {
    integer column = from + LANE % columns;
    real sum = 0;
    if (group < groups && column < width)
      for (integer at = start[item] + group; at < start[item + 1]; at += groups)
        sum += row[order[at] * width + column];
    part[LANE] = sum;
    SYNC();
    if (group == 0 && column < width)
      for (integer other = 0; other < groups; other++)
        total[item * width + column] += part[other * columns + LANE];
    SYNC();
  }
""",
    double=True,
)  # fmt: skip
"""A piece of work is one item: each lane adds up some of its rows, in order, then lanes are added up."""


def add_rows(total: Tensor, item: Tensor, rows: Tensor) -> None:
    """Add `rows` (n x d) to the rows `item` (n) of `total`, in double precision: the same bytes every time.

    A CPU adds them in the order they come in. On a GPU `index_add_` would add them as they happen to meet.
    """
    if total.device.type == "cpu":
        total.index_add_(0, item, rows)
        return
    kernel = kernel_or_none(ADD_ROWS, total.device)
    if kernel is None:
        total.index_put_((item,), rows, accumulate=True)
    else:
        add_rows_by(kernel, total, item, rows)


def add_rows_by(kernel: AnyKernel, total: Tensor, item: Tensor, rows: Tensor) -> None:
    """What `add_rows` does, by the kernel of `ADD_ROWS`."""
    ordered, order = torch.sort(item, stable=True)
    items = torch.arange(len(total) + 1, device=item.device)
    start = torch.searchsorted(ordered, items)
    kernel(len(total), order=order, start=start, row=rows.contiguous(), width=rows.shape[1], total=total)
