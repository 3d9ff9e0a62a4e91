"""Active rows: the rows of an item table that a client samples in a round, each once."""

from typing import NamedTuple

import torch
from torch import Tensor

from fedrec.federation.pairs import aranges
from fedrec.native.kernel import AnyKernel, Argument, kernel_or_none
from fedrec.native.source import KernelSource

_GIVEN = (
    ("const integer*", "item_of"), ("const integer*", "size"), ("const integer*", "first_sample"),
    ("integer", "words"), ("int*", "space"),
)  # fmt: skip
_MARKED = """
  const integer* sampled = item_of + first_sample[item];
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
"""Marks a client's items, one bit each. Each lane then counts those in its own words, and those before."""

COUNT_ROWS = KernelSource(
    "count_rows",
    (*_GIVEN, ("integer*", "count")),
    _MARKED + "  if (LANE == LANES - 1) count[item + 1] = row + rows;\n",
)
FILL_ROWS = KernelSource(
    "fill_rows",
    (
        *_GIVEN,
        ("const integer*", "first_row"), ("const integer*", "first_own"), ("integer*", "row_item"),
        ("integer*", "row_client"), ("int*", "own"),
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
    own[first_own[item] + sample] = before[word] + ONES(mark[word] & below);
  }
""",
)  # fmt: skip
"""In both kernels a piece of work is one client."""


class ClientSamples(NamedTuple):
    """The samples of some clients: items, and for each client the index of its first one and their number.

    `first` indexes `item`. `start` counts only the samples of these clients, client by client.
    """

    item: Tensor
    first: Tensor
    size: Tensor
    start: Tensor
    total: int
    """Number of samples of all these clients."""


class ActiveRows(NamedTuple):
    """The active rows of some clients, sorted by client and item, and the row of each sample.

    `row_item` and `row_client` (rows) are the item and client of each row. `row_start` (clients + 1) is the
    index of each client's first row, then the end. `own` (samples) is each sample's row in its client, int32.
    """

    row_item: Tensor
    row_client: Tensor
    row_start: Tensor
    own: Tensor


def active_rows(sampled: ClientSamples, items: int) -> ActiveRows:
    """Compute the active rows of clients in a table of `items` rows."""
    device = sampled.item.device
    kernels = kernel_or_none(COUNT_ROWS, device), kernel_or_none(FILL_ROWS, device)
    if kernels[0] is None or kernels[1] is None:
        return active_rows_in_torch(sampled, items)
    return active_rows_by(kernels[0], kernels[1], sampled, items)


def active_rows_in_torch(sampled: ClientSamples, items: int) -> ActiveRows:
    """Compute `active_rows` without kernels."""
    size = sampled.size
    clients = torch.arange(len(size) + 1, device=size.device)
    owner = torch.repeat_interleave(clients[:-1], size, output_size=sampled.total)
    item = sampled.item[sampled.first[owner] + aranges(size, sampled.total)]
    pair, slot = torch.unique(owner * items + item, return_inverse=True)
    row_client = pair // items
    row_start = torch.searchsorted(row_client, clients)
    return ActiveRows(pair % items, row_client, row_start, (slot - row_start[owner]).int())


def active_rows_by(count: AnyKernel, fill: AnyKernel, sampled: ClientSamples, items: int) -> ActiveRows:
    """Compute `active_rows` by the kernels `COUNT_ROWS` and `FILL_ROWS`."""
    item, size = sampled.item, sampled.size
    clients, words = len(size), -(-items // 32)
    workers = max(count.workers(clients), fill.workers(clients))
    given: dict[str, Argument] = {
        "item_of": item, "size": size, "first_sample": sampled.first, "words": words,
        "space": torch.empty(2 * workers * words, dtype=torch.int32, device=item.device),
    }  # fmt: skip
    rows = size.new_zeros(clients + 1)
    count(clients, **given, count=rows)
    row_start = rows.cumsum(0)
    total = int(row_start[-1])
    row_item, row_client = item.new_empty(total), item.new_empty(total)
    own = item.new_empty(sampled.total, dtype=torch.int32)
    fill(
        clients, **given, first_row=row_start, first_own=sampled.start, row_item=row_item,
        row_client=row_client, own=own,
    )  # fmt: skip
    return ActiveRows(row_item, row_client, row_start, own)
