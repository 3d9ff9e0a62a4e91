"""Rows of a table, read or replaced by index, with a kernel for short rows on a GPU.

torch uses one block of threads per row, most of which idle if rows are short.
"""

import torch
from torch import Tensor
from torch.nn import functional

from fedrec.native.kernel import AnyKernel, kernel_or_none
from fedrec.native.source import KernelSource

_FOUR = 4
_STRETCH = 512
"""Number of rows in a piece of work."""
_GIVEN = (
    ("const integer*", "index"), ("integer", "count"), ("integer", "width"),
    ("real*", "table"), ("real*", "rows"),
)  # fmt: skip
_TYPE = "struct __align__(16) four { float numbers[4]; };\n"
_BODY = """
  const integer first = item * %d;
  const int many = (int)(count - first < %d ? count - first : %d), each = (int)width / 4;
  struct four* const of_table = (struct four*)table;
  struct four* const of_rows = (struct four*)rows + first * each;
  for (int e = LANE; e < many * each; e += LANES) {
    const integer place = index[first + e / each] * each + e %% each;
    %s
  }
"""


def _source(name: str, statement: str) -> KernelSource:
    return KernelSource(name, _GIVEN, _BODY % (_STRETCH, _STRETCH, _STRETCH, statement), _TYPE)


TAKE_ROWS = _source("take_rows", "of_rows[e] = of_table[place];")
PUT_ROWS = _source("put_rows", "of_table[place] = of_rows[e];")


def take_rows(table: Tensor, index: Tensor) -> Tensor:
    """The rows `index` (...) of a table (n, d): (..., d)."""
    kernel = _kernel(TAKE_ROWS, table)
    if kernel is None:
        return functional.embedding(index, table)
    rows = table.new_empty(*index.shape, table.shape[1])
    move_rows(kernel, table, index, rows)
    return rows


def put_rows(table: Tensor, index: Tensor, rows: Tensor) -> None:
    """Replace the rows `index` of a table (n, d); `index` has no duplicates."""
    kernel = _kernel(PUT_ROWS, table)
    if kernel is None:
        table[index] = rows
    else:
        move_rows(kernel, table, index, rows.contiguous())


def move_rows(kernel: AnyKernel, table: Tensor, index: Tensor, rows: Tensor) -> None:
    """Run the kernel of `take_rows` or `put_rows`."""
    kernel(
        -(-index.numel() // _STRETCH),
        index=index.contiguous(), count=index.numel(), width=table.shape[1], table=table, rows=rows,
    )  # fmt: skip


def _kernel(source: KernelSource, table: Tensor) -> AnyKernel | None:
    """The kernel, for aligned tables in single precision whose width is a multiple of four."""
    fours = table.shape[1] % _FOUR == 0 and table.dtype == torch.float32 and table.is_contiguous()
    if table.device.type == "cpu" or not fours or table.data_ptr() % (4 * _FOUR):
        return None
    return kernel_or_none(source, table.device)
