"""What plug-ins are made of: a method around a backbone, and a client that does more than it is asked.

A plug-in shows its backbone other tables (`view`), adds to its loss and its steps, and changes
where uploads go; the backbone's local round runs as it is written.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from fedrec.errors import ConfigurationError
from fedrec.federation.model.method import (
    Client,
    Half,
    Loss,
    Method,
    Mixed,
    RowsOf,
    ServerSide,
    Step,
    Weights,
)
from fedrec.federation.model.parameters import Parameter


class Plugin(Method):
    """A method made of another one; as it stands it changes nothing."""

    def __init__(self, backbone: Method, settings: Mapping[str, Any], items: int) -> None:
        super().__init__(settings, items)
        self.backbone = backbone
        self.evaluated = backbone.evaluated
        self.dense = backbone.dense
        self.mixed = backbone.mixed
        self.concluding = backbone.concluding

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

    def conclude(self, client: Client) -> None:
        """The backbone's, on a client that does what the plug-in adds."""
        self.backbone.conclude(PluggedClient(client, self))

    def begin(self, server: ServerSide) -> None:
        """The backbone's."""
        self.backbone.begin(self._seen(server))

    def choose(self, server: ServerSide, count: int) -> Tensor | None:
        """The backbone's."""
        return self.backbone.choose(self._seen(server), count)

    def mixing(self, name: str, uploads: Tensor, server: ServerSide) -> Mixed:
        """The backbone's."""
        return self.backbone.mixing(name, uploads, self._seen(server))

    def finish(self, server: ServerSide) -> None:
        """The backbone's."""
        self.backbone.finish(self._seen(server))

    def weighed_rows(self, rows: Tensor) -> Tensor:
        """The backbone's."""
        return self.backbone.weighed_rows(rows)

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

    def _seen(self, server: ServerSide) -> ServerSide:
        """The server as the backbone sees it: its item table is where its uploads now go."""
        names = {name: self.stored(name) for name in self.backbone.parameters()}
        return replace(server, shared=_Renamed(server.shared, names))

    def _restarted(self, model: dict[str, Parameter]) -> dict[str, Parameter]:
        """The model, in which what started from the backbone's shared table starts from where that now is."""
        return {
            name: one if one.start is None else replace(one, start=self.stored(one.start))
            for name, one in model.items()
        }

    def keeps(self, name: str) -> bool:  # noqa: ARG002 - see override
        """Whether clients keep a table that the backbone would replace."""
        return False

    def stored(self, name: str) -> str:
        """The server's parameter that stands for the backbone's shared `name`."""
        return name

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

    def fit(
        self,
        *steps: Step,
        epochs: int,
        loss: Loss,
        early_stop: float | None = None,
        half: Half | None = None,
    ) -> None:
        """See `method.Client.fit`."""
        refuse_guarded(steps)
        self.client.fit(
            *self.steps(steps), epochs=epochs, loss=self.loss_of(loss), early_stop=early_stop, half=half
        )

    def steps(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """The steps of a mini-batch, given the backbone's: the plug-in's."""
        return self.plugin.steps(steps)

    def loss_of(self, loss: Loss) -> Loss:
        """The loss, given the backbone's: the plug-in's."""
        return self.plugin.loss_of(loss)

    def rewrite(self, name: str, rows: RowsOf) -> None:
        """See `method.Client.rewrite`."""
        if self.plugin.keeps(name):
            return
        self.client.rewrite(name, lambda w, items: rows(self.plugin.view(w), items))

    def upload(self, *names: str, into: str | None = None) -> None:
        """See `method.Client.upload`."""
        for name in names:
            goal = into or self.plugin.goal(name)
            if goal is not None:
                self.client.upload(name, into=goal)

    def upload_products(self, name: str, into: str) -> None:
        """See `method.Client.upload_products`."""
        self.client.upload_products(name, into)

    def approach_products(self, name: str, goal: str, steps: int, rate: float, decay: float) -> None:
        """See `method.Client.approach_products`."""
        self.client.approach_products(name, goal, steps, rate, decay)


class _Renamed(MutableMapping[str, Tensor]):
    """A mapping whose keys have other names."""

    def __init__(self, values: MutableMapping[str, Tensor], names: Mapping[str, str]) -> None:
        self.values_, self.names = values, names

    def __getitem__(self, name: str) -> Tensor:
        return self.values_[self.names.get(name, name)]

    def __setitem__(self, name: str, value: Tensor) -> None:
        self.values_[self.names.get(name, name)] = value

    def __delitem__(self, name: str) -> None:
        raise TypeError("a server's parameters cannot be removed")

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_)

    def __len__(self) -> int:
        return len(self.values_)


def refuse_guarded(steps: tuple[Step, ...]) -> None:
    """Raise `ConfigurationError` if a step's gradients are to be private.

    A plug-in trains parts of its own on the same samples, which the mechanism knows nothing of.
    """
    if any(step.guarded for step in steps):
        raise ConfigurationError("noise on gradients (dp_noise) covers no plug-in: use the backbone alone.")
