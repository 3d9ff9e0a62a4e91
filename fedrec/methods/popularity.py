"""popularity: an item's score is the number of its training rows, the same for every user.

A reference: a method that does not beat it has learnt nothing about users.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.federation.clients import Clients
from fedrec.federation.learner import Learner, Report
from fedrec.federation.model.citation import Citation
from fedrec.random.purpose import Purpose


class Popularity(Learner):
    """Scores items by their number of training rows."""

    logits = False
    paper: Citation | None = None
    cost = ""
    sends = ("which items it met",)
    """The data that it needs from clients, for lists of methods."""

    def __init__(self, clients: Clients, _settings: Mapping[str, Any], _seed: int) -> None:
        self.count = torch.bincount(clients.train_item, minlength=clients.items).float()
        self.clients = len(clients)

    def train_round(self, round_: int) -> Report:  # noqa: ARG002 - every round is the same
        """Report a round without training."""
        return Report(0.0, self.clients, 0, 0, 0.0, 0.0)

    @override
    def scores(self, who: Tensor, items: Tensor) -> Tensor:
        return self.count[items]

    @override
    def tensors(self) -> dict[str, Tensor]:
        return {"shared/count": self.count}

    @override
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self.count = tensors["shared/count"].to(self.count.device)

    @override
    def negative_draws(self, round_: int) -> list[tuple[Tensor, Purpose]]:
        return []


METHOD = Popularity
