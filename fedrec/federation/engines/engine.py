"""Interface of all engines: the task of a round, its outcome, an engine, and engines by name."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedrec.errors import ConfigurationError, DivergenceError, did_you_mean
from fedrec.federation.clients import Clients, Samples
from fedrec.federation.model.client import Fit, Program, Rewrite, Upload
from fedrec.federation.model.method import Method
from fedrec.federation.observe.recorder import Recorder
from fedrec.federation.privacy.uploads import UploadNoise
from fedrec.federation.program import Needs, trains
from fedrec.federation.server.server import Server
from fedrec.federation.state.state import State
from fedrec.plan.fingerprint import PREFERRED_ENGINE

NOISE_STEPS = 1024
"""Most mini-batches of an epoch with noise on gradients; each mini-batch draws its own noise."""
ENGINES = {
    "fused": "fedrec.federation.engines.fused.engine",
    "batched": "fedrec.federation.engines.batched.engine",
    "loop": "fedrec.federation.engines.loop",
}
"""Module of each engine, with a function `make(memory, alone)`.

fedrec imports it by name, so a run depends only on the code of its own engine."""


@dataclass(frozen=True)
class Task:
    """One round of local training: program, clients, samples, mini-batches, state and server."""

    method: Method
    program: Program
    needs: Needs
    state: State
    server: Server
    clients: Clients
    who: Tensor
    samples: Samples
    batch_size: int
    seed: int
    round_: int
    privacy: UploadNoise | None = None
    from_own_copies: bool = False
    """Whether clients start from their own copies of shared parameters instead of the server's."""
    after_aggregation: bool = False
    """Whether clients run the program after aggregation."""
    recorder: Recorder | None = None
    """Observer of tables before and after training, if any."""

    @property
    def no_loss(self) -> float:
        """Loss of a client without training: NaN, which is an error, if the program trains; else 0."""
        return float("nan") if trains(self.program) and not self.after_aggregation else 0.0

    @property
    def recorded_tables(self) -> list[str]:
        """Tables that the recorder gets before and after training; usually none."""
        if self.recorder is None or self.after_aggregation or not self.recorder.records_training(self.round_):
            return []
        parts = self.state.parameters
        return [
            name
            for name in self.state.visible
            if parts[name].table and parts[name].location not in ("scratch", "given")
        ]

    def starts_from_own_copy(self, name: str) -> bool:
        """Whether clients start the round from their own values of `name`."""
        parameter = self.state.parameters[name]
        if parameter.location == "shared":
            return self.from_own_copies or (
                self.after_aggregation and name in self.method.scored_with_own_copy
            )
        return parameter.location in ("private", "local", "personal") and not parameter.reset_each_round


@dataclass(frozen=True)
class Outcome:
    """Result of a round of local training: each client's mean loss in its last epoch, and their mean.

    `mean` waits for a GPU, and raises `DivergenceError` if a client left the finite numbers. `slowest` is the
    time of the slowest client in seconds, or None if the engine does not time single clients.
    """

    loss: Tensor
    mean: Callable[[], float]
    slowest: float | None = None


class Engine(ABC):
    """Runs the program of a task: reads and writes its state, and sends uploads to its server."""

    name: str
    quick_compile = False
    """Whether a short compile time matters more than speed, as in the self-check; then nothing is logged."""

    @property
    def lacks_compiler(self) -> bool:
        """Whether a compiler was missing or failed, so that the next run may use another training path."""
        return False

    @abstractmethod
    def run(self, task: Task) -> Outcome:
        """Train every client of the task."""

    def notes(self) -> dict[str, Any]:
        """Description of the training path for `run.json`."""
        return {}


class Interpreter(ABC):
    """Executes the operations of a program in order, for one client or many."""

    def run(self, program: Program) -> None:
        """Execute every operation of the program."""
        for operation in program:
            if isinstance(operation, Fit):
                self.fit(operation)
            elif isinstance(operation, Rewrite):
                self.rewrite(operation)
            else:
                self.upload(operation)

    @abstractmethod
    def fit(self, fit: Fit) -> None:
        """Train."""

    @abstractmethod
    def rewrite(self, rewrite: Rewrite) -> None:
        """Replace a table."""

    @abstractmethod
    def upload(self, upload: Upload) -> None:
        """Send a parameter to the server."""


def engine_named(name: str, memory: int, alone: int = 0) -> Engine:
    """The engine called `name`; `auto` is the preferred one.

    Clients may take `memory` bytes together; one that needs more may take `alone` bytes.
    """
    chosen = PREFERRED_ENGINE if name == "auto" else name
    if chosen not in ENGINES:
        raise ConfigurationError(
            f"unknown engine '{name}'.{did_you_mean(name, ENGINES)} There are: auto, {', '.join(ENGINES)}."
        )
    engine: Engine = importlib.import_module(ENGINES[chosen]).make(memory, alone)
    return engine


def slower_engines(name: str) -> list[str]:
    """The engine called `name` and its replacements, quickest first; the last one is the reference."""
    names = [*ENGINES]
    return names[names.index(name) :]


def check_clients_finite(task: Task, who: Tensor, loss: Tensor, values: dict[str, Tensor]) -> None:
    """Raise `DivergenceError` naming round, client and parameter if a number is not finite.

    `values` holds the trained parameters: (clients, ...).
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
