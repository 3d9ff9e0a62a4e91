"""NCF: neural collaborative filtering with all data in one place.

The tower alone (no GMF branch), as in the papers that compare with it.

    score     MLP(p_u, q_i)
    training  Adam on the mean binary cross-entropy of mini-batches mixed over users
"""

import torch
from torch import Tensor
from torch.nn import functional

from fedrec.central.method import CentralMethod
from fedrec.federation.model import Citation, Initial, Parameter, Values, matrix, mlp, perceptron


class NCF(CentralMethod):
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
            "P": matrix(self.users, d, "shared", spread),
            "Q": matrix(self.items, d, "shared", spread),
            **mlp("mlp", (2 * d, *self.settings["layers"], 1), "shared"),
        }

    def score(self, w: Values, users: Tensor, items: Tensor) -> Tensor:
        """The tower's output for both vectors side by side."""
        both = torch.cat((functional.embedding(users, w.P), functional.embedding(items, w.Q)), dim=-1)
        return perceptron(w, "mlp", both).squeeze(-1)


METHOD = NCF
