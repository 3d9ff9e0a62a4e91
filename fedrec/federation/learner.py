"""Interface of a learner for a training run: rounds, scores, and a state to store."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from fedrec.random.purpose import Purpose


@dataclass(frozen=True)
class Report:
    """Cost and outcome of one round.

    `loss` is the mean over the clients that trained, NaN where none did; `down` and `up` are the numbers (of
    four bytes) each of them received and sent. `slowest` is the papers' time of the slowest client,
    None where clients are not timed one by one.
    """

    loss: float
    clients: int
    down: int
    up: int
    local_seconds: float
    server_seconds: float
    slowest: float | None = None


class Learner(Protocol):
    """Anything that learns in rounds and scores items for clients."""

    logits: bool
    """Whether scores are logits of a probability (which a protocol may ask to rank)."""

    def train_round(self, round_: int) -> Report:
        """Do round `round_`, counted from 1."""

    def scores(self, who: Tensor, items: Tensor) -> Tensor:
        """The scores of `items` (clients x k) for the clients `who`."""

    def tensors(self) -> dict[str, Tensor]:
        """Everything it has learnt."""

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore from the result of `tensors()`; the next round then goes as if never stopped."""

    def notes(self, rounds: int) -> dict[str, Any]:  # noqa: ARG002 - see override
        """Facts for `run.json` after `rounds`, beyond settings and metrics; by default none."""
        return {}

    def negative_draws(self, round_: int) -> list[tuple[Tensor, Purpose]]:
        """Which clients drew training negatives in a finished round, and for what; with the seed and the
        number of negatives, that is enough to draw them again.
        """
