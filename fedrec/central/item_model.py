"""Models with one weight matrix (items, items), computed from the co-occurrences of items."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from fedrec.federation.clients import Clients
from fedrec.federation.learner import Learner, Report
from fedrec.federation.model.citation import Citation
from fedrec.federation.own_items import own_items
from fedrec.random.purpose import Purpose

_USERS_AT_ONCE = 4096
"""Number of users whose dense rows (users, items) are in memory at once."""


class ItemModel(Learner, ABC):
    """Scores an item by the sum of its weights from a user's training items; trains in the first round only.

    Computing the weights (items, items) needs memory for a few more such matrices.
    """

    logits = False
    paper: ClassVar[Citation | None] = None
    cost: ClassVar[str] = ""

    def __init__(self, clients: Clients, settings: Mapping[str, Any], _seed: int) -> None:
        self.clients = clients
        self.settings = settings
        self.weights = torch.zeros(clients.items, clients.items, device=clients.device)

    @abstractmethod
    def between(self, met: Tensor) -> Tensor:
        """The weight from each item (row) to each item (column); `met[i, j]` users rated both i and j."""

    def train_round(self, round_: int) -> Report:
        """Compute the weights in the first round; later rounds change nothing."""
        start = time.perf_counter()
        if round_ == 1:
            # Scores are sums of rows, which take forty times as long if rows are not contiguous.
            self.weights = self.between(co_occurrences(self.clients)).contiguous()
        return Report(0.0, len(self.clients), 0, 0, time.perf_counter() - start, 0.0)

    @override
    def scores(self, who: Tensor, items: Tensor) -> Tensor:
        item, _ = self.clients.training(who)
        first = functional.pad(self.clients.sizes[who].cumsum(0), (1, 0))
        sums = functional.embedding_bag(item, self.weights, first, mode="sum", include_last_offset=True)
        return sums if self.clients.is_catalogue(items) else sums.gather(1, items)

    @override
    def tensors(self) -> dict[str, Tensor]:
        return {"shared/weights": self.weights}

    @override
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self.weights = tensors["shared/weights"].to(self.weights.device)

    @override
    def negative_draws(self, round_: int) -> list[tuple[Tensor, Purpose]]:
        return []


def co_occurrences(clients: Clients) -> Tensor:
    """The number of users with both of two training items: (items, items)."""
    total = torch.zeros(clients.items, clients.items, device=clients.device)
    for who in clients.everyone.split(_USERS_AT_ONCE):
        met = own_items(clients, who).squeeze(-1)
        total.addmm_(met.T, met)
    return total
