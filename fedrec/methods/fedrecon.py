"""FedRecon: clients keep no parameter; each reconstructs its user vector in every round.

    score     p_u . q_i
    client    resets p_u and fits it with Q frozen (support half of its data), then trains Q with p_u frozen
              (query half)
    upload    Q_u, weighed by query interactions
    server    Q = sum of w_u Q_u
    scored    p_u reconstructed from all training interactions for the newest Q

Each round assigns interactions, with their negatives, to the halves at random. `split=none`, the official
code's other setting, uses all interactions for both.
"""

from dataclasses import replace
from typing import ClassVar

from torch import Tensor
from typing_extensions import override

from fedrec.federation.model import Citation, Client, Half, Initial, Parameter, ServerRule, Who
from fedrec.methods.fedmf import FedMF


class QueryWeights(ServerRule):
    """Weighs uploads by the interactions of the query half."""

    @override
    def weights(self, sizes: Tensor) -> Tensor:
        return (sizes // 2).clamp(min=1)


class FedRecon(FedMF):
    """Federated reconstruction, over matrix factorisation."""

    paper = Citation(
        "Singhal et al.",
        "Federated reconstruction: partially local federated learning",
        "NeurIPS",
        2021,
    )
    cost = (
        "O((F S + E S) d) on the clients, and O(F S d) before scoring (F epochs of rebuilding); O(sum "
        "of R_u d) on the server."
    )

    server_rule: ClassVar[type[ServerRule]] = QueryWeights

    support: ClassVar[Half | None] = "first"
    query: ClassVar[Half | None] = "second"

    def parameters(self) -> dict[str, Parameter]:
        """FedMF's parameters; p starts again in every round."""
        model, start = super().parameters(), Initial("normal", self.settings["spread"])
        return model | {"p": replace(model["p"], initial=start, reset_each_round=True)}

    def local_round(self, client: Client) -> None:
        """Reconstruct p on one half, train Q on the other, upload Q."""
        self.rebuild(client, self.support)
        self.fit(client, self.step(client, {"Q": self.item_rate()}), samples=self.query)
        client.upload("Q")

    def after_aggregation(self, client: Client) -> Who:
        """Reconstruct p for scoring."""
        self.rebuild(client, None)
        return "everyone"

    def rebuild(self, client: Client, samples: Half | None) -> None:
        """Reconstruct p: fit it alone."""
        step = self.step(client, {"p": self.settings["rate"]})
        self.fit(client, step, epochs=self.settings["rebuild_epochs"], samples=samples)


class NoSplit(FedRecon):
    """p and Q are both trained on all interactions."""

    server_rule = ServerRule
    support = query = None


METHOD = FedRecon
VARIANTS = {("split", "none"): NoSplit}
