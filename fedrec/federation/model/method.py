"""What a federated method says about itself, and what it may ask of a client.

A method names its parameters and where they live, scores items, and writes one local round
as its paper does: what is trained, in which order, what is uploaded. The engines run that
round for one client (`loop`) or for many at once (`batched`); a method cannot tell which.

In a score, `w.Q[items]` are the rows of a table for a batch of items and `w.p` a vector, with
whatever axes the engine adds in front: `(w.Q[items] * w.p).sum(-1)` serves both engines.
`w.rows` is the client's number of training rows. A method with personal parameters also finds
`w.held`: 1 where the client got one in the last round, else 0.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

from torch import Tensor
from torch.nn import functional

from fedrec.federation.model.parameters import Parameter
from fedrec.federation.state.kept import Kept

Optimiser: TypeAlias = Literal["adam", "sgd"]
Half: TypeAlias = Literal["first", "second"]
"""Of a client's training rows, each with its negatives; dealt out anew in every round."""


class Table(Protocol):
    """The rows of an item table."""

    def __getitem__(self, items: Tensor) -> Tensor:
        """One vector per item."""

    def whole(self) -> Tensor:
        """Every row, where the method is `dense`."""

    def training_sum(self) -> Tensor:
        """The sum of the rows of the client's training items, shaped as a vector."""

    def squared_norm(self) -> Tensor:
        """The sum of the squares of the whole table, shaped as a vector of size 1."""

    def row_sum(self) -> Tensor:
        """The sum of all rows, shaped as a vector."""


class Weights(Protocol):
    """The parameters of a client, or of many clients, by name."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a table or a tensor
        """The parameter called `name`: a `Table` or a tensor."""

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - a table or a tensor
        """The same, for names that are no attribute, such as `mlp.0`."""

    def __contains__(self, name: object) -> bool:
        """Whether there is a parameter called `name`."""


class Batch(Protocol):
    """Samples of one mini-batch per client."""

    items: Tensor
    labels: Tensor

    @property
    def size(self) -> Tensor:
        """Samples of the client's mini-batch."""

    def mean(self, values: Tensor) -> Tensor:
        """The mean of one value per sample over each client's samples."""

    def distinct(self) -> Tensor:
        """1 for one sample of every distinct item of the client's mini-batch, 0 for all others."""

    def occurrences(self) -> Tensor:
        """For each sample, how many of the client's mini-batch are of the same item."""


Loss: TypeAlias = Callable[[Weights, Batch], Tensor]
RowsOf: TypeAlias = Callable[[Weights, Tensor], Tensor]
"""The new rows of a table for some items, each a function of the same rows of other tables alone."""
Mixed: TypeAlias = Tensor | tuple[Tensor, Tensor]


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
    client its rates are multiplied by `batch_decay`. As torch.optim computes them. `guarded`
    puts differential privacy on the gradients of tables. With `keep_state`, Adam's moments and
    count of steps last from round to round instead of starting anew in every `fit`. A `loss` of its
    own takes the place of the fit's.
    """

    rates: Mapping[str, float]
    optimiser: Optimiser
    weight_decay: Mapping[str, float] = field(default_factory=dict)
    batch_decay: float = 1.0
    guarded: Mapping[str, GaussianMechanism] = field(default_factory=dict)
    keep_state: bool = False
    loss: Loss | None = None


class Client(Protocol):
    """What a method may ask of a client in its local round."""

    @property
    def round_(self) -> int:
        """The number of the round, from 1."""

    def fit(
        self,
        *steps: Step,
        epochs: int,
        loss: Loss,
        early_stop: float | None = None,
        half: Half | None = None,
    ) -> None:
        """Go `epochs` times over this round's samples, or a half of them, reshuffled, in mini-batches.

        For every mini-batch the steps are done in order, each on a loss computed anew.
        Optimisers start fresh (but see `Step.keep_state`). With `early_stop`, a client stops after
        an epoch, from its second on, in which the running mean of its losses changed by less than
        that share.
        """

    def rewrite(self, name: str, rows: RowsOf) -> None:
        """Replace every row of a table that is not shared by what `rows` gives."""

    def upload(self, *names: str, into: str | None = None) -> None:
        """Send the present values of shared or local parameters to the server.

        The server combines them into the parameter of the same name, or into `into`.
        """

    def upload_products(self, name: str, into: str) -> None:
        """Send the products of every two rows of a table, and not the table, to the server."""

    def approach_products(self, name: str, goal: str, steps: int, rate: float, decay: float) -> None:
        """Bring the products of a table's rows towards the server's `goal`.

        By `steps` of SGD with weight decay on the (not squared) norm of their difference.
        """


@dataclass(frozen=True)
class ServerSide:
    """What a method may use on the server, before and after the uploads of a round."""

    round_: int
    seed: int
    shared: MutableMapping[str, Tensor]
    """The server's parameters, one for all; may be replaced."""
    initial: Mapping[str, Tensor]
    """What every parameter was before the first round."""
    personal: Mapping[str, Kept]
    """The server's parameters, one per client."""
    clients: int
    """How many there are."""
    who: Tensor
    """The clients whose uploads are aggregated in this round."""
    share: Tensor
    """The weight of each of them in a plain mean."""


