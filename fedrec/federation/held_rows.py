"""Which rows of an item table each client holds: those of the items it samples, each once."""

import torch
from torch import Tensor

from fedrec.native.kernel import AnyKernel, Argument, kernel_or_none
from fedrec.native.source import KernelSource

_GIVEN = (
    ("const integer*", "item_of"), ("const integer*", "size"), ("const integer*", "end"),
    ("integer", "words"), ("int*", "space"),
)  # fmt: skip
_MARKED = """
  const integer* sampled = item_of + end[item] - size[item];
  word32* mark = (word32*)space + 2 * worker * words;
  for (integer word = LANE; word < words; word += LANES) mark[word] = 0;
  SYNC();
  for (integer sample = LANE; sample < size[item]; sample += LANES)
    MARK(mark + (sampled[sample] >> 5), 1u << (sampled[sample] & 31));
  SYNC();
  integer each = (words + LANES - 1) / LANES, first = LANE * each;
  integer last = first + each < words ? first + each : words;
  int rows = 0;
  for (integer word = first; word < last; word++) rows += ONES(mark[word]);
  int row = BEFORE(rows);
"""
"""Marks a client's items, one bit each; a lane then counts those in words of its own, and before them."""

COUNT = KernelSource(
    "count_rows",
    (*_GIVEN, ("integer*", "count")),
    _MARKED + "  if (LANE == LANES - 1) count[item] = row + rows;\n",
)
FILL = KernelSource(
    "fill_rows",
    (
        *_GIVEN,
        ("const integer*", "first_row"), ("integer*", "row_item"), ("integer*", "row_client"),
        ("integer*", "slot"),
    ),
    _MARKED
    + """
  int* before = space + (2 * worker + 1) * words;
  for (integer word = first; word < last; word++) {
    before[word] = row;
    for (int bit = 0; bit < 32; bit++)
      if (mark[word] >> bit & 1) {
        row_item[first_row[item] + row] = 32 * word + bit;
        row_client[first_row[item] + row++] = item;
      }
  }
  SYNC();
  for (integer sample = LANE; sample < size[item]; sample += LANES) {
    integer word = sampled[sample] >> 5;
    word32 below = (1u << (sampled[sample] & 31)) - 1;
    slot[end[item] - size[item] + sample] = first_row[item] + before[word] + ONES(mark[word] & below);
  }
""",
)  # fmt: skip
"""A piece of work of either is one client."""


def held_rows(item: Tensor, size: Tensor, items: int) -> tuple[Tensor, Tensor, Tensor]:
    """Item and client of each held row, sorted by client and item, and the row of each sample.

    `item` are the items of all samples, client by client, `size` of each.
    """
    kernels = kernel_or_none(COUNT, item.device), kernel_or_none(FILL, item.device)
    if kernels[0] is None or kernels[1] is None:
        return held_rows_in_torch(item, size, items)
    return held_rows_by(kernels[0], kernels[1], item, size, items)


def held_rows_in_torch(item: Tensor, size: Tensor, items: int) -> tuple[Tensor, Tensor, Tensor]:
    """What `held_rows` gives, where there are no kernels."""
    client = torch.repeat_interleave(torch.arange(len(size), device=item.device), size)
    pair, slot = torch.unique(client * items + item, return_inverse=True)
    return pair % items, pair // items, slot


def held_rows_by(
    count: AnyKernel, fill: AnyKernel, item: Tensor, size: Tensor, items: int
) -> tuple[Tensor, Tensor, Tensor]:
    """What `held_rows` gives, by the kernels of `COUNT` and `FILL`."""
    clients, words = len(size), -(-items // 32)
    rows = torch.empty_like(size)
    workers = max(count.workers(clients), fill.workers(clients))
    given: dict[str, Argument] = {
        "item_of": item, "size": size, "end": size.cumsum(0), "words": words,
        "space": torch.empty(2 * workers * words, dtype=torch.int32, device=item.device),
    }  # fmt: skip
    count(clients, **given, count=rows)
    end = rows.cumsum(0)
    held = int(end[-1]) if clients else 0
    row_item, row_client, slot = (item.new_empty(length) for length in (held, held, len(item)))
    fill(clients, **given, first_row=end - rows, row_item=row_item, row_client=row_client, slot=slot)
    return row_item, row_client, slot
