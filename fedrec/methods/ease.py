"""EASE: a linear model without hidden units, solved at once with all data in one place.

    score     sum of B_ji over training items j of u
    loss      |X - X B|^2 + lambda |B|^2, the diagonal of B being 0; X: users x items, 1 for training items
    solved    P = (X^T X + lambda I)^-1;  B_ij = -P_ij / P_jj, 0 on the diagonal                  (Eq. 8)

FedEASE's server solves for the same B, by the same code. It needs up to five matrices (items, items) in
double precision: 12 GB for 17,612 items.
"""

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.central.item_model import ItemModel
from fedrec.federation.model import ServerSide
from fedrec.methods.fedease import ClosedForm, FedEASE


class EASE(ItemModel):
    """Embarrassingly shallow autoencoder."""

    paper = FedEASE.paper
    cost = "O(n m^2 + m^3); memory m^2 numbers."

    @override
    def between(self, met: Tensor) -> Tensor:
        # The state of FedEASE's server after the upload of a single client with all data.
        one = torch.ones(1, device=met.device)
        shared = {"G": met, "B": met}
        server = ServerSide(
            round_=1, seed=0, shared=shared, initial={}, personal={}, clients=1, aggregated=lambda: (one, one)
        )
        ClosedForm(self.settings, len(met)).finish(server)
        return shared["B"]


METHOD = EASE
