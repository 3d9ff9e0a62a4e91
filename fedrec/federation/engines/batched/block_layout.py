"""Layout of a block: everything that follows from its clients and their numbers of samples alone."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fedrec.federation.draw_kernels import Sizes
from fedrec.federation.engines.engine import Task
from fedrec.federation.pairs import aranges


@dataclass(frozen=True)
class ClientSlice:
    """The clients of a block: their indices in the task, most samples first, and the samples of each.

    On the CPU, so that nobody waits for a GPU to know how many there are.
    """

    clients: Tensor
    sizes: Tensor

    @property
    def samples(self) -> int:
        """Number of samples of all of them."""
        return int(self.sizes.sum())

    @property
    def most(self) -> int:
        """The most samples that one of them has."""
        return int(self.sizes[0]) if len(self.sizes) else 0

    def halves(self) -> "list[ClientSlice]":
        """Two blocks instead of one."""
        half = -(-len(self.clients) // 2)
        return [
            ClientSlice(*both) for both in zip(self.clients.split(half), self.sizes.split(half), strict=True)
        ]


class BlockLayout:
    """The clients of a block, and where their samples stand: the same in every round that has this block."""

    def __init__(self, task: Task, client_slice: ClientSlice) -> None:
        self.samples, self.most = client_slice.samples, client_slice.most
        """How many samples the clients have together, and one of them at most."""
        self.chosen = client_slice.clients.to(task.who.device, non_blocking=True)
        """The clients' indices in the task."""
        self.who = task.who[self.chosen]
        self.global_index = task.clients.global_index(self.who)
        """What each draws by."""
        every = task.samples.size
        self.size = every[self.chosen]
        self.first = (every.cumsum(0) - every)[self.chosen]
        """Where each client's samples begin among those of the task."""
        self.start = torch.nn.functional.pad(self.size.cumsum(0), (1, 0))
        """Where they begin among those of the block, and where the last one's end."""
        self._every_row: tuple[Tensor, Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return len(self.who)

    @property
    def sizes(self) -> Sizes:
        """Sizes that a shuffle of all samples needs."""
        return Sizes(self.start[:-1], self.samples, self.most)

    @cached_property
    def ones(self) -> Tensor:
        """A factor of 1 per client; to be looked at only."""
        return torch.ones(len(self), dtype=torch.float64, device=self.who.device)

    @cached_property
    def rank(self) -> Tensor:
        """The client of each sample of the block, by its place there."""
        clients = torch.arange(len(self), device=self.who.device)
        return torch.repeat_interleave(clients, self.size, output_size=self.samples)

    @cached_property
    def _place(self) -> Tensor:
        """Index of each sample of the block among those of the task."""
        return self.first[self.rank] + aranges(self.size, self.samples)

    def ordered(self, of_samples: Tensor) -> Tensor:
        """Select a value per sample of the task for the samples of the block, client by client."""
        return of_samples[self._place]

    def every_row(self, items: int) -> tuple[Tensor, Tensor, Tensor]:
        """Item and client of each row where all rows of tables are held, and where each client's begin."""
        if self._every_row is None:
            clients = torch.arange(len(self) + 1, device=self.who.device)
            item = torch.arange(items, device=self.who.device).repeat(len(self))
            self._every_row = item, clients[:-1].repeat_interleave(items), clients * items
        return self._every_row
