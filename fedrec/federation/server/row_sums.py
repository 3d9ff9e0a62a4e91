"""Sums of uploaded rows, item by item, in a fixed order on any device."""

import torch
from torch import Tensor

from fedrec.native.kernel import AnyKernel, kernel_or_none
from fedrec.native.source import KernelSource

DTYPES = (torch.float32, torch.float64)
"""What rows may be made of."""


def _sums_by_item(dtype: torch.dtype) -> KernelSource:
    """A piece of work is one item: each lane adds up some of its rows, in order, then lanes are added up."""
    number = "double" if dtype == torch.float64 else "float"
    return KernelSource(
        "add_rows",
        (
            ("const integer*", "order"), ("const integer*", "start"), (f"const {number}*", "row"),
            ("const integer*", "owner"), ("const double*", "weight"), ("integer", "is_weighted"),
            ("integer", "width"), ("double*", "total"),
        ),
        """
  SHARED double part[LANES];
  integer columns = width < LANES ? width : LANES, groups = LANES / columns;
  integer group = LANE / columns;
  for (integer from = 0; from < width; from += columns) {
    integer column = from + LANE % columns;
    double sum = 0;
    if (group < groups && column < width)
      for (integer at = start[item] + group; at < start[item + 1]; at += groups) {
        double number = (double)row[order[at] * width + column];
        sum += is_weighted ? weight[owner[order[at]]] * number : number;
      }
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


ADD_ROWS = {dtype: _sums_by_item(dtype) for dtype in DTYPES}
"""For the lanes of a GPU, by what rows are made of."""


ADD_WEIGHTED = {
    dtype: KernelSource(
        "add_weighted",
        (
            ("const integer*", "item_of"), ("const real*", "row"), ("const integer*", "owner"),
            ("const double*", "weight"), ("integer", "rows"), ("integer", "width"), ("double*", "total"),
        ),
        """
  for (integer at = 0; at < rows; at++) {
    const real* own = row + at * width;
    double* sum = total + item_of[at] * width;
    double share = weight[owner[at]];
    for (integer column = 0; column < width; column++) sum[column] += share * (double)own[column];
  }
""",
        double=dtype == torch.float64,
    )
    for dtype in DTYPES
}  # fmt: skip
"""For one thread: all rows in their order are one piece of work, and no product of them is kept."""


def add_weighted_rows(total: Tensor, item: Tensor, rows: Tensor, weight: Tensor, owner: Tensor) -> None:
    """What `add_rows` does with each of `rows` times the `weight` of its owner (n), in double precision."""
    on_cpu = total.device.type == "cpu"
    kernel = kernel_or_none((ADD_WEIGHTED if on_cpu else ADD_ROWS)[rows.dtype], total.device)
    if kernel is None:
        add_rows(total, item, rows.double() * weight.double()[owner].unsqueeze(1))
    elif on_cpu:
        add_weighted_rows_by(kernel, total, item, rows, weight, owner)
    else:
        add_rows_by(kernel, total, item, rows, weight, owner)


def add_weighted_rows_by(
    kernel: AnyKernel, total: Tensor, item: Tensor, rows: Tensor, weight: Tensor, owner: Tensor
) -> None:
    """What `add_weighted_rows` does, by a kernel of `ADD_WEIGHTED`."""
    count, width = rows.shape
    kernel(
        1, item_of=item.contiguous(), row=rows.contiguous(), owner=owner.contiguous(),
        weight=weight.double().contiguous(), rows=count, width=width, total=total,
    )  # fmt: skip


def add_rows(total: Tensor, item: Tensor, rows: Tensor) -> None:
    """Add `rows` (n x d) to the rows `item` (n) of `total`, in double precision: the same bytes every time.

    A CPU adds them in the order they come in. On a GPU `index_add_` would add them as they happen to meet.
    """
    if total.device.type == "cpu":
        total.index_add_(0, item, rows)
        return
    kernel = kernel_or_none(ADD_ROWS[rows.dtype], total.device)
    if kernel is None:
        total.index_put_((item,), rows, accumulate=True)
    else:
        add_rows_by(kernel, total, item, rows)


def add_rows_by(
    kernel: AnyKernel,
    total: Tensor,
    item: Tensor,
    rows: Tensor,
    weight: Tensor | None = None,
    owner: Tensor | None = None,
) -> None:
    """What `add_rows` does, or with weights of owners `add_weighted_rows`, by a kernel of `ADD_ROWS`."""
    # Shorter numbers are sorted sooner.
    short = torch.int16 if len(total) <= torch.iinfo(torch.int16).max else torch.int32
    ordered, order = torch.sort(item.to(short), stable=True)
    items = torch.arange(len(total) + 1, dtype=short, device=item.device)
    start = torch.searchsorted(ordered, items)
    kernel(
        len(total), order=order, start=start, row=rows.contiguous(),
        owner=order if owner is None else owner.contiguous(),
        weight=total if weight is None else weight.double().contiguous(), is_weighted=weight is not None,
        width=rows.shape[1], total=total,
    )  # fmt: skip
