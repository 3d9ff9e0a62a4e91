"""Base class of federated methods.

A method names its parameters and where they live, scores items, and writes one local round as its
paper does: what is trained, in which order, what is uploaded. An ordinary method needs no more than
`parameters`, `score`, `local_round` and perhaps `loss`; what its server does besides averaging
uploads is a `ServerRule`.
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
    """Where it comes from; None for a reference of this project."""

    cost: ClassVar[str] = ""
    """What a round costs, for a table."""

    item_table: ClassVar[str] = "Q"
    """The shared table of items: the part that plug-ins take over."""

    personal_table: ClassVar[str | None] = None
    """The table of items that a client has besides the shared one, where a method has one."""

    additive: ClassVar[bool] = True
    """Whether the personal table is added to the shared one, or takes its place."""

    scored_with_own_copy: tuple[str, ...] = ()
    """Shared parameters of which users are scored with the copy they trained last; of all others with the
    server's newest."""

    server_rule: ClassVar[type[ServerRule]] = ServerRule
    """The class of `server`."""

    server: ServerRule
    """What the server does."""

    def __init__(self, settings: Mapping[str, Any], items: int) -> None:
        self.settings = settings
        self.items = items
        self.server = self.server_rule(settings, items)

    @abstractmethod
    def parameters(self) -> dict[str, Parameter]:
        """The model's parts."""

    @abstractmethod
    def score(self, w: Weights, items: Tensor) -> Tensor:
        """The logit of each item."""

    @abstractmethod
    def local_round(self, client: Client) -> None:
        """One round on a client. Asked once per round: it may depend on settings and the round alone."""

    def loss(self, w: Weights, batch: Batch) -> Tensor:
        """Mean binary cross-entropy of the scores."""
        return mean_entropy(self.score(w, batch.items), batch)

    def after_aggregation(self, client: Client) -> Who:  # noqa: ARG002 - most do nothing
        """Hook: local work after aggregation and before scoring; returns the clients that do it.

        They upload nothing more. Samples are drawn anew: the client's training items with other negatives.
        """
        return "nobody"

    def derived(self, w: Weights) -> dict[str, Tensor]:  # noqa: ARG002 - most methods have none
        """Numbers derived from whole tables: computed again before every epoch and before scoring.

        A client sees them as further vectors of `w`; no gradient flows through them.
        """
        return {}

    def privacy(self, samples: Tensor, rounds: int) -> dict[str, Any]:  # noqa: ARG002 - see override
        """Privacy guarantee of the method's own mechanism after `rounds`, if it has one, for `run.json`.

        `samples` is the number of training samples of each client.
        """
        return {}

    def item_rate(self) -> float:
        """Learning rate of item rows: rate x item_factor (x number of items for `item_scale=items`).

        The scale is PFedRec's code's: a row is touched by few samples, everything else by all.
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
        """A step by the run's optimiser, its rates shrunk as far as this round asks for."""
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
        """The local epochs of a round, by the run's settings; on the mean entropy if no loss is given."""
        client.fit(
            *steps,
            epochs=self.settings["local_epochs"] if epochs is None else epochs,
            loss=loss or self.loss,
            early_stop=self.settings["early_stop"],
            samples=samples,
        )
