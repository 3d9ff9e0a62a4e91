"""Sums of uploaded rows, item by item, in a fixed order on any device."""

import torch
from torch import Tensor

from fedrec.federation.table_rows import take_rows
from fedrec.native.kernel import AnyKernel, kernel_or_none
from fedrec.native.source import KernelSource

DTYPES = {torch.float32: "float", torch.float64: "double"}
"""Supported types of rows, with their names in C."""


def _sums_by_item(number: str) -> KernelSource:
    return KernelSource(
        "add_rows",
        (
            ("const integer*", "order"), ("const integer*", "start"), (f"const {number}*", "row"),
            ("integer", "is_change"), (f"const {number}*", "before"),
            ("integer", "is_weighted"), ("const integer*", "owner"), ("const double*", "weight"),
            ("integer", "width"), ("double*", "total"),
        ),
        f"typedef {number} number;"
        """
  SHARED double part[LANES];
  integer columns = width < LANES ? width : LANES, groups = LANES / columns;
  integer group = LANE / columns;
  for (integer from = 0; from < width; from += columns) {
    integer column = from + LANE % columns;
    double sum = 0;
    if (group < groups && column < width) {
      number less = is_change ? (number)0 : before[item * width + column];
      for (integer at = start[item] + group; at < start[item + 1]; at += groups) {
        double change = (double)(row[order[at] * width + column] - less);
        sum += is_weighted ? weight[owner[order[at]]] * change : change;
      }
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


ADD_ROWS = {dtype: _sums_by_item(number) for dtype, number in DTYPES.items()}
"""Kernel for a GPU, by the type of rows.

A piece of work is one item: each lane sums some of its rows, in order, then the kernel sums the lanes."""


ADD_WEIGHTED = {
    dtype: KernelSource(
        "add_weighted",
        (
            ("const integer*", "item_of"), ("const real*", "row"), ("integer", "is_change"),
            ("const real*", "before"), ("const integer*", "owner"), ("const double*", "weight"),
            ("integer", "rows"), ("integer", "width"), ("double*", "total"),
        ),
        """
  for (integer at = 0; at < rows; at++) {
    const real* own = row + at * width;
    const real* less = before + item_of[at] * width;
    double* sum = total + item_of[at] * width;
    double share = weight[owner[at]];
    if (is_change)
      for (integer column = 0; column < width; column++) sum[column] += share * (double)own[column];
    else
      for (integer column = 0; column < width; column++)
        sum[column] += share * (double)(own[column] - less[column]);
  }
""",
        double=dtype == torch.float64,
    )
    for dtype in DTYPES
}  # fmt: skip
"""Kernel for one thread of a CPU: one piece of work sums all rows in order, without temporary tensors."""


def add_weighted_rows(
    total: Tensor, item: Tensor, rows: Tensor, weight: Tensor, owner: Tensor, before: Tensor | None = None
) -> None:
    """Add each of `rows` (n, d), times the `weight` (clients) of its `owner` (n), to its row of `total`.

    With `before`, a table like `total`, `rows` are new values, and their changes from `before` are added.
    Sums are in double precision.
    """
    on_cpu = total.device.type == "cpu"
    kernel = kernel_or_none((ADD_WEIGHTED if on_cpu else ADD_ROWS)[rows.dtype], total.device)
    if kernel is None:
        changes = rows if before is None else rows - take_rows(before, item)
        add_rows(total, item, changes.double() * weight.double()[owner].unsqueeze(1))
    elif on_cpu:
        add_weighted_rows_by(kernel, total, item, rows, weight, owner, before)
    else:
        add_rows_by(kernel, total, item, rows, weight, owner, before)


def add_weighted_rows_by(
    kernel: AnyKernel,
    total: Tensor,
    item: Tensor,
    rows: Tensor,
    weight: Tensor,
    owner: Tensor,
    before: Tensor | None = None,
) -> None:
    """Compute `add_weighted_rows` by the kernel `ADD_WEIGHTED`."""
    count, width = rows.shape
    kernel(
        1, item_of=item.contiguous(), row=rows.contiguous(), is_change=before is None,
        before=total if before is None else before.contiguous(), owner=owner.contiguous(),
        weight=weight.double().contiguous(), rows=count, width=width, total=total,
    )  # fmt: skip


def add_rows(total: Tensor, item: Tensor, rows: Tensor) -> None:
    """Add `rows` (n, d) to the rows `item` (n) of `total`, in double precision, to the same bytes every time.

    A CPU adds rows in their order. On a GPU the order of `index_add_` would depend on chance.
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
    before: Tensor | None = None,
) -> None:
    """Compute `add_rows`, or with weights of owners `add_weighted_rows`, by the kernel `ADD_ROWS`."""
    # Sorting 16-bit numbers is faster.
    short = torch.int16 if len(total) <= torch.iinfo(torch.int16).max else torch.int32
    ordered, order = torch.sort(item.to(short), stable=True)
    items = torch.arange(len(total) + 1, dtype=short, device=item.device)
    start = torch.searchsorted(ordered, items)
    # The kernel does not read an argument that stands in for a missing one.
    kernel(
        len(total), order=order, start=start, row=rows.contiguous(), is_change=before is None,
        before=total if before is None else before.contiguous(), is_weighted=weight is not None,
        owner=order if owner is None else owner.contiguous(),
        weight=total if weight is None else weight.double().contiguous(), width=rows.shape[1], total=total,
    )  # fmt: skip
