"""Base class of federated methods.

A method names its parameters and their locations, and scores items. It records one local round as its paper
writes it: the steps in their order, and the uploads. An ordinary method needs only `parameters`, `score`,
`local_round` and perhaps `loss`. A server that does more than average uploads is a `ServerRule`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeAlias

from torch import Tensor

from fedrec.federation.model.citation import Citation
from fedrec.federation.model.client import Client, GaussianMechanism, Half, Step
from fedrec.federation.model.parameters import Parameter
from fedrec.federation.model.server_rule import ServerRule
from fedrec.federation.model.weights import Batch, Loss, Weights, mean_entropy

Who: TypeAlias = Literal["nobody", "participants", "everyone"]


class Method(ABC):
    """A federated method."""

    paper: ClassVar[Citation | None] = None
    """The paper of the method; None for a reference of this project."""

    cost: ClassVar[str] = ""
    """Cost of a round, for a table."""

    item_table: ClassVar[str] = "Q"
    """The shared item table, which plug-ins replace."""

    personal_table: ClassVar[str | None] = None
    """The item table of a client in addition to the shared one, if the method has one."""

    additive: ClassVar[bool] = True
    """Whether the score adds the personal table to the shared one, instead of replacing it."""

    scored_with_own_copy: tuple[str, ...] = ()
    """Shared parameters of which each client scores with its last trained copy, not the server's value."""

    server_rule: ClassVar[type[ServerRule]] = ServerRule
    """The class of `server`."""

    server: ServerRule
    """Object that aggregates uploads."""

    def __init__(self, settings: Mapping[str, Any], items: int) -> None:
        self.settings = settings
        self.items = items
        self.server = self.server_rule(settings, items)

    @abstractmethod
    def parameters(self) -> dict[str, Parameter]:
        """Parameters of the model, by name."""

    @abstractmethod
    def score(self, w: Weights, items: Tensor) -> Tensor:
        """Logit of each item."""

    @abstractmethod
    def local_round(self, client: Client) -> None:
        """Record one round on a client, once per round: it may depend only on settings and the round."""

    def loss(self, w: Weights, batch: Batch) -> Tensor:
        """Mean binary cross-entropy of the scores."""
        return mean_entropy(self.score(w, batch.items), batch)

    def after_aggregation(self, client: Client) -> Who:  # noqa: ARG002 - most do nothing
        """Hook: record local work after aggregation and before scoring; return the clients that do it.

        They upload nothing more. Their samples are the client's training items with other negatives.
        """
        return "nobody"

    def derived(self, w: Weights) -> dict[str, Tensor]:  # noqa: ARG002 - most methods have none
        """Compute numbers from whole tables, before every epoch and before scoring.

        A client reads them as further vectors of `w`; no gradient flows through them.
        """
        return {}

    def privacy(self, samples: Tensor, rounds: int) -> dict[str, Any]:  # noqa: ARG002 - see override
        """Privacy guarantee of the method's own mechanism after `rounds`, if it has one, for `run.json`.

        `samples` (clients) is the number of training samples of each client.
        """
        return {}

    def item_rate(self) -> float:
        """Learning rate of item rows: rate x item_factor (x number of items for `item_scale=items`).

        The scale is that of PFedRec's code: few samples use a row, and all samples use everything else.
        """
        scale = self.items if self.settings["item_scale"] == "items" else 1
        return float(self.settings["rate"] * self.settings["item_factor"] * scale)

    def step(
        self,
        client: Client,
        rates: Mapping[str, float],
        weight_decay: Mapping[str, float] | None = None,
        gradient_noise: Mapping[str, GaussianMechanism] | None = None,
    ) -> Step:
        """A step by the run's optimiser, with the rates of this round."""
        shrunk = self.settings["round_decay"] ** (client.round_ - 1)
        return Step(
            {name: rate * shrunk for name, rate in rates.items()},
            self.settings["optimiser"],
            weight_decay or {},
            self.settings["batch_decay"],
            gradient_noise or {},
        )

    def fit(
        self,
        client: Client,
        *steps: Step,
        loss: Loss | None = None,
        epochs: int | None = None,
        samples: Half | None = None,
    ) -> None:
        """Record the local epochs of a round, by the run's settings; the default loss is `self.loss`."""
        client.fit(
            *steps,
            epochs=self.settings["local_epochs"] if epochs is None else epochs,
            loss=loss or self.loss,
            early_stop=self.settings["early_stop"],
            samples=samples,
        )
