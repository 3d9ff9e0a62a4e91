"""What both engines share: the task of a round, its outcome, and what an engine is."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fedrec.errors import DivergenceError
from fedrec.federation.clients import Clients, Samples
from fedrec.federation.model.method import Client, Method
from fedrec.federation.observe.recorder import Watch
from fedrec.federation.privacy.uploads import UploadNoise
from fedrec.federation.server.server import Server
from fedrec.federation.state.state import State

NOISE_STEPS = 1024
"""Mini-batches an epoch of guarded training may have: each has its own noise."""


@dataclass(frozen=True)
class Task:
    """One round of local training: whose, on which samples, in which mini-batches."""

    method: Method
    state: State
    server: Server
    clients: Clients
    who: Tensor
    samples: Samples
    batch_size: int
    seed: int
    round_: int
    privacy: UploadNoise | None = None
    alone: bool = False
    """Whether clients go on from their own copies of shared parameters instead of the server's."""
    late: bool = False
    """Whether this is what clients do after the server has answered (`Method.conclude`)."""

    watch: Watch | None = None
    """Who looks at tables before and after training; None for nobody."""

    @property
    def no_loss(self) -> float:
        """The loss of a client that has not trained: an error, except after the server has answered."""
        return 0.0 if self.late else float("nan")

    def work(self, client: Client) -> None:
        """What a client does."""
        (self.method.conclude if self.late else self.method.local_round)(client)

    @property
    def watched(self) -> list[str]:
        """The tables that are looked at before and after training: most often none."""
        if self.watch is None or self.late or not self.watch.wants_training(self.round_):
            return []
        one = self.state.parameters
        return [name for name in self.state.visible if one[name].table and one[name].place != "scratch"]

    def starts_alone(self, name: str) -> bool:
        """Whether clients start the round from values of `name` that differ from client to client."""
        parameter = self.state.parameters[name]
        if parameter.place == "shared":
            return self.alone or (self.late and self.method.evaluated.get(name) == "own")
        return parameter.place in ("private", "local", "personal") and not parameter.renewed


@dataclass(frozen=True)
class Outcome:
    """What a round of local training reports: each client's mean loss in its last epoch.

    `slowest` is the seconds the slowest client took; None where clients are not told apart.
    """

    loss: Tensor
    slowest: float | None = None


class Engine(Protocol):
    """Runs the local rounds of a task: reads and writes its state, sends uploads to its server."""

    def run(self, task: Task) -> Outcome:
        """Train every client of the task."""


def check_finite(task: Task, who: Tensor, loss: Tensor, values: dict[str, Tensor]) -> None:
    """Raise `DivergenceError` naming round, client and parameter if a number is not finite.

    `values` holds each client's trained parameters on a leading client axis.
    """
    finite = loss.isfinite()
    for value in values.values():
        finite &= value.flatten(1).isfinite().all(1)
    if finite.all():
        return
    client = int(torch.nonzero(~finite)[0])
    broken = [name for name, value in values.items() if not value[client].isfinite().all()]
    raise DivergenceError(
        f"round {task.round_}, client {int(task.clients.user[who[client]])}: training diverged; "
        f"{', '.join(broken) or 'the loss'} is not finite (mean loss {float(loss[client]):.4g}). "
        "Lower the learning rate."
    )
