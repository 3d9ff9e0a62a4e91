"""What plug-ins are made of: a method around a backbone, and a client that does more than it is asked.

A plug-in shows its backbone other tables (`view`), adds to its loss and its steps, and changes
where uploads go; the backbone's local round runs as it is written.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedrec.errors import ConfigurationError
from fedrec.federation.method import Client, Loss, Method, RowsOf, Step, Weights
from fedrec.federation.parameters import Parameter


class Plugin(Method):
    """A method made of another one; as it stands it changes nothing."""

    def __init__(self, backbone: Method, settings: Mapping[str, Any], items: int) -> None:
        super().__init__(settings, items)
        self.backbone = backbone
        self.evaluated = backbone.evaluated
        self.dense = backbone.dense

    def parameters(self) -> dict[str, Parameter]:
        """The backbone's."""
        return self.backbone.parameters()

    def score(self, w: Weights, items: Tensor) -> Tensor:
        """The backbone's, with what the plug-in shows it."""
        return self.backbone.score(self.view(w), items)

    def local_round(self, client: Client) -> None:
        """The backbone's, on a client that does what the plug-in adds."""
        self.backbone.local_round(PluggedClient(client, self))

    def derived(self, w: Weights) -> dict[str, Tensor]:
        """The backbone's."""
        return self.backbone.derived(w)

    def mixing(self, uploads: Tensor, share: Tensor) -> Tensor:
        """The backbone's."""
        return self.backbone.mixing(uploads, share)

    def pairs(self) -> int:
        """The backbone's."""
        return self.backbone.pairs()

    def privacy(self, samples: Tensor, rounds: int) -> dict[str, Any]:
        """The backbone's."""
        return self.backbone.privacy(samples, rounds)

    def view(self, w: Weights) -> Weights:
        """The parameters as the backbone shall see them."""
        return w

    def steps(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """The steps of a mini-batch, given the backbone's."""
        return steps

    def loss_of(self, loss: Loss) -> Loss:
        """The loss, given the backbone's."""
        return lambda w, batch: loss(self.view(w), batch)

    def goal(self, name: str) -> str | None:
        """The parameter of the server that uploads of `name` go into; None where they stay at home."""
        return name


class PluggedClient:
    """A client as the backbone of a plug-in sees it."""

    def __init__(self, client: Client, plugin: Plugin) -> None:
        self.client = client
        self.plugin = plugin

    @property
    def round_(self) -> int:
        """See `method.Client.round_`."""
        return self.client.round_

    def fit(self, *steps: Step, epochs: int, loss: Loss, early_stop: float | None = None) -> None:
        """See `method.Client.fit`."""
        refuse_guarded(steps)
        self.client.fit(
            *self.plugin.steps(steps), epochs=epochs, loss=self.plugin.loss_of(loss), early_stop=early_stop
        )

    def rewrite(self, name: str, rows: RowsOf) -> None:
        """See `method.Client.rewrite`."""
        self.client.rewrite(name, lambda w, items: rows(self.plugin.view(w), items))

    def upload(self, *names: str, into: str | None = None) -> None:
        """See `method.Client.upload`."""
        for name in names:
            goal = into or self.plugin.goal(name)
            if goal is not None:
                self.client.upload(name, into=goal)


def refuse_guarded(steps: tuple[Step, ...]) -> None:
    """Raise `ConfigurationError` if a step's gradients are to be private.

    A plug-in trains parts of its own on the same samples, which the mechanism knows nothing of.
    """
    if any(step.guarded for step in steps):
        raise ConfigurationError("noise on gradients (dp_noise) covers no plug-in: use the backbone alone.")
