"""DualPer: what PFedRec adds to a backbone, a private score function and post-tuned item tables.

client     for every mini-batch first a step on everything but the item table, then, on a loss computed
           again, a step on the item table (PFedRec's Algorithm 1, ClientUpdate, lines 7 to 11)
upload     the item table; with `score_part=private` nothing else, with `score_part=shared` also the
           backbone's other shared parameters (the other reading of the paper: post-tuning alone)
scored     own item table as last trained

A backbone that scores by a plain product gets a bias. So FedMF with DualPer is PFedRec.
"""

from dataclasses import replace

from torch import Tensor
from typing_extensions import override

from fedrec.federation.model import Citation, Initial, Loss, Method, Parameter, Plugin, Step, Weights, vector


class DualPer(Plugin):
    """A backbone with a personal score function and a personal item table."""

    paper = Citation(
        "Zhang et al.",
        "Dual personalization on federated recommendation",
        "IJCAI",
        2023,
    )
    cost = "the backbone's, with two gradients per mini-batch."

    def __init__(self, backbone: Method, settings: dict[str, object], items: int) -> None:
        super().__init__(backbone, settings, items)
        self.scored_with_own_copy = (backbone.item_table,)

    def parameters(self) -> dict[str, Parameter]:
        """The score function becomes private; a plain product gets a bias."""
        model = self.score_part(self.backbone.parameters())
        if not any(name.startswith("mlp") for name in model):
            bias = vector(1, "private", Initial("uniform", self.settings["d"] ** -0.5))
            # The bias is part of the score function, and is reset with it.
            model["b"] = replace(bias, reset_each_round=any(part.reset_each_round for part in model.values()))
        return model

    def score_part(self, model: dict[str, Parameter]) -> dict[str, Parameter]:
        """The backbone's parameters, of which only the item table stays shared."""
        table = self.backbone.item_table
        return {
            name: replace(part, location="private") if part.location == "shared" and name != table else part
            for name, part in model.items()
        }

    def score(self, w: Weights, items: Tensor) -> Tensor:
        """The backbone's score, plus the bias b."""
        scored = self.backbone.score(w, items)
        return scored + w.b.squeeze(-1) if "b" in w else scored

    def steps(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """Split each step in two: everything but the item table, then the item table."""
        table = self.backbone.item_table
        split: list[Step] = []
        for step in steps:
            rest = {name: rate for name, rate in step.rates.items() if name != table}
            if "p" in rest and "b" in self.parameters():
                rest["b"] = rest["p"]
            items = {name: rate for name, rate in step.rates.items() if name == table}
            split += [replace(step, rates=rates) for rates in (rest, items) if rates]
        return tuple(split)

    def loss_of(self, loss: Loss) -> Loss:  # noqa: ARG002 - the entropy of the plug-in's own score
        """Mean binary cross-entropy of the scores, bias included."""
        return self.loss

    def upload_target(self, name: str) -> str | None:
        """Keep a parameter that became private on the client."""
        return name if self.parameters()[name].location == "shared" else None


class PostTuningAlone(DualPer):
    """The other reading of the paper: shared parameters of the backbone stay shared."""

    @override
    def score_part(self, model: dict[str, Parameter]) -> dict[str, Parameter]:
        return model


PLUGIN = DualPer
VARIANTS = {("score_part", "shared"): PostTuningAlone}
