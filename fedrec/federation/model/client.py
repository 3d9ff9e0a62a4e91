"""The local round as data: the operations that a method requests of a client.

A method writes `client.fit(...)`, `client.upload("Q")`, `client.rewrite(...)` as its paper does. The client
only records them as a `Program`, once per round. Engines execute the program for one client or many, and
plug-ins transform it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from torch import Tensor

from fedrec.federation.model.weights import Loss, RowsOf

OptimiserName: TypeAlias = Literal["adam", "sgd"]
Half: TypeAlias = Literal["first", "second"]
"""Half of a client's training interactions with their negatives; each round splits them again (FedRecon)."""


@dataclass(frozen=True)
class GaussianMechanism:
    """Differential privacy for a table's gradient, sample by sample.

    The gradient of each sample is scaled down to norm `clip`. Every number of the mean over a mini-batch of B
    samples gets normal noise of deviation `multiplier` x `clip` / B.
    """

    clip: float
    multiplier: float


@dataclass(frozen=True)
class Step:
    """One gradient step of a mini-batch: the parameters it moves, their rates, and the optimiser.

    Updates are those of torch.optim. `weight_decay` adds that multiple of a parameter to its gradient. After
    every step of a client, its rates are multiplied by `batch_decay`. `gradient_noise` makes the gradients of
    tables differentially private. With `keep_state`, Adam's moments and step count last between rounds;
    otherwise every `fit` resets them. A `loss` replaces that of the fit.
    """

    rates: Mapping[str, float]
    optimiser: OptimiserName
    weight_decay: Mapping[str, float] = field(default_factory=dict)
    batch_decay: float = 1.0
    gradient_noise: Mapping[str, GaussianMechanism] = field(default_factory=dict)
    keep_state: bool = False
    loss: Loss | None = None


@dataclass(frozen=True)
class Fit:
    """`epochs` over this round's samples, or over a half of them (`samples`), shuffled, in mini-batches.

    The steps of a mini-batch follow each other, and each computes its loss again. Optimisers start without
    state, unless `Step.keep_state`. With `early_stop`, a client stops after an epoch, from its second, in
    which the running mean of its losses changed by less than that share.
    """

    steps: tuple[Step, ...]
    epochs: int
    loss: Loss
    early_stop: float | None = None
    samples: Half | None = None


class TableRewrite(ABC):
    """A `Rewrite` of a whole table, given the old table and the server's parameters.

    One object serves all clients of a round, so it may cache values that are the same for all.
    """

    @abstractmethod
    def of_one(self, table: Tensor, server: Mapping[str, Tensor]) -> Tensor:
        """Define the new table (items, d) of one client."""

    @abstractmethod
    def of_many(self, tables: Tensor, server: Mapping[str, Tensor]) -> Tensor:
        """Compute `of_one` for many clients at once: (clients, items, d)."""


class UploadTransform(ABC):
    """A function of a whole table, whose value is uploaded instead of the table."""

    label: str
    """Name of its value, for lists of uploads."""

    @abstractmethod
    def of_one(self, table: Tensor) -> Tensor:
        """Define the upload of one client, given its table (items, d)."""

    @abstractmethod
    def weighted_sum(self, tables: Tensor, weights: Tensor) -> Tensor:
        """Sum over clients of weight x `of_one`, for tables (clients, items, d) and weights (clients)."""


@dataclass(frozen=True)
class Rewrite:
    """Replacement of every row of a table that is not shared: row by row, or all at once."""

    name: str
    rows: RowsOf | TableRewrite


@dataclass(frozen=True)
class Upload:
    """Upload of the current values of a shared, local, personal or scratch parameter.

    The server combines them into its parameter `into`. With `transform`, the client sends a function of the
    whole table.
    """

    name: str
    into: str
    transform: UploadTransform | None = None


Operation: TypeAlias = Fit | Rewrite | Upload
Program: TypeAlias = tuple[Operation, ...]


class Client:
    """Recorder of the operations of a local round, as a `Program`."""

    def __init__(self, round_: int) -> None:
        """Start to record round `round_`, counted from 1."""
        self.round_ = round_
        self._operations: list[Operation] = []

    @property
    def program(self) -> Program:
        """Operations recorded so far, in order."""
        return tuple(self._operations)

    def fit(
        self,
        *steps: Step,
        epochs: int,
        loss: Loss,
        early_stop: float | None = None,
        samples: Half | None = None,
    ) -> None:
        """Train; see `Fit`."""
        self._operations.append(Fit(steps, epochs, loss, early_stop, samples))

    def rewrite(self, name: str, rows: RowsOf | TableRewrite) -> None:
        """Replace a table; see `Rewrite`."""
        self._operations.append(Rewrite(name, rows))

    def upload(self, *names: str, into: str | None = None, transform: UploadTransform | None = None) -> None:
        """Send parameters into those of the same name, or into `into`; see `Upload`."""
        self._operations += [Upload(name, into or name, transform) for name in names]

    def perform(self, operations: Iterable[Operation]) -> None:
        """Append recorded operations."""
        self._operations += operations


def recorded(work: Callable[[Client], Any], round_: int) -> Program:
    """Record the program of `work` in a round."""
    client = Client(round_)
    work(client)
    return client.program
