"""The mini-batches of a block of clients: the number for each client, and the samples of each.

Clients are sorted by their number of mini-batches, most first. So those that still have a mini-batch come
first, and their rows and vectors are the first rows of one long tensor. No client takes a step on padding
alone, and every step works on contiguous memory.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from fedrec.federation.model.history import History, Past
from fedrec.federation.model.tables import sampled


@dataclass
class BlockBatch:
    """A mini-batch of each of the first clients; padding of short ones has weight 0."""

    index: Tensor
    """Index of each sample's active row: (clients, samples)."""
    labels: Tensor
    weight: Tensor
    number: int
    """Index of the mini-batch in the epoch, from 0."""
    past: Callable[[], Past]
    """History before the positive of each sample."""

    def history(self, length: int) -> History:
        """For each sample, the items before its positive."""
        items, mask = self.past().items(length)
        return History(sampled(items), mask)

    @cached_property
    def items(self) -> Tensor:
        """Index for looking up the samples' rows."""
        return sampled(self.index)

    @property
    def size(self) -> Tensor:
        """Number of samples in each client's mini-batch: (clients, 1)."""
        return self.weight.count_nonzero(1).unsqueeze(1).to(self.weight.dtype)

    def mean(self, values: Tensor) -> Tensor:
        """The mean over each client's samples."""
        return (values * self.weight).sum(-1)

    def sum(self, values: Tensor) -> Tensor:
        """The sum over each client's samples."""
        return values.masked_fill(self._filling, 0.0).sum(-1)

    def logsumexp(self, values: Tensor) -> Tensor:
        """The logarithm of the sum of exponentials over each client's samples."""
        return values.masked_fill(self._filling, -torch.inf).logsumexp(-1)

    def softmax(self, values: Tensor) -> Tensor:
        """The softmax over each client's samples."""
        return values.masked_fill(self._filling, -torch.inf).softmax(-1)

    @property
    def _filling(self) -> Tensor:
        """Mask of the padding of a short mini-batch."""
        return self.weight == 0

    def distinct(self) -> Tensor:
        """1 for one sample of every distinct item of a client's mini-batch, 0 for all others."""
        # Padding repeats a client's first sample; the stable sort puts it behind that sample.
        ordered, order = torch.sort(self.index, dim=1, stable=True)
        first = torch.ones_like(self.weight)
        first[:, 1:] = (ordered[:, 1:] != ordered[:, :-1]).to(first.dtype)
        return torch.zeros_like(first).scatter_(1, order, first)

    def occurrences(self) -> Tensor:
        """For each sample, how many samples of the client's mini-batch have the same item."""
        # Indices of active rows differ between clients, so one call counts all mini-batches.
        real = (self.weight > 0).to(self.weight.dtype).reshape(-1)
        places, inverse = torch.unique(self.index, return_inverse=True)
        counts = torch.zeros(len(places), dtype=real.dtype, device=real.device)
        return counts.index_add_(0, inverse.reshape(-1), real)[inverse]


@dataclass(frozen=True)
class Group:
    """Consecutive clients of a block with the same number of mini-batches."""

    batches: int
    clients: slice
    rows: slice


class Schedule:
    """The mini-batches of an epoch of a block's clients."""

    def __init__(
        self,
        size: Tensor,
        slot: Tensor,
        labels: Tensor,
        row_end: list[int],
        batch_size: int,
        past: Callable[[], Past],
    ) -> None:
        """Take each client's number of samples, then their active rows and labels, client by client.

        `row_end` holds the end index of each client's active rows. `past` computes the samples' histories.
        """
        self.past = past
        self.size = size
        self.slot = slot
        self.labels = labels
        self.batch_size = batch_size
        self.batches = -(-size // batch_size)
        self.groups = self._groups(row_end)
        self._start = size.cumsum(0) - size
        self._widths = self._batch_widths()

    def epoch(self, order: Tensor) -> Iterator[BlockBatch]:
        """The mini-batches of an epoch: the first of every client, the second of those that have one, ...

        `order` shuffles each client's own samples.
        """
        slot, label = self.slot[order], self.labels[order]
        column = torch.arange(self.batch_size, device=order.device)
        for number, width in enumerate(self._widths):
            clients = self.groups[self.active(number) - 1].clients.stop
            left = (self.size[:clients] - number * self.batch_size).clamp(max=self.batch_size)
            inside = column[:width] < left.unsqueeze(1)
            first = self._start[:clients] + number * self.batch_size
            # Padding repeats the client's own first sample, with weight 0.
            place = first.unsqueeze(1) + torch.where(inside, column[:width], 0)
            past = partial(self._past_of, order, place)
            yield BlockBatch(slot[place], label[place], inside / left.unsqueeze(1), number, past)

    def _past_of(self, order: Tensor, place: Tensor) -> Past:
        return self.past().of(order[place])

    def active(self, number: int) -> int:
        """Number of groups with a mini-batch of index `number`."""
        return sum(group.batches > number for group in self.groups)

    def parts_of(self, *, table: bool) -> list[int]:
        """Length of each group's part of a parameter's leading axis."""
        spans = [group.rows if table else group.clients for group in self.groups]
        return [span.stop - span.start for span in spans]

    def _groups(self, row_end: list[int]) -> list[Group]:
        batches, counts = torch.unique_consecutive(self.batches, return_counts=True)
        groups, first, first_row = [], 0, 0
        for number, count in zip(batches.tolist(), counts.tolist(), strict=True):
            end_row = int(row_end[first + count - 1])
            groups.append(Group(number, slice(first, first + count), slice(first_row, end_row)))
            first, first_row = first + count, end_row
        return groups

    def _batch_widths(self) -> list[int]:
        """For each index of a mini-batch, the number of samples of the longest."""
        sizes, longest = self.size.cpu(), self.batch_size
        return [
            int((sizes - number * longest).clamp(max=longest).max())
            for number in range(self.groups[0].batches)
        ]
