"""Layout of a block: index tensors that depend only on its clients and their numbers of samples."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fedrec.federation.draw_kernels import Sizes
from fedrec.federation.engines.engine import Task
from fedrec.federation.pairs import aranges


@dataclass(frozen=True)
class ClientSlice:
    """The clients of a block: their indices in the task, most samples first, and their numbers of samples.

    Both tensors lie on the CPU, so reading a count does not wait for a GPU.
    """

    clients: Tensor
    sizes: Tensor

    @property
    def samples(self) -> int:
        """Number of samples of all clients."""
        return int(self.sizes.sum())

    @property
    def most(self) -> int:
        """Largest number of samples of one client."""
        return int(self.sizes[0]) if len(self.sizes) else 0

    def halves(self) -> "list[ClientSlice]":
        """The clients in two blocks."""
        half = -(-len(self.clients) // 2)
        return [
            ClientSlice(*both) for both in zip(self.clients.split(half), self.sizes.split(half), strict=True)
        ]


class BlockLayout:
    """The clients of a block and the positions of their samples, equal in every round with this block."""

    def __init__(self, task: Task, client_slice: ClientSlice) -> None:
        self.samples, self.most = client_slice.samples, client_slice.most
        """Number of samples of all clients, and the largest of one client."""
        self.chosen = client_slice.clients.to(task.who.device, non_blocking=True)
        """The clients' indices in the task."""
        self.who = task.who[self.chosen]
        self.global_index = task.clients.global_index(self.who)
        """Index of each client among the clients of all processes; random draws use it."""
        every = task.samples.size
        self.size = every[self.chosen]
        self.first = (every.cumsum(0) - every)[self.chosen]
        """Index of each client's first sample among the samples of the task."""
        self.start = torch.nn.functional.pad(self.size.cumsum(0), (1, 0))
        """Index of each client's first sample in the block, then the end index: (clients + 1)."""
        self._every_row: tuple[Tensor, Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return len(self.who)

    @property
    def sizes(self) -> Sizes:
        """The sizes for a shuffle of all samples."""
        return Sizes(self.start[:-1], self.samples, self.most)

    @cached_property
    def ones(self) -> Tensor:
        """A factor of 1 per client; read-only."""
        return torch.ones(len(self), dtype=torch.float64, device=self.who.device)

    @cached_property
    def rank(self) -> Tensor:
        """Index in the block of each sample's client."""
        clients = torch.arange(len(self), device=self.who.device)
        return torch.repeat_interleave(clients, self.size, output_size=self.samples)

    @cached_property
    def _place(self) -> Tensor:
        """Index of each sample of the block among the samples of the task."""
        return self.first[self.rank] + aranges(self.size, self.samples)

    def ordered(self, of_samples: Tensor) -> Tensor:
        """Select from values of the task's samples those of the block's samples, client by client."""
        return of_samples[self._place]

    def every_row(self, items: int) -> tuple[Tensor, Tensor, Tensor]:
        """Item and client of each row, and start index of each client, if every row is active."""
        if self._every_row is None:
            clients = torch.arange(len(self) + 1, device=self.who.device)
            item = torch.arange(items, device=self.who.device).repeat(len(self))
            self._every_row = item, clients[:-1].repeat_interleave(items), clients * items
        return self._every_row
