"""Base class of plug-ins: a method that transforms the local round of its backbone.

A plug-in gives its backbone other tables (`view`), extends its loss and its steps, and changes the targets
of uploads. It records the local round of the backbone, and transforms it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor
from typing_extensions import override

from fedrec.errors import ConfigurationError
from fedrec.federation.model.client import (
    Client,
    Fit,
    Operation,
    Program,
    Rewrite,
    Step,
    TableRewrite,
    recorded,
)
from fedrec.federation.model.method import Method, Who
from fedrec.federation.model.parameters import Parameter
from fedrec.federation.model.server_rule import RenamedRule
from fedrec.federation.model.weights import Loss, RowsOf, Weights


class Plugin(Method):
    """A method that extends another one, the backbone; this base class changes nothing."""

    def __init__(self, backbone: Method, settings: Mapping[str, Any], items: int) -> None:
        super().__init__(settings, items)
        self.backbone = backbone
        self.scored_with_own_copy = backbone.scored_with_own_copy
        names = {name: self.server_name(name) for name in backbone.parameters()}
        self.server = RenamedRule(backbone.server, names)

    @override
    def parameters(self) -> dict[str, Parameter]:
        return self.backbone.parameters()

    @override
    def score(self, w: Weights, items: Tensor) -> Tensor:
        return self.backbone.score(self.view(w), items)

    @override
    def local_round(self, client: Client) -> None:
        client.perform(self.transform(recorded(self.backbone.local_round, client.round_)))

    @override
    def after_aggregation(self, client: Client) -> Who:
        asked = Client(client.round_)
        who = self.backbone.after_aggregation(asked)
        client.perform(self.transform_after(asked.program))
        return who

    @override
    def derived(self, w: Weights) -> dict[str, Tensor]:
        return self.backbone.derived(w)

    @override
    def privacy(self, samples: Tensor, rounds: int) -> dict[str, Any]:
        return self.backbone.privacy(samples, rounds)

    def transform(self, program: Program) -> Program:
        """Transform the backbone's local round: every operation, by the hooks below."""
        return tuple(changed for operation in program for changed in self.transform_operation(operation))

    def transform_after(self, program: Program) -> Program:
        """Transform the backbone's program after aggregation: every operation by the hooks below."""
        return tuple(changed for operation in program for changed in self.transform_operation(operation))

    def transform_operation(self, operation: Operation) -> Iterator[Operation]:
        """Replace one operation of the backbone by operations of the plug-in."""
        if isinstance(operation, Fit):
            refuse_gradient_noise(operation.steps)
            yield replace(operation, steps=self.steps(operation.steps), loss=self.loss_of(operation.loss))
        elif isinstance(operation, Rewrite):
            if not self.protects(operation.name):
                yield replace(operation, rows=self.rows_of(operation.rows))
        else:
            # An explicit target of the backbone stays.
            named = operation.into != operation.name
            goal = operation.into if named else self.upload_target(operation.name)
            if goal is not None:
                yield replace(operation, into=goal)

    def view(self, w: Weights) -> Weights:
        """Hook: the parameters as the backbone sees them."""
        return w

    def steps(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """Hook: the steps of a mini-batch, given the backbone's."""
        return steps

    def loss_of(self, loss: Loss) -> Loss:
        """Hook: the loss, given the backbone's."""
        return lambda w, batch: loss(self.view(w), batch)

    def rows_of(self, rows: RowsOf | TableRewrite) -> RowsOf | TableRewrite:
        """Rewrite of a table that reads parameters through `view`."""
        if isinstance(rows, TableRewrite):
            return rows
        return lambda w, items: rows(self.view(w), items)

    def protects(self, name: str) -> bool:  # noqa: ARG002 - see override
        """Hook: whether a table keeps its values where the backbone would rewrite it."""
        return False

    def server_name(self, name: str) -> str:
        """Hook: name on the server of the backbone's shared parameter `name`."""
        return name

    def upload_target(self, name: str) -> str | None:
        """Hook: parameter of the server into which `name` is uploaded; None if it stays on the client."""
        return name

    def with_server_names(self, model: dict[str, Parameter]) -> dict[str, Parameter]:
        """The model, whose `start` entries name the server's parameters; see `server_name`."""
        return {
            name: part if part.start is None else replace(part, start=self.server_name(part.start))
            for name, part in model.items()
        }


def refuse_gradient_noise(steps: tuple[Step, ...]) -> None:
    """Raise `ConfigurationError` if a step has noise on gradients.

    A plug-in trains further parameters on the same samples, which the mechanism does not cover.
    """
    if any(step.gradient_noise for step in steps):
        raise ConfigurationError("noise on gradients (dp_noise) covers no plug-in: use the backbone alone.")
