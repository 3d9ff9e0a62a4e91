"""Base class of plug-ins: a method that transforms the local round of its backbone.

A plug-in shows its backbone other tables (`view`), adds to its loss and its steps, and changes
where uploads go; the backbone's local round is recorded as it is written, and then transformed.
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
    """A method made of another one; as it stands it changes nothing."""

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
        """The local round, given the backbone's: every operation by the hooks below."""
        return tuple(changed for operation in program for changed in self.transform_operation(operation))

    def transform_after(self, program: Program) -> Program:
        """Transform the backbone's program after aggregation: every operation by the hooks below."""
        return tuple(changed for operation in program for changed in self.transform_operation(operation))

    def transform_operation(self, operation: Operation) -> Iterator[Operation]:
        """Operations that replace one operation of the backbone."""
        if isinstance(operation, Fit):
            refuse_gradient_noise(operation.steps)
            yield replace(operation, steps=self.steps(operation.steps), loss=self.loss_of(operation.loss))
        elif isinstance(operation, Rewrite):
            if not self.protects(operation.name):
                yield replace(operation, rows=self.rows_of(operation.rows))
        else:
            # What the backbone sends into another parameter goes there.
            named = operation.into != operation.name
            goal = operation.into if named else self.upload_target(operation.name)
            if goal is not None:
                yield replace(operation, into=goal)

    def view(self, w: Weights) -> Weights:
        """Hook: the parameters as the backbone shall see them."""
        return w

    def steps(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """Hook: the steps of a mini-batch, given the backbone's."""
        return steps

    def loss_of(self, loss: Loss) -> Loss:
        """Hook: the loss, given the backbone's."""
        return lambda w, batch: loss(self.view(w), batch)

    def rows_of(self, rows: RowsOf | TableRewrite) -> RowsOf | TableRewrite:
        """Function that rewrites a table, seen through `view`."""
        if isinstance(rows, TableRewrite):
            return rows
        return lambda w, items: rows(self.view(w), items)

    def protects(self, name: str) -> bool:  # noqa: ARG002 - see override
        """Hook: whether clients keep a table that the backbone would rewrite."""
        return False

    def server_name(self, name: str) -> str:
        """Hook: the server's parameter that stands for the backbone's shared `name`."""
        return name

    def upload_target(self, name: str) -> str | None:
        """Hook: the parameter of the server that uploads of `name` go into; None where they stay at home."""
        return name

    def with_server_names(self, model: dict[str, Parameter]) -> dict[str, Parameter]:
        """The model, in which what started from the backbone's shared table starts from where that now is."""
        return {
            name: part if part.start is None else replace(part, start=self.server_name(part.start))
            for name, part in model.items()
        }


def refuse_gradient_noise(steps: tuple[Step, ...]) -> None:
    """Raise `ConfigurationError` if a step's gradients are to be private.

    A plug-in trains parts of its own on the same samples, which the mechanism knows nothing of.
    """
    if any(step.gradient_noise for step in steps):
        raise ConfigurationError("noise on gradients (dp_noise) covers no plug-in: use the backbone alone.")
