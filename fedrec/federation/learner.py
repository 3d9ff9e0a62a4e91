"""Interface of a learner for a training run: rounds, scores, and a state to store."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from fedrec.random.purpose import Purpose


@dataclass(frozen=True)
class Report:
    """Cost and outcome of one round.

    `loss` is the mean over the clients that trained; NaN if none did. `down` and `up` are the numbers (of
    four bytes) that each client downloads and uploads. `slowest` is the time of the slowest client in
    seconds, as the papers report it; None if the engine does not time single clients.
    """

    loss: float
    clients: int
    down: int
    up: int
    local_seconds: float
    server_seconds: float
    slowest: float | None = None


class Learner(Protocol):
    """A model that learns in rounds and scores items for clients."""

    logits: bool
    """Whether scores are logits; a protocol may rank by their probabilities."""

    def train_round(self, round_: int) -> Report:
        """Train round `round_`, counted from 1."""

    def scores(self, who: Tensor, items: Tensor) -> Tensor:
        """The scores of `items` (clients, k) for the clients `who`: (clients, k)."""

    def tensors(self) -> dict[str, Tensor]:
        """The state of training by name, for a checkpoint or a stored model."""

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore from the result of `tensors()`; training then continues as if it had not stopped."""

    def notes(self, rounds: int) -> dict[str, Any]:  # noqa: ARG002 - see override
        """Facts for `run.json` after `rounds`, in addition to settings and metrics; by default none."""
        return {}

    def negative_draws(self, round_: int) -> list[tuple[Tensor, Purpose]]:
        """The clients that drew training negatives in a finished round, with the purpose of the draws.

        With the seed and the number of negatives, the draws can be repeated.
        """
