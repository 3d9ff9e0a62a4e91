"""EM, elastic merging: how much of the server's item table a client takes over, item by item.

Chen et al.: Breaking the aggregation bottleneck in federated recommendation: a personalized model merging
approach, AAAI 2026.

Tables     L_u the client's own item table, kept over rounds and uploaded; G what the server sends back
merged     l_i + rho_i (g_i - l_i), rho_i = adapter(g_i - l_i, l_i) in (0, 1); the adapter stays private
client     trains the adapter alone on the merged table, merges, then trains as the backbone does
scored     own table merged with the server's newest

`merging` tells when: `once` (E epochs of the adapter, one merge, the backbone's round), `epoch` (the paper's
text by the letter: adapter, merge and training in every epoch, each time from the table the round began with)
or `batch` (the official code: merge first, then in every mini-batch a step of the adapter and one of the
backbone, both through the merge). `merge` replaces rho by one number of the adapter for all items
(`dynamic`), by `weight` (`static`) or by 1 (`replace`).

Cost per round: O(n m d) to merge every row, besides the backbone's.
"""

from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from fedrec.federation.model.method import Client, Half, Loss, Step, Weights, perceptron
from fedrec.federation.model.parameters import Initial, Parameter, Place, mlp
from fedrec.federation.model.plugin import PluggedClient, Plugin, refuse_guarded
from fedrec.federation.model.weights import View


class ElasticMerging(Plugin):
    """A backbone whose item table is merged with the server's instead of replaced by it."""

    global_place: ClassVar[Place] = "shared"

    @property
    def adaptive(self) -> bool:
        """Whether an adapter decides how much is taken over."""
        return self.settings["merge"] in ("elastic", "dynamic")

    def parameters(self) -> dict[str, Parameter]:
        """The item table becomes the client's own; G and the adapter are added."""
        model, name = self._restarted(self.backbone.parameters()), self.backbone.item_table
        # A client's own table starts as the server's: nothing is there to be merged in its first round.
        start = "G" if self.global_place == "shared" else None
        own = replace(model[name], place="local", rewritten=True, start=start)
        model |= {name: own, "G": replace(model[name], place=self.global_place)}
        if self.settings["merging"] == "epoch":
            model["M"] = replace(own, place="scratch", start=None, initial=Initial("constant", 0.0))
        if self.adaptive:
            model |= mlp("adapter", (2 * own.shape[1], *self.settings["adapter"], 1), "private")
        return model

    def derived(self, w: Weights) -> dict[str, Tensor]:
        """For one weight for all items: the mean over items of what the adapter looks at."""
        found = super().derived(w)
        if self.settings["merge"] != "dynamic":
            return found
        own, other = w[self.backbone.item_table].row_sum(), w.G.row_sum()
        return found | {"pooled": torch.cat((other - own, own), dim=-1) / self.items}

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
        return rho * w.held if self.global_place == "personal" else rho

    def merged(self, w: Weights, items: Tensor) -> Tensor:
        """The rows of the merged table."""
        return self._merge(w, w[self.backbone.item_table][items], w.G[items])

    def merged_whole(self, w: Weights) -> Tensor:
        """All of them, where tables are held whole."""
        return self._merge(w, w[self.backbone.item_table].whole(), w.G.whole())

    def _merge(self, w: Weights, own: Tensor, other: Tensor) -> Tensor:
        rows: Tensor = own + self.weight(w, own, other - own) * (other - own)
        return rows

    def view(self, w: Weights) -> Weights:
        """The backbone sees the merged table."""
        return View(w, {self.backbone.item_table: _Merged(self, w)})

    def adapter_step(self) -> tuple[Step, ...]:
        """The step that trains the adapter, if there is one."""
        names = [name for name in self.parameters() if name.startswith("adapter")]
        step = Step(dict.fromkeys(names, self.settings["adapter_rate"]), self.settings["adapter_optimiser"])
        return (step,) if names else ()

    def local_round(self, client: Client) -> None:
        """Merge, and train as the backbone does, in the order `merging` asks for."""
        merging = self.settings["merging"]
        wraps: dict[str, type[_MergingClient]] = {
            "once": _PlainClient,
            "epoch": _EpochClient,
            "batch": _BatchClient,
        }
        wrapped = wraps[merging](client, self)
        if merging == "epoch":
            self.backbone.local_round(wrapped)
            client.rewrite(self.backbone.item_table, lambda w, items: w.M[items])
            wrapped.upload_table()
            return
        if merging == "once" and self.adaptive:
            client.fit(
                *self.adapter_step(),
                epochs=self.settings["local_epochs"],
                loss=self.loss_of(self.backbone.loss),
                early_stop=self.settings["early_stop"],
            )
        client.rewrite(self.backbone.item_table, self.merged)
        self.backbone.local_round(wrapped)
        wrapped.upload_table()

    def stored(self, name: str) -> str:
        """The server's item table is G."""
        return "G" if name == self.backbone.item_table else name


class _Merged:
    """The merged table, row by row."""

    def __init__(self, plugin: ElasticMerging, w: Weights) -> None:
        self.plugin = plugin
        self.w = w

    def __getitem__(self, items: Tensor) -> Tensor:
        return self.plugin.merged(self.w, items)

    def whole(self) -> Tensor:
        """See `method.Table`."""
        return self.plugin.merged_whole(self.w)


class _MergingClient(PluggedClient):
    """A client that sends its item table when the round is over, to where the backbone sends it."""

    plugin: ElasticMerging

    def __init__(self, client: Client, plugin: ElasticMerging) -> None:
        super().__init__(client, plugin)
        self.goals: list[str] = []

    def upload(self, *names: str, into: str | None = None) -> None:
        """See `method.Client.upload`."""
        for name in names:
            if name == self.plugin.backbone.item_table:
                self.goals.append(into or "G")
            else:
                super().upload(name, into=into)

    def upload_table(self) -> None:
        """Send the item table."""
        for goal in self.goals:
            self.client.upload(self.plugin.backbone.item_table, into=goal)


class _BatchClient(_MergingClient):
    """Every mini-batch trains the adapter and then the backbone, both through the merge."""

    def steps(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """The adapter's, then the backbone's."""
        return (*self.plugin.adapter_step(), *steps)


class _PlainClient(_MergingClient):
    """The table has been merged: the backbone trains on it as it is."""

    def loss_of(self, loss: Loss) -> Loss:
        """The backbone's own."""
        return loss


class _EpochClient(_MergingClient):
    """Every epoch trains the adapter, merges the table the round began with, and trains the result."""

    def fit(
        self,
        *steps: Step,
        epochs: int,
        loss: Loss,
        early_stop: float | None = None,  # noqa: ARG002 - an epoch has no running mean
        half: Half | None = None,
    ) -> None:
        """See `method.Client.fit`."""
        refuse_guarded(steps)
        name = self.plugin.backbone.item_table

        def on_merged(step: Step) -> Step:
            def named(of: dict[str, float]) -> dict[str, float]:
                return {"M" if key == name else key: value for key, value in of.items()}

            return replace(step, rates=named(dict(step.rates)), weight_decay=named(dict(step.weight_decay)))

        for _ in range(epochs):
            for step in self.plugin.adapter_step():
                self.client.fit(step, epochs=1, loss=self.plugin.loss_of(loss), half=half)
            self.client.rewrite("M", self.plugin.merged)
            self.client.fit(
                *map(on_merged, steps),
                epochs=1,
                loss=lambda w, batch: loss(View(w, {name: w.M}), batch),
                half=half,
            )


PLUGIN = ElasticMerging
