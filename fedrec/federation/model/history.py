"""Histories: a client's training items in order of time."""

from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import Tensor

from fedrec.errors import FederationError


@dataclass(frozen=True)
class History:
    """The last training items of a client, oldest first: of all, or of those before a sample's positive.

    `w.Q[history.items]` are their rows (..., length, d). `mask` (..., length) is 1 for an item, and 0 for the
    padding in front of a short history.
    """

    items: Tensor
    mask: Tensor


@dataclass(frozen=True)
class Past:
    """History before the positive of each sample, as the row indices that an engine looks up.

    `ordered` has the training items of all clients, client by client, in order of time. For each sample,
    `first` is the index of its client's first item, and `turn` counts the client's items before its positive.
    """

    turn: Tensor
    first: Tensor
    ordered: Tensor

    def of(self, chosen: Tensor) -> "Past":
        """Histories of some samples."""
        return Past(self.turn[chosen], self.first[chosen], self.ordered)

    def items(self, length: int) -> tuple[Tensor, Tensor]:
        """The last `length` items before each positive, and the mask; see `History`."""
        place = self.turn.unsqueeze(-1) - length + torch.arange(length, device=self.turn.device)
        known = self.ordered[self.first.unsqueeze(-1) + place.clamp(min=0)]
        return known, (place >= 0).to(torch.get_default_dtype())


def no_history(_length: int) -> NoReturn:
    """`w.history` during training, where it contains the items that are predicted."""
    raise FederationError(
        "w.history is available only in scores, because it contains the positives that a loss predicts. In a "
        "loss, batch.history(length) has the items before the positive of each sample."
    )


def refuse_history(_length: int) -> NoReturn:
    """`batch.history` of samples that have no position in a history."""
    raise FederationError("batch.history is not available with noise on gradients. Train without dp_noise.")