class Method(ABC):
    """A federated method."""

    item_table: ClassVar[str] = "Q"
    """The shared table of items: the part that plug-ins take over."""

    personal_table: ClassVar[str | None] = None
    """The table of items that a client has besides the shared one, where a method has one."""

    additive: ClassVar[bool] = True
    """Whether the personal table is added to the shared one, or takes its place."""

    evaluated: Mapping[str, Literal["global", "own"]] = {}
    """For each shared parameter, whether users are scored with the server's newest (the default) or
    with the copy they trained last."""

    dense: bool = False
    """Whether gradients or optimisers move rows of tables that hold no sample (SGD's weight decay apart)."""

    def __init__(self, settings: Mapping[str, Any], items: int) -> None:
        self.settings = settings
        self.items = items

    mixed: bool = True
    """Whether uploads of personal parameters are mixed (see `mixing`), or everyone is left its own."""

    concluding: Literal["nobody", "participants", "everyone"] = "nobody"
    """Who does more when the server has answered (see `conclude`)."""

    @abstractmethod
    def parameters(self) -> dict[str, Parameter]:
        """The model's parts."""

    @abstractmethod
    def score(self, w: Weights, items: Tensor) -> Tensor:
        """The logit of each item."""

    @abstractmethod
    def local_round(self, client: Client) -> None:
        """One round on a client."""

    def derived(self, w: Weights) -> dict[str, Tensor]:  # noqa: ARG002 - most methods have none
        """Numbers that follow from whole tables: found anew before every epoch and before scoring.

        A client sees them as further vectors of `w`; no gradient flows through them.
        """
        return {}

    def conclude(self, client: Client) -> None:
        """What a client does after the server has answered, before it is scored; it uploads nothing more.

        Samples are drawn anew: the client's training rows with other negatives.
        """
        raise NotImplementedError

    def begin(self, server: ServerSide) -> None:  # noqa: B027 - most do nothing
        """What the server does before clients download."""

    def choose(self, server: ServerSide, count: int) -> Tensor | None:  # noqa: ARG002 - most draw at random
        """Which `count` clients take part, in order; None to draw them at random."""
        return None

    def mixing(self, name: str, uploads: Tensor, server: ServerSide) -> Mixed:
        """How uploads of `name` become personal values: the weight of each (column) for each client (row).

        `uploads` holds one flat vector per client of `server.who`. Where many clients get the same, the
        weights may be given as a product of two matrices.
        """
        raise NotImplementedError

    def finish(self, server: ServerSide) -> None:  # noqa: B027 - most do nothing
        """What the server does besides, when uploads have been aggregated."""

    def weighed_rows(self, rows: Tensor) -> Tensor:
        """How many training rows an upload stands for, given how many its client has."""
        return rows

    def pairs(self) -> int:
        """Matrices of samples x samples that the loss of a mini-batch holds, to size blocks by."""
        return 0

    def privacy(self, samples: Tensor, rounds: int) -> dict[str, Any]:  # noqa: ARG002 - see override
        """What the method's own mechanism guarantees after `rounds`, if it has one; for `run.json`.

        `samples` is the number of training samples of each client.
        """
        return {}

    def item_rate(self) -> float:
        """The rate of item tables: `rate` times `item_factor`, and times the number of items where
        `item_scale` says so (a row is touched by few samples, everything else by all).
        """
        scale = self.items if self.settings["item_scale"] == "items" else 1
        return float(self.settings["rate"] * self.settings["item_factor"] * scale)

    def step(
        self,
        client: Client,
        rates: Mapping[str, float],
        weight_decay: Mapping[str, float] | None = None,
        guarded: Mapping[str, GaussianMechanism] | None = None,
    ) -> Step:
        """A step by the run's optimiser, its rates shrunk as far as this round asks for."""
        shrunk = self.settings["round_decay"] ** (client.round_ - 1)
        return Step(
            {name: rate * shrunk for name, rate in rates.items()},
            self.settings["optimiser"],
            weight_decay or {},
            self.settings["batch_decay"],
            guarded or {},
        )

    def fit(
        self,
        client: Client,
        *steps: Step,
        loss: Loss | None = None,
        epochs: int | None = None,
        half: Half | None = None,
    ) -> None:
        """The local epochs of a round, by the run's settings; on the mean entropy if no loss is given."""
        client.fit(
            *steps,
            epochs=self.settings["local_epochs"] if epochs is None else epochs,
            loss=loss or self.loss,
            early_stop=self.settings["early_stop"],
            half=half,
        )

    def loss(self, w: Weights, batch: Batch) -> Tensor:
        """Mean binary cross-entropy of the scores."""
        return mean_entropy(self.score(w, batch.items), batch)


def mean_entropy(scores: Tensor, batch: Batch) -> Tensor:
    """The mean binary cross-entropy of each client's samples, given their logits."""
    return batch.mean(functional.binary_cross_entropy_with_logits(scores, batch.labels, reduction="none"))


def perceptron(w: Weights, name: str, x: Tensor) -> Tensor:
    """The output of the perceptron `name` (see `parameters.mlp`), rectified between its layers."""
    layer = 0
    while True:
        x = x @ w[f"{name}.{layer}"] + w[f"{name}.{layer}.bias"]
        layer += 1
        if f"{name}.{layer}" not in w:
            return x
        x = functional.relu(x)
