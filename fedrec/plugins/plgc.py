"""PLGC: a client's own item table mixed with the server's, with a loss against redundant dimensions.

tables     C the client's own item table, kept over rounds and uploaded; G the mean of all, frozen on clients
mixing     q = lambda_c c + (1 - lambda_c) g (Eq. 16), lambda_c = |C|^2 / (|C|^2 + |G|^2) (Eq. 14, 15),
           again in every epoch (dLGM; Algorithm 1, lines 18 to 20)
loss       the backbone's on the mixed table + beta x redundancy of both views of a mini-batch's items
           (Eq. 22; eRR): Z^C, Z^G = head(c), head(g); H = cosines of their columns (Eq. 18);
           (1/d) sum (1 - H_ii)^2 + (gamma/d) sum over i != j of H_ij^2 (Eq. 19)
upload     C into G (Algorithm 1, lines 5 and 7); the head stays private
scored     own C mixed with the server's newest G

FedRAP already has two tables. There D is the own one, and the shared table, which still trains, is the other.
`redundancy` replaces eRR by alignment and uniformity (`au`), a contrast of the two views (`duorec`),
decorrelation (`feddecorr`), or nothing. `mixing=off` leaves dLGM out. In the paper's text, C stays as it was
trained (`kept=own`). With `kept=mixed`, a round begins with C := Q, so that C forgets as fast as the mix
takes over from G.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor
from typing_extensions import override

from fedrec.errors import ConfigurationError
from fedrec.federation.model import (
    Batch,
    Citation,
    Combined,
    Loss,
    Method,
    Parameter,
    Part,
    Plugin,
    Program,
    Rewrite,
    Step,
    View,
    Weights,
    mlp,
    perceptron,
)
from fedrec.plugins._losses import (
    alignment_and_uniformity,
    centred,
    column_cosines,
    contrast,
    decorrelation,
)


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
        """The names of C, the client's own item table, and of G, the server's.

        A backbone with a personal table has both already.
        """
        own, shared = self.backbone.personal_table, self.backbone.item_table
        return (shared, "G") if own is None else (own, shared)

    def parameters(self) -> dict[str, Parameter]:
        """The client keeps its own item table in addition to the server's; a head is added."""
        model, (own, other) = self.with_server_names(self.backbone.parameters()), self.tables
        if own not in model:
            raise ConfigurationError(
                f"plgc mixes the own table {own} of its backbone with the shared one, but with these "
                "settings the backbone has none. Set tables=both."
            )
        if other == "G":
            # C starts as G when its client first takes part.
            shared = model[own]
            model |= {own: replace(shared, location="local", start="G"), "G": shared}
        return model | self.head(model[own].shape[1])

    def head(self, d: int) -> dict[str, Parameter]:
        """Projector and predictor of eRR."""
        return mlp("head", (d, *self.settings["head"], d), "private")

    def derived(self, w: Weights) -> dict[str, Tensor]:
        """lambda_c, the share of the own table in the mix (Eq. 15)."""
        own, other = (w[name].squared_norm() for name in self.tables)
        return super().derived(w) | {"lambda_c": own / (own + other)}

    def view(self, w: Weights) -> Weights:
        """The parameters with Q = lambda_c C + (1 - lambda_c) G in place of the item table (Eq. 16)."""
        own, other = self.tables
        if self.adds_tables:
            return View(w, {own: weighed((w[own], w.lambda_c)), other: weighed((w[other], 1 - w.lambda_c))})
        return View(w, {own: weighed((w[own], w.lambda_c), (w[other], 1 - w.lambda_c))})

    @property
    def adds_tables(self) -> bool:
        """Whether the backbone adds its two tables itself (FedRAP); then it sees each times its share."""
        return self.backbone.personal_table is not None and self.backbone.additive

    def loss_of(self, loss: Loss) -> Loss:
        """L = L_rec + beta L_eRR (Eq. 22), L_rec the backbone's loss on the mixed table."""
        beta: float = self.settings["beta"]
        return lambda w, batch: loss(self.view(w), batch) + beta * self.redundancy(w, batch)

    def redundancy(self, w: Weights, batch: Batch) -> Tensor:
        """L_eRR (Eq. 19) of the two views of each distinct item of the mini-batch."""
        return repeated_columns(*self.views(w, batch), self.settings["gamma"])

    def views(self, w: Weights, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Z^C, Z^G, and a mask of the rows that count: one for each distinct item."""
        chosen = batch.distinct().unsqueeze(-1)
        own, other = (perceptron(w, "head", w[name][batch.items]) for name in self.tables)
        return own, other, chosen

    def steps(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """Train the head with the own table."""
        names = [name for name in self.parameters() if name.startswith("head")]
        head = dict.fromkeys(names, self.settings["head_rate"])
        own = self.tables[0]
        return tuple(
            replace(step, rates={**step.rates, **head}) if own in step.rates else step for step in steps
        )

    def upload_target(self, name: str) -> str | None:
        """Upload C into G."""
        own, other = self.tables
        return other if name == own else name

    def protects(self, name: str) -> bool:
        """Protect C from rewrites of the backbone."""
        return name == self.tables[0]

    def server_name(self, name: str) -> str:
        """Name the server's item table G, unless the backbone has a personal table."""
        own, other = self.tables
        return other if name == own else name


def weighed(*parts: tuple[Part, Tensor]) -> Combined:
    """A sum of tables, each times its weight."""
    tables, weights = zip(*parts, strict=True)

    def combine(*rows: Tensor) -> Tensor:
        total: Tensor = sum(weight * own for weight, own in zip(weights, rows, strict=True))
        return total

    return Combined(combine, *tables, linear=True)


def repeated_columns(own: Tensor, other: Tensor, chosen: Tensor, gamma: float) -> Tensor:
    """L_eRR: pulls the diagonal of H to 1 and the rest to 0."""
    h = column_cosines(own, other, chosen)
    diagonal = h.diagonal(dim1=-2, dim2=-1)
    rest = h.square().sum((-1, -2)) - diagonal.square().sum(-1)
    return ((1 - diagonal).square().sum(-1) + gamma * rest) / h.shape[-1]


class KeptMix(PLGC):
    """C becomes the mixed table when a round begins."""

    def __init__(self, backbone: Method, settings: Mapping[str, Any], items: int) -> None:
        if settings["mixing"] == "off":
            raise ConfigurationError("plgc: with mixing=off there is no mixed table to keep. Set kept=own.")
        super().__init__(backbone, settings, items)

    def mixed(self, w: Weights, items: Tensor) -> Tensor:
        """The rows of Q."""
        own, other = self.tables
        lambda_c = w.lambda_c
        return lambda_c * w[own][items] + (1 - lambda_c) * w[other][items]

    @override
    def transform(self, program: Program) -> Program:
        return (Rewrite(self.tables[0], self.mixed), *super().transform(program))


class WithoutMixing(PLGC):
    """No dLGM: the backbone sees C alone."""

    @override
    def derived(self, w: Weights) -> dict[str, Tensor]:
        return self.backbone.derived(w)

    @override
    def view(self, w: Weights) -> Weights:
        return w


class WithoutRedundancy(PLGC):
    """No eRR, and no head."""

    @override
    def head(self, d: int) -> dict[str, Parameter]:
        return {}

    @override
    def loss_of(self, loss: Loss) -> Loss:
        return Plugin.loss_of(self, loss)


class AlignmentAndUniformity(PLGC):
    """AU in the place of eRR."""

    @override
    def redundancy(self, w: Weights, batch: Batch) -> Tensor:
        return alignment_and_uniformity(*self.views(w, batch))


class Contrast(PLGC):
    """DuoRec's contrast in the place of eRR."""

    @override
    def redundancy(self, w: Weights, batch: Batch) -> Tensor:
        return contrast(*self.views(w, batch))


class Decorrelation(PLGC):
    """FedDecorr in the place of eRR."""

    @override
    def redundancy(self, w: Weights, batch: Batch) -> Tensor:
        own, _, chosen = self.views(w, batch)
        return decorrelation(own, chosen)


class Centred(PLGC):
    """Columns are centred before eRR compares them, as Barlow Twins does."""

    @override
    def redundancy(self, w: Weights, batch: Batch) -> Tensor:
        own, other, chosen = self.views(w, batch)
        own, other = centred(own, chosen), centred(other, chosen)
        return repeated_columns(own, other, chosen, self.settings["gamma"])


PLUGIN = PLGC
VARIANTS = {
    ("kept", "mixed"): KeptMix,
    ("mixing", "off"): WithoutMixing,
    ("redundancy", "none"): WithoutRedundancy,
    ("redundancy", "au"): AlignmentAndUniformity,
    ("redundancy", "duorec"): Contrast,
    ("redundancy", "feddecorr"): Decorrelation,
    ("centred", "yes"): Centred,
}
