"""A client's own training items as a method sees them: `w.own`, and histories in order of time."""

from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import Tensor

from fedrec.errors import FederationError


@dataclass(frozen=True)
class History:
    """The last training items of a client, oldest first: of all, or of those before a sample's positive.

    `w.Q[history.items]` are their rows, (..., length, d). `mask` (..., length) is 1 for an item and 0 where a
    short history is filled up at its beginning.
    """

    items: Tensor
    mask: Tensor


@dataclass(frozen=True)
class Past:
    """History before the positive of each sample, as the row indices that an engine looks up.

    `ordered` are the training items of clients in order of time, one client's behind another's; `first` tells
    where those of the sample's client begin, `turn` which of them its positive is.
    """

    turn: Tensor
    first: Tensor
    ordered: Tensor

    def of(self, chosen: Tensor) -> "Past":
        """That of some samples."""
        return Past(self.turn[chosen], self.first[chosen], self.ordered)

    def items(self, length: int) -> tuple[Tensor, Tensor]:
        """The last `length` items before each positive, and the mask; see `History`."""
        place = self.turn.unsqueeze(-1) - length + torch.arange(length, device=self.turn.device)
        known = self.ordered[self.first.unsqueeze(-1) + place.clamp(min=0)]
        return known, (place >= 0).to(torch.get_default_dtype())


def no_history(_length: int) -> NoReturn:
    """`w.history` during training, where it contains the items that are predicted."""
    raise FederationError(
        "w.history is known in scores alone, since it holds the positives that a loss is to predict. In a "
        "loss, batch.history(length) has the items before the positive of each sample."
    )


def refuse_history(_length: int) -> NoReturn:
    """`batch.history` of samples that have no position in a history."""
    raise FederationError(
        "batch.history is not known of the samples of guarded gradients: use a method without dp_noise."
    )
