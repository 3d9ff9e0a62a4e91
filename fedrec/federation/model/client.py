"""The local round as data: what a method asks of a client, written down.

A method writes `client.fit(...)`, `client.upload("Q")`, `client.rewrite(...)` as its paper does. The
client it is given trains nothing: it records a `Program`, once per round, which engines interpret
for one client or for many, and plug-ins transform.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from torch import Tensor

from fedrec.federation.model.weights import Loss, RowsOf

OptimiserName: TypeAlias = Literal["adam", "sgd"]
Half: TypeAlias = Literal["first", "second"]
"""Of a client's training interactions, each with its negatives; dealt out anew in every round (FedRecon)."""


@dataclass(frozen=True)
class GaussianMechanism:
    """Differential privacy for a table's gradient, sample by sample.

    The gradient of each sample is scaled down to norm `clip`; to every number of the mean over
    a mini-batch of B samples is added normal noise of deviation `multiplier` x `clip` / B.
    """

    clip: float
    multiplier: float


@dataclass(frozen=True)
class Step:
    """One gradient step of a mini-batch: which parameters move, at which rates, and how.

    `weight_decay` adds that multiple of a parameter to its gradient; after every step of a
    client its rates are multiplied by `batch_decay`. As torch.optim computes them. `gradient_noise`
    puts differential privacy on the gradients of tables. With `keep_state`, Adam's moments and
    count of steps last from round to round instead of starting anew in every `fit`. A `loss` of its
    own takes the place of the fit's.
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
    """`epochs` over this round's samples, or over a half of them (`samples`), reshuffled, in mini-batches.

    For every mini-batch the steps are done in order, each on a loss computed anew. Optimisers start
    fresh (but see `Step.keep_state`). With `early_stop`, a client stops after an epoch, from its second
    on, in which the running mean of its losses changed by less than that share.
    """

    steps: tuple[Step, ...]
    epochs: int
    loss: Loss
    early_stop: float | None = None
    samples: Half | None = None


class TableRewrite(ABC):
    """A new whole table, given the old one and the server's parameters: what a `Rewrite` may go by.

    One object serves the clients of one round, so that it may cache what is the same for all.
    """

    @abstractmethod
    def of_one(self, table: Tensor, server: Mapping[str, Tensor]) -> Tensor:
        """The definition: the new table (items, d) of one client."""

    @abstractmethod
    def of_many(self, tables: Tensor, server: Mapping[str, Tensor]) -> Tensor:
        """The same for many clients at once: (clients, items, d)."""


class UploadTransform(ABC):
    """A function of a whole table that is uploaded in the table's place."""

    label: str
    """What it makes of a table, for lists of uploads."""

    @abstractmethod
    def of_one(self, table: Tensor) -> Tensor:
        """The definition: what one client sends of its table (items, d)."""

    @abstractmethod
    def weighted_sum(self, tables: Tensor, weights: Tensor) -> Tensor:
        """The sum over clients of weight x `of_one`, for tables (clients, items, d), without each of them."""


@dataclass(frozen=True)
class Rewrite:
    """Every row of a table that is not shared is replaced: row by row, or the whole table at once."""

    name: str
    rows: RowsOf | TableRewrite


@dataclass(frozen=True)
class Upload:
    """The present values of a shared, local or personal parameter go to the server.

    The server combines them into its parameter `into`. With `transform`, what is sent is a function of
    the whole table.
    """

    name: str
    into: str
    transform: UploadTransform | None = None


Operation: TypeAlias = Fit | Rewrite | Upload
Program: TypeAlias = tuple[Operation, ...]


class Client:
    """Records what a method asks of a client in its local round, as a `Program`."""

    def __init__(self, round_: int) -> None:
        """`round_` is the number of the round, from 1."""
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
        """Train: see `Fit`."""
        self._operations.append(Fit(steps, epochs, loss, early_stop, samples))

    def rewrite(self, name: str, rows: RowsOf | TableRewrite) -> None:
        """Replace a table: see `Rewrite`."""
        self._operations.append(Rewrite(name, rows))

    def upload(self, *names: str, into: str | None = None, transform: UploadTransform | None = None) -> None:
        """Send parameters into those of the same name, or into `into`: see `Upload`."""
        self._operations += [Upload(name, into or name, transform) for name in names]

    def perform(self, operations: Iterable[Operation]) -> None:
        """Ask for operations that were recorded before."""
        self._operations += operations


def recorded(work: Callable[[Client], Any], round_: int) -> Program:
    """Program that `work` records for a client in a round."""
    client = Client(round_)
    work(client)
    return client.program
