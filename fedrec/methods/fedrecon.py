"""FedRecon: clients keep nothing; a user vector is rebuilt from nothing in every round.

Singhal et al.: Federated reconstruction: partially local federated learning, NeurIPS 2021.

    score     p_u . q_i
    client    p_u starts anew and is fitted with Q frozen (support half of the rows), then Q is trained with
              p_u frozen (query half)
    upload    Q_u, weighed by query rows
    server    Q = sum of w_u Q_u
    scored    p_u rebuilt from all training rows against the newest Q

Rows are dealt out to the halves anew in every round, each with its negatives; `split=none` uses all for
both, the official code's other setting.

Cost per round: O((F S + E S) d) on the clients, and O(F S d) before scoring (F epochs of rebuilding);
O(sum of R_u d) on the server.
"""

from dataclasses import replace

from torch import Tensor

from fedrec.federation.model.method import Client, Half
from fedrec.federation.model.parameters import Initial, Parameter
from fedrec.methods.fedmf import FedMF


class FedRecon(FedMF):
    """Federated reconstruction, over matrix factorisation."""

    concluding = "everyone"

    def parameters(self) -> dict[str, Parameter]:
        """FedMF's, but p is forgotten when a round ends."""
        model, start = super().parameters(), Initial("normal", self.settings["spread"])
        return model | {"p": replace(model["p"], initial=start, renewed=True)}

    def local_round(self, client: Client) -> None:
        """Rebuild p on one half, train Q on the other, upload Q."""
        halves: tuple[Half | None, Half | None] = ("first", "second") if self._splits else (None, None)
        self.rebuild(client, halves[0])
        self.fit(client, self.step(client, {"Q": self.item_rate()}), half=halves[1])
        client.upload("Q")

    def conclude(self, client: Client) -> None:
        """Rebuild p to be scored with."""
        self.rebuild(client, None)

    def rebuild(self, client: Client, half: Half | None) -> None:
        """Fit p alone."""
        step = self.step(client, {"p": self.settings["rate"]})
        self.fit(client, step, epochs=self.settings["rebuild_epochs"], half=half)

    def weighed_rows(self, rows: Tensor) -> Tensor:
        """The rows of the query half."""
        return (rows // 2).clamp(min=1) if self._splits else rows

    @property
    def _splits(self) -> bool:
        return bool(self.settings["split"] == "halves")


METHOD = FedRecon
