"""Base class of centralised methods."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fedrec.central.adam import Adam
from fedrec.central.steps import Steps, usual_steps
from fedrec.federation.clients import Clients
from fedrec.federation.model.citation import Citation
from fedrec.federation.model.parameters import Parameter
from fedrec.federation.model.tables import Values


class CentralMethod(ABC):
    """A model that sees all users: tables of users and of items, and whatever else it names."""

    paper: ClassVar[Citation | None] = None
    """Where it comes from; None for a reference of this project."""

    cost: ClassVar[str] = ""
    """What an epoch costs, for a table."""

    whole_rows = False
    """Whether a mini-batch counts training interactions, each with its negatives, or single samples."""

    def __init__(self, settings: Mapping[str, Any], users: int, items: int) -> None:
        self.settings = settings
        self.users = users
        self.items = items

    def prepare(self, clients: Clients) -> None:  # noqa: B027 - most methods need samples alone
        """Look at all data once, before the first epoch."""

    @abstractmethod
    def parameters(self) -> dict[str, Parameter]:
        """The model's parts; all live on the server."""

    @abstractmethod
    def score(self, w: Values, users: Tensor, items: Tensor) -> Tensor:
        """The logit of each (user, item) pair, by what `forward` gave."""

    def forward(self, w: Values) -> Values:
        """Tensors that scores are computed from: the parameters, or values derived from all of them.

        Computed anew for every step, and once per epoch for all scores.
        """
        return w

    def loss(self, w: Values, users: Tensor, items: Tensor, labels: Tensor) -> Tensor:
        """The loss of a mini-batch: mean binary cross-entropy, unless a method has its own.

        With `whole_rows`, `items` and `labels` have a row per user: a positive, then its negatives.
        """
        scores = self.score(w, users, items)
        return functional.binary_cross_entropy_with_logits(scores, labels, reduction="none").mean()

    def steps(self, w: Values, optimiser: Adam, device: torch.device) -> Steps:
        """Executor of an epoch's steps: the fastest available for this model on a device."""
        return usual_steps(optimiser.steps_of(self, w), self.settings["batch_size"], device)
