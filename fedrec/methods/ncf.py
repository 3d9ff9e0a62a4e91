"""NCF: neural collaborative filtering with all data in one place.

The tower alone (no GMF branch), as in the papers that compare with it.

    score     MLP(p_u, q_i)
    training  Adam on the mean binary cross-entropy of mini-batches mixed over users
"""

import torch
from torch import Tensor

from fedrec.central.compiled import RowModel
from fedrec.federation.model import (
    Citation,
    Initial,
    Parameter,
    Values,
    item_table,
    mlp,
    perceptron,
    user_table,
)


class NCF(RowModel):
    """Centralised neural collaborative filtering."""

    paper = Citation(
        "He, Liao, Zhang, Nie, Hu, Chua",
        "Neural collaborative filtering",
        "WWW",
        2017,
    )
    cost = "O(S h) for S samples (h the tower's size)."

    def parameters(self) -> dict[str, Parameter]:
        """One vector per user, one per item, and the tower."""
        d, spread = self.settings["d"], Initial("normal", self.settings["spread"])
        return {
            "P": user_table(self.users, d, spread),
            "Q": item_table(self.items, d, "shared", spread),
            **mlp("mlp", (2 * d, *self.settings["layers"], 1), "shared"),
        }

    def score(self, w: Values, users: Tensor, items: Tensor) -> Tensor:
        """The tower's output for both vectors side by side."""
        both = torch.cat((w.P[users], w.Q[items]), dim=-1)
        return perceptron(w, "mlp", both).squeeze(-1)


METHOD = NCF
