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


ADD_WEIGHTED = {
    dtype: KernelSource(
        "add_weighted",
        (
            ("const integer*", "item_of"), ("const real*", "row"), ("const double*", "weight"),
            ("integer", "rows"), ("integer", "width"), ("double*", "total"),
        ),
        """
  for (integer at = 0; at < rows; at++) {
    const real* own = row + at * width;
    double* sum = total + item_of[at] * width;
    for (integer column = 0; column < width; column++) sum[column] += weight[at] * (double)own[column];
  }
""",
        double=dtype == torch.float64,
    )
    for dtype in (torch.float32, torch.float64)
}  # fmt: skip
"""For one thread: all rows in their order are one piece of work, and no product of them is kept."""


def add_weighted_rows(total: Tensor, item: Tensor, rows: Tensor, weight: Tensor) -> None:
    """What `add_rows` does with `rows` times `weight` (n x 1), in double precision."""
    kernel = kernel_or_none(ADD_WEIGHTED[rows.dtype], total.device) if total.device.type == "cpu" else None
    if kernel is None:
        add_rows(total, item, rows.double() * weight)
    else:
        add_weighted_rows_by(kernel, total, item, rows, weight)


def add_weighted_rows_by(
    kernel: AnyKernel, total: Tensor, item: Tensor, rows: Tensor, weight: Tensor
) -> None:
    """What `add_weighted_rows` does, by a kernel of `ADD_WEIGHTED`."""
    count, width = rows.shape
    kernel(
        1, item_of=item.contiguous(), row=rows.contiguous(), weight=weight.double().contiguous(), rows=count,
        width=width, total=total,
    )  # fmt: skip


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
