"""PLGC: a client's own item table mixed with the server's, and kept from repeating what that one says.

Tables     C the client's own item table, kept over rounds and uploaded; G the mean of all, frozen on clients
mixing     q = lambda_c c + (1 - lambda_c) g, lambda_c = |C|^2 / (|C|^2 + |G|^2), anew in every epoch (dLGM)
loss       the backbone's on the mixed table + beta x redundancy of both views of a mini-batch's items (eRR):
           Z^C, Z^G = head(c), head(g); H = cosines of their columns;
           (1/d) sum (1 - H_ii)^2 + (gamma/d) sum over i != j of H_ij^2
upload     C into G; the head stays private
scored     own C mixed with the server's newest G

FedRAP already has two tables: there D is the own one and the shared table is the other, which keeps its own
training. `redundancy` replaces eRR by alignment and uniformity (`au`), a contrast of the two views
(`duorec`), decorrelation (`feddecorr`), or nothing; `mixing=off` leaves dLGM out.
"""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from fedrec.federation.model import (
    Batch,
    Citation,
    Combined,
    Loss,
    Parameter,
    Part,
    Plugin,
    Step,
    View,
    Weights,
    mlp,
    perceptron,
)

_TEMPERATURE = 0.1
_TINY = 1e-12


class PLGC(Plugin):
    """Personalised local-global collaboration over a backbone."""

    paper = Citation(
        "Shen et al.",
        "A model-agnostic strategy to mitigate embedding degradation in personalized federated "
        "recommendation",
        "",
        2025,
    )
    cost = "O(E S d^2) more on the clients; O(n m d) to average whole tables."

    @property
    def tables(self) -> tuple[str, str]:
        """The client's own item table, and the server's."""
        own, shared = self.backbone.personal_table, self.backbone.item_table
        return (shared, "G") if own is None else (own, shared)

    def parameters(self) -> dict[str, Parameter]:
        """The item table becomes the client's own beside the server's; a head is added."""
        model, (own, other) = self.restarted(self.backbone.parameters()), self.tables
        if other == "G":
            shared = model[own]
            model |= {own: replace(shared, location="local", start="G"), "G": shared}
        if self.settings["redundancy"] != "none":
            d = model[own].shape[1]
            model |= mlp("head", (d, *self.settings["head"], d), "private")
        return model

    def derived(self, w: Weights) -> dict[str, Tensor]:
        """The weight of the own table."""
        if self.settings["mixing"] == "off":
            return super().derived(w)
        own, other = (w[name].squared_norm() for name in self.tables)
        return super().derived(w) | {"lambda_c": own / (own + other)}

    def view(self, w: Weights) -> Weights:
        """The backbone sees the mixed table, or its two tables with their weights."""
        if self.settings["mixing"] == "off":
            return w
        own, other = self.tables
        if other == "G" or not self.backbone.additive:
            return View(w, {own: weighed((w[own], w.lambda_c), (w[other], 1 - w.lambda_c))})
        return View(w, {own: weighed((w[own], w.lambda_c)), other: weighed((w[other], 1 - w.lambda_c))})

    def loss_of(self, loss: Loss) -> Loss:
        """The backbone's loss on the mixed table, plus what the two views repeat."""
        beta = self.settings["beta"]

        def found(w: Weights, batch: Batch) -> Tensor:
            mixed = loss(self.view(w), batch)
            return mixed if "head.0" not in w else mixed + beta * self.redundancy(w, batch)

        return found

    def steps(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """The head trains with the own table."""
        names = [name for name in self.parameters() if name.startswith("head")]
        head = dict.fromkeys(names, self.settings["head_rate"])
        own = self.tables[0]
        return tuple(
            replace(step, rates={**step.rates, **head}) if own in step.rates else step for step in steps
        )

    def goal(self, name: str) -> str | None:
        """The own table goes into the server's."""
        own, other = self.tables
        return other if name == own else name

    def keeps(self, name: str) -> bool:
        """The own table outlasts what a backbone would start it from."""
        return name == self.tables[0]

    def stored(self, name: str) -> str:
        """The server's item table is G, where it did not have one besides."""
        own, other = self.tables
        return other if name == own else name

    def redundancy(self, w: Weights, batch: Batch) -> Tensor:
        """What is to be made small about the two views of each distinct item of the mini-batch."""
        chosen = batch.distinct().unsqueeze(-1)
        own, other = (perceptron(w, "head", w[name][batch.items]) for name in self.tables)
        if self.settings["redundancy"] == "au":
            return alignment_and_uniformity(own, other, chosen)
        if self.settings["redundancy"] == "duorec":
            return contrast(own, other, chosen)
        if self.settings["redundancy"] == "feddecorr":
            return decorrelation(own, chosen)
        if self.settings["centred"] == "yes":
            own, other = _centred(own, chosen), _centred(other, chosen)
        return repeated_columns(own, other, chosen, self.settings["gamma"])


def weighed(*parts: tuple[Part, Tensor]) -> Combined:
    """A sum of tables, each times its weight."""
    tables, weights = zip(*parts, strict=True)

    def combine(*rows: Tensor) -> Tensor:
        total: Tensor = sum(weight * own for weight, own in zip(weights, rows, strict=True))
        return total

    return Combined(combine, *tables, linear=True)


def column_cosines(own: Tensor, other: Tensor, chosen: Tensor) -> Tensor:
    """H: the cosine of every column of one view with every column of the other, over chosen samples."""
    own, other = own * chosen, other * chosen
    product = own.transpose(-1, -2) @ other
    return product / (_length(own).transpose(-1, -2) * _length(other)).clamp(min=_TINY)


def repeated_columns(own: Tensor, other: Tensor, chosen: Tensor, gamma: float) -> Tensor:
    """ERR: equal columns shall agree, different ones say different things."""
    h = column_cosines(own, other, chosen)
    agree = h.diagonal(dim1=-2, dim2=-1)
    apart = h.square().sum((-1, -2)) - agree.square().sum(-1)
    return ((1 - agree).square().sum(-1) + gamma * apart) / h.shape[-1]


def alignment_and_uniformity(own: Tensor, other: Tensor, chosen: Tensor) -> Tensor:
    """The views of an item shall lie together, different items spread over the sphere."""
    own, other = functional.normalize(own, dim=-1), functional.normalize(other, dim=-1)
    count = chosen.sum((-1, -2))
    aligned = ((own - other).square() * chosen).sum((-1, -2)) / count
    return aligned + (_uniformity(own, chosen) + _uniformity(other, chosen)) / 2


def contrast(own: Tensor, other: Tensor, chosen: Tensor) -> Tensor:
    """InfoNCE: an item's own view shall find its other view among those of the mini-batch."""
    own, other = functional.normalize(own, dim=-1), functional.normalize(other, dim=-1)
    likeness = own @ other.transpose(-1, -2) / _TEMPERATURE
    likeness = likeness.masked_fill(chosen.transpose(-1, -2) == 0, -torch.inf)
    each = likeness.logsumexp(-1, keepdim=True) - (own * other).sum(-1, keepdim=True) / _TEMPERATURE
    return (each * chosen).sum((-1, -2)) / chosen.sum((-1, -2))


def decorrelation(own: Tensor, chosen: Tensor) -> Tensor:
    """FedDecorr: the squared norm of the correlation matrix of the columns, by the squared dimension."""
    centred = _centred(own, chosen) * chosen
    correlation = column_cosines(centred, centred, chosen)
    return correlation.square().sum((-1, -2)) / own.shape[-1] ** 2


def _uniformity(rows: Tensor, chosen: Tensor) -> Tensor:
    distances = 2 - 2 * rows @ rows.transpose(-1, -2)
    both = chosen * chosen.transpose(-1, -2)
    # A pair of an item with itself says nothing; one item alone has no pairs, and is left at 0.
    pairs = both.sum((-1, -2)) - chosen.sum((-1, -2))
    total = ((-2 * distances).exp() * both).sum((-1, -2)) - chosen.sum((-1, -2))
    mean = total / pairs.clamp(min=1)
    return torch.where(pairs > 0, mean.clamp(min=_TINY).log(), 0.0)


def _centred(rows: Tensor, chosen: Tensor) -> Tensor:
    return rows - (rows * chosen).sum(-2, keepdim=True) / chosen.sum(-2, keepdim=True)


def _length(rows: Tensor) -> Tensor:
    # The square root has no slope at 0, where a head of rectified units may well put a column.
    return (rows.square().sum(-2, keepdim=True) + _TINY).sqrt()


PLUGIN = PLGC
