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
    """A model of all users, with tables of users and of items and further parameters."""

    paper: ClassVar[Citation | None] = None
    """The paper that it comes from; None for a reference of this project."""

    cost: ClassVar[str] = ""
    """Cost of an epoch, for a table."""

    whole_rows = False
    """Whether a mini-batch has training interactions, each with its negatives, instead of single samples."""

    def __init__(self, settings: Mapping[str, Any], users: int, items: int) -> None:
        self.settings = settings
        self.users = users
        self.items = items

    def prepare(self, clients: Clients) -> None:  # noqa: B027 - most methods need samples alone
        """Read all data once, before the first epoch."""

    @abstractmethod
    def parameters(self) -> dict[str, Parameter]:
        """The parameters of the model; all are on the server."""

    @abstractmethod
    def score(self, w: Values, users: Tensor, items: Tensor) -> Tensor:
        """The logit of each (user, item) pair, given the result of `forward`."""

    def forward(self, w: Values) -> Values:
        """The tensors from which scores are computed: the parameters, or values derived from them.

        Training computes them in every step, scoring once per epoch.
        """
        return w

    def loss(self, w: Values, users: Tensor, items: Tensor, labels: Tensor) -> Tensor:
        """The loss of a mini-batch: by default the mean binary cross-entropy.

        With `whole_rows`, `items` and `labels` (rows, 1 + negatives) have a positive, then its negatives.
        """
        scores = self.score(w, users, items)
        return functional.binary_cross_entropy_with_logits(scores, labels, reduction="none").mean()

    def steps(self, w: Values, optimiser: Adam, device: torch.device) -> Steps:
        """The executor of an epoch's steps: the fastest one available for this model and device."""
        return usual_steps(optimiser.steps_of(self, w), self.settings["batch_size"], device)
