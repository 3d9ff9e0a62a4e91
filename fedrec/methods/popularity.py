"""popularity: an item's score is the number of its training rows, the same for every user.

A reference: what a method must beat to have learnt anything about users.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedrec.federation.clients import Clients
from fedrec.federation.learner import Report
from fedrec.federation.model import Citation
from fedrec.random.with_numpy import Purpose


class Popularity:
    """Scores items by their training rows; learns everything in the first round."""

    logits = False
    paper: Citation | None = None
    cost = ""
    sends = ("which items it met",)
    """What it needs from clients, for lists of methods."""

    def __init__(self, clients: Clients, _settings: Mapping[str, Any], _seed: int) -> None:
        self.count = torch.bincount(clients.train_item, minlength=clients.items).float()
        self.clients = len(clients)

    def train_round(self, round_: int) -> Report:  # noqa: ARG002 - every round is the same
        """Nothing is left to learn."""
        return Report(0.0, self.clients, 0, 0, 0.0, 0.0)

    def scores(self, who: Tensor, items: Tensor) -> Tensor:  # noqa: ARG002 - the same for everyone
        """See `learner.Learner.scores`."""
        return self.count[items]

    def tensors(self) -> dict[str, Tensor]:
        """See `learner.Learner.tensors`."""
        return {"shared/count": self.count}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """See `learner.Learner.load`."""
        self.count = tensors["shared/count"].to(self.count.device)

    def notes(self, rounds: int) -> dict[str, Any]:  # noqa: ARG002 - nothing to say
        """See `learner.Learner.notes`."""
        return {}

    def drew(self, round_: int) -> list[tuple[Tensor, Purpose]]:  # noqa: ARG002 - the same in all rounds
        """See `learner.Learner.drew`."""
        return []


METHOD = Popularity
