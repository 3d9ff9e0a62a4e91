"""EM, elastic merging: each client decides, item by item, how much of the server's item table it merges.

tables     L_u the client's own item table, kept over rounds and uploaded; G the server's item table
merged     l_i + rho_i (g_i - l_i), rho_i = adapter(g_i - l_i, l_i) in (0, 1); the adapter stays private
           (FedEM's Eq. 9 and 10)
client     trains the adapter on the merged table (Eq. 11), merges, then trains as the backbone does (Eq. 12)
scored     own table merged with the server's newest

Three orders of one local round with E epochs (`merging`):

    order   source            1st                   2nd                     3rd
    once    FedEM's text      E epochs of adapter   merge L                 E epochs of the backbone on L
    epoch   Algorithm 1       1 epoch of adapter    merge L into M          1 epoch of the backbone on M;
                                                                            all E times, then L = M
    batch   official code     merge L               in every mini-batch a step of the adapter and one of the
                                                    backbone, both through the merge

Four ways to merge (`merge`): with `elastic`, the adapter computes rho for each item; with `dynamic`, one rho
for all items. With `static`, rho is `weight`; with `replace`, rho is 1. `merged=aggregated` is the official
code: with `aggregated=0.1`, nine of ten clients neither receive a table nor merge in a round.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.federation.model import (
    Citation,
    Combined,
    Fit,
    Initial,
    Operation,
    Parameter,
    Plugin,
    Program,
    Rewrite,
    Step,
    Upload,
    View,
    Weights,
    mlp,
    perceptron,
    refuse_gradient_noise,
)


class ElasticMerging(Plugin):
    """A backbone whose item table is merged with the server's instead of replaced by it."""

    paper = Citation(
        "Chen et al.",
        "Breaking the aggregation bottleneck in federated recommendation: a personalized model "
        "merging approach",
        "AAAI",
        2026,
    )
    cost = "O(n m d) to merge every row, besides the backbone's."

    def parameters(self) -> dict[str, Parameter]:
        """The item table becomes the client's own; G and the adapter are added."""
        model, name = self.with_server_names(self.backbone.parameters()), self.backbone.item_table
        # A client's own table starts as the server's, so merging changes nothing in its first round.
        own = replace(model[name], location="local", start="G")
        model |= {name: own, "G": model[name]}
        return model | self.scratch(own) | self.adapter(own.shape[1])

    def scratch(self, own: Parameter) -> dict[str, Parameter]:  # noqa: ARG002 - see override
        """Hook: further tables of a round, shaped like the own one."""
        return {}

    def adapter(self, d: int) -> dict[str, Parameter]:
        """Theta, the perceptron that computes rho."""
        return mlp("adapter", (2 * d, *self.settings["adapter"], 1), "private")

    def rho(self, w: Weights, own: Tensor, difference: Tensor) -> Tensor | float:
        """The share of the difference between two rows that the client merges (FedEM's Eq. 9)."""
        return torch.sigmoid(perceptron(w, "adapter", torch.cat((difference, own), dim=-1)))

    def merge(self, w: Weights, own: Tensor, other: Tensor) -> Tensor:
        """The rows of the own table, merged with the same rows of the server's (Eq. 10)."""
        return own + self.weight(w, own, other - own) * (other - own)

    def weight(self, w: Weights, own: Tensor, difference: Tensor) -> Tensor | float:
        """The share of the difference that this client merges."""
        return self.rho(w, own, difference)

    def merged(self, w: Weights, items: Tensor) -> Tensor:
        """The rows of the merged table."""
        return self.merge(w, w[self.backbone.item_table][items], w.G[items])

    @override
    def view(self, w: Weights) -> Weights:
        # The backbone sees the merged table.
        own = self.backbone.item_table
        return View(w, {own: Combined(partial(self.merge, w), w[own], w.G)})

    @override
    def server_name(self, name: str) -> str:
        # The server's item table is G.
        return "G" if name == self.backbone.item_table else name

    def adapter_step(self) -> tuple[Step, ...]:
        """The step that trains the adapter, if there is one."""
        names = [name for name in self.parameters() if name.startswith("adapter")]
        step = Step(dict.fromkeys(names, self.settings["adapter_rate"]), self.settings["adapter_optimiser"])
        return (step,) if names else ()

    @override
    def transform(self, program: Program) -> Program:
        # The own table is uploaded at the end of the round, into the backbone's target.
        own = self.backbone.item_table
        uploads = [step for step in program if isinstance(step, Upload) and step.name == own]
        rest = [step for step in program if step not in uploads]
        return (
            *self.merging(rest),
            *(replace(upload, into="G") if upload.into == own else upload for upload in uploads),
        )

    def merging(self, program: Sequence[Operation]) -> Iterator[Operation]:
        """E epochs of the adapter, one merge, then the backbone's round on the merged table."""
        settings = self.settings
        if steps := self.adapter_step():
            loss = self.loss_of(self.backbone.loss)
            yield Fit(steps, settings["local_epochs"], loss, settings["early_stop"])
        yield Rewrite(self.backbone.item_table, self.merged)
        for operation in program:
            if isinstance(operation, Fit):
                refuse_gradient_noise(operation.steps)
                yield operation
            else:
                yield from self.transform_operation(operation)


