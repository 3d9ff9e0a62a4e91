"""What a federated method says about itself, and what it may ask of a client.

A method names its parameters and where they live, scores items, and writes one local round
as its paper does: what is trained, in which order, what is uploaded. The engines run that
round for one client (`loop`) or for many at once (`batched`); a method cannot tell which.

In a score, `w.Q[items]` are the rows of a table for a batch of items and `w.p` a vector, with
whatever axes the engine adds in front: `(w.Q[items] * w.p).sum(-1)` serves both engines.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

from torch import Tensor
from torch.nn import functional

from fedrec.federation.parameters import Parameter

Optimiser: TypeAlias = Literal["adam", "sgd"]


class Table(Protocol):
    """The rows of an item table."""

    def __getitem__(self, items: Tensor) -> Tensor:
        """One vector per item."""


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

    def mean(self, values: Tensor) -> Tensor:
        """The mean of one value per sample over each client's samples."""


Loss: TypeAlias = Callable[[Weights, Batch], Tensor]
Noise: TypeAlias = Callable[[str, Tensor, tuple[int, ...]], Tensor]
"""What is added to an upload: from its name, the clients and its shape, one value per client."""


@dataclass(frozen=True)
class Step:
    """One gradient step of a mini-batch: which parameters move, at which rates, and how.

    `weight_decay` adds that multiple of a parameter to its gradient; after every step of a
    client its rates are multiplied by `batch_decay`. As torch.optim computes them.
    """

    rates: Mapping[str, float]
    optimiser: Optimiser
    weight_decay: Mapping[str, float] = field(default_factory=dict)
    batch_decay: float = 1.0


class Client(Protocol):
    """What a method may ask of a client in its local round."""

    def fit(self, *steps: Step, epochs: int, loss: Loss, early_stop: float | None = None) -> None:
        """Go `epochs` times over this round's samples, reshuffled, in mini-batches.

        For every mini-batch the steps are done in order, each on a loss computed anew.
        Optimisers start fresh. With `early_stop`, a client stops after an epoch, from its
        second on, in which the running mean of its losses changed by less than that share.
        """

    def upload(self, *names: str, noise: Noise | None = None) -> None:
        """Send the present values of shared parameters to the server, with `noise` if asked for.

        The client's own copy stays as it is.
        """


class Method(ABC):
    """A federated method."""

    evaluated: ClassVar[Mapping[str, Literal["global", "own"]]] = {}
    """For each shared parameter, whether users are scored with the server's newest (the default) or
    with the copy they trained last."""

    dense: bool = False
    """Whether local rounds touch rows of tables that hold no sample (weight decay, sums over a table)."""

    def __init__(self, settings: Mapping[str, Any], items: int) -> None:
        self.settings = settings
        self.items = items

    @abstractmethod
    def parameters(self) -> dict[str, Parameter]:
        """The model's parts."""

    @abstractmethod
    def score(self, w: Weights, items: Tensor) -> Tensor:
        """The logit of each item."""

    @abstractmethod
    def local_round(self, client: Client) -> None:
        """One round on a client."""

    def item_rate(self) -> float:
        """The rate of item tables: `rate` times `item_factor`, and times the number of items where
        `item_scale` says so (a row is touched by few samples, everything else by all).
        """
        scale = self.items if self.settings["item_scale"] == "items" else 1
        return float(self.settings["rate"] * self.settings["item_factor"] * scale)

    def loss(self, w: Weights, batch: Batch) -> Tensor:
        """Mean binary cross-entropy of the scores."""
        entropy = functional.binary_cross_entropy_with_logits(
            self.score(w, batch.items), batch.labels, reduction="none"
        )
        return batch.mean(entropy)


def perceptron(w: Weights, name: str, x: Tensor) -> Tensor:
    """The output of the perceptron `name` (see `parameters.mlp`), rectified between its layers."""
    layer = 0
    while True:
        x = x @ w[f"{name}.{layer}"] + w[f"{name}.{layer}.bias"]
        layer += 1
        if f"{name}.{layer}" not in w:
            return x
        x = functional.relu(x)
