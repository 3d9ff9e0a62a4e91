"""EM, elastic merging: how much of the server's item table a client takes over, item by item.

Tables     L_u the client's own item table, kept over rounds and uploaded; G what the server sends back
merged     l_i + rho_i (g_i - l_i), rho_i = adapter(g_i - l_i, l_i) in (0, 1); the adapter stays private
client     trains the adapter alone on the merged table, merges, then trains as the backbone does
scored     own table merged with the server's newest

`merging` tells when: `once` (E epochs of the adapter, one merge, the backbone's round), `epoch` (the paper's
text by the letter: adapter, merge and training in every epoch, each time from the table the round began with)
or `batch` (the official code: merge first, then in every mini-batch a step of the adapter and one of the
backbone, both through the merge). `merge` replaces rho by one number of the adapter for all items
(`dynamic`), by `weight` (`static`) or by 1 (`replace`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.federation.model import (
    Citation,
    Combined,
    Fit,
    Initial,
    Location,
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
    refuse_guarded,
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

    global_location: ClassVar[Location] = "shared"

    @property
    def adaptive(self) -> bool:
        """Whether an adapter decides how much is taken over."""
        return self.settings["merge"] in ("elastic", "dynamic")

    def parameters(self) -> dict[str, Parameter]:
        """The item table becomes the client's own; G and the adapter are added."""
        model, name = self.restarted(self.backbone.parameters()), self.backbone.item_table
        # A client's own table starts as the server's: nothing is there to be merged in its first round.
        start = "G" if self.global_location == "shared" else None
        own = replace(model[name], location="local", start=start)
        model |= {name: own, "G": replace(model[name], location=self.global_location)}
        if self.settings["merging"] == "epoch":
            model["M"] = replace(own, location="scratch", start=None, initial=Initial("constant", 0.0))
        if self.adaptive:
            model |= mlp("adapter", (2 * own.shape[1], *self.settings["adapter"], 1), "private")
        return model

    def derived(self, w: Weights) -> dict[str, Tensor]:
        """For one weight for all items: the mean over items of what the adapter looks at."""
        derived = super().derived(w)
        if self.settings["merge"] != "dynamic":
            return derived
        own, other = w[self.backbone.item_table].row_sum(), w.G.row_sum()
        return derived | {"pooled": torch.cat((other - own, own), dim=-1) / self.items}

    def weight(self, w: Weights, own: Tensor, difference: Tensor) -> Tensor | float:
        """Rho: how much of the difference is taken over."""
        if self.settings["merge"] == "elastic":
            rho: Tensor | float = torch.sigmoid(
                perceptron(w, "adapter", torch.cat((difference, own), dim=-1))
            )
        elif self.settings["merge"] == "dynamic":
            rho = torch.sigmoid(perceptron(w, "adapter", w.pooled))
        else:
            rho = 1.0 if self.settings["merge"] == "replace" else self.settings["weight"]
        return rho * w.held if self.global_location == "personal" else rho

    def merge(self, w: Weights, own: Tensor, other: Tensor) -> Tensor:
        """Rows of the own table, merged with the same rows of the server's."""
        return own + self.weight(w, own, other - own) * (other - own)

    def merged(self, w: Weights, items: Tensor) -> Tensor:
        """The rows of the merged table."""
        return self.merge(w, w[self.backbone.item_table][items], w.G[items])

    @override
    def view(self, w: Weights) -> Weights:
        # The backbone sees the merged table.
        own = self.backbone.item_table
        return View(w, {own: Combined(partial(self.merge, w), w[own], w.G)})

    def adapter_step(self) -> tuple[Step, ...]:
        """The step that trains the adapter, if there is one."""
        names = [name for name in self.parameters() if name.startswith("adapter")]
        step = Step(dict.fromkeys(names, self.settings["adapter_rate"]), self.settings["adapter_optimiser"])
        return (step,) if names else ()

    @override
    def transform(self, program: Program) -> Program:
        """Merge, and train as the backbone does, in the order `merging` asks for.

        The own table is uploaded when the round is over, to where the backbone uploads it.
        """
        own = self.backbone.item_table
        uploads = [step for step in program if isinstance(step, Upload) and step.name == own]
        rest = [step for step in program if step not in uploads]
        return (
            *self._rounds[self.settings["merging"]](self, rest),
            *(replace(upload, into="G") if upload.into == own else upload for upload in uploads),
        )

    def once(self, program: Sequence[Operation]) -> Iterator[Operation]:
        """E epochs of the adapter, one merge, the backbone's round on the table as it then is."""
        settings = self.settings
        if self.adaptive:
            loss = self.loss_of(self.backbone.loss)
            yield Fit(self.adapter_step(), settings["local_epochs"], loss, settings["early_stop"])
        yield Rewrite(self.backbone.item_table, self.merged)
        for operation in program:
            if isinstance(operation, Fit):
                refuse_guarded(operation.steps)
                yield operation
            else:
                yield from self.changed(operation)

    def every_epoch(self, program: Sequence[Operation]) -> Iterator[Operation]:
        """In every epoch the adapter, a merge of the table the round began with, training of the result."""
        for operation in program:
            if isinstance(operation, Fit):
                refuse_guarded(operation.steps)
                for _ in range(operation.epochs):
                    yield from self.epoch(operation)
            else:
                yield from self.changed(operation)
        yield Rewrite(self.backbone.item_table, lambda w, items: w.M[items])

    def epoch(self, fit: Fit) -> Iterator[Operation]:
        """One epoch: adapter, merge, training of the merged table M. It has no running mean to stop by."""
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

    def every_batch(self, program: Sequence[Operation]) -> Iterator[Operation]:
        """A merge, then in every mini-batch a step of the adapter and one of the backbone, both merged."""
        yield Rewrite(self.backbone.item_table, self.merged)
        for operation in program:
            for changed in self.changed(operation):
                if isinstance(changed, Fit):
                    yield replace(changed, steps=(*self.adapter_step(), *changed.steps))
                else:
                    yield changed

    _rounds: ClassVar = MappingProxyType({"once": once, "epoch": every_epoch, "batch": every_batch})

    def stored(self, name: str) -> str:
        """The server's item table is G."""
        return "G" if name == self.backbone.item_table else name


PLUGIN = ElasticMerging