class OnlyAggregated(ElasticMerging):
    """A client that was not aggregated in the last round gets no table; it trains and scores with its own."""

    @override
    def weight(self, w: Weights, own: Tensor, difference: Tensor) -> Tensor | float:
        return super().weight(w, own, difference) * w.held


class EveryEpoch(ElasticMerging):
    """In every epoch: train the adapter, merge the table from the start of the round into M, train M."""

    @override
    def scratch(self, own: Parameter) -> dict[str, Parameter]:
        return {"M": replace(own, location="scratch", start=None, initial=Initial("constant", 0.0))}

    @override
    def merging(self, program: Sequence[Operation]) -> Iterator[Operation]:
        for operation in program:
            if isinstance(operation, Fit):
                refuse_gradient_noise(operation.steps)
                for _ in range(operation.epochs):
                    yield from self.epoch(operation)
            else:
                yield from self.transform_operation(operation)
        yield Rewrite(self.backbone.item_table, lambda w, items: w.M[items])

    def epoch(self, fit: Fit) -> Iterator[Operation]:
        """One epoch: adapter, merge, training of the merged table M, without early stop."""
        name, loss = self.backbone.item_table, fit.loss

        def on_merged(step: Step) -> Step:
            def named(by_name: Mapping[str, float]) -> dict[str, float]:
                return {"M" if key == name else key: value for key, value in by_name.items()}

            return replace(step, rates=named(step.rates), weight_decay=named(step.weight_decay))

        for step in self.adapter_step():
            yield Fit((step,), 1, self.loss_of(loss), samples=fit.samples)
        yield Rewrite("M", self.merged)
        steps = tuple(map(on_merged, fit.steps))
        yield Fit(steps, 1, lambda w, batch: loss(View(w, {name: w.M}), batch), samples=fit.samples)


class EveryBatch(ElasticMerging):
    """A merge, then in every mini-batch a step of the adapter and one of the backbone on merged rows."""

    @override
    def merging(self, program: Sequence[Operation]) -> Iterator[Operation]:
        yield Rewrite(self.backbone.item_table, self.merged)
        for operation in program:
            for changed in self.transform_operation(operation):
                if isinstance(changed, Fit):
                    yield replace(changed, steps=(*self.adapter_step(), *changed.steps))
                else:
                    yield changed


class Dynamic(ElasticMerging):
    """DM: the adapter computes one rho for all items, from the mean of its inputs over items."""

    @override
    def derived(self, w: Weights) -> dict[str, Tensor]:
        own, other = w[self.backbone.item_table].row_sum(), w.G.row_sum()
        return super().derived(w) | {"pooled": torch.cat((other - own, own), dim=-1) / self.items}

    @override
    def rho(self, w: Weights, own: Tensor, difference: Tensor) -> Tensor | float:
        return torch.sigmoid(perceptron(w, "adapter", w.pooled))


class Static(ElasticMerging):
    """SM: one rho for all items and clients, and no adapter."""

    @override
    def adapter(self, d: int) -> dict[str, Parameter]:
        return {}

    @override
    def rho(self, w: Weights, own: Tensor, difference: Tensor) -> Tensor | float:
        return float(self.settings["weight"])


class Replacement(Static):
    """SR: the server's table replaces the own one."""

    @override
    def rho(self, w: Weights, own: Tensor, difference: Tensor) -> Tensor | float:
        return 1.0


PLUGIN = ElasticMerging
VARIANTS = {
    ("merged", "aggregated"): OnlyAggregated,
    ("merging", "epoch"): EveryEpoch,
    ("merging", "batch"): EveryBatch,
    ("merge", "dynamic"): Dynamic,
    ("merge", "static"): Static,
    ("merge", "replace"): Replacement,
}
