"""MF: matrix factorisation with all data in one place.

score     p_u . q_i
training  Adam on the mean binary cross-entropy of mini-batches mixed over users
"""

from torch import Tensor

from fedrec.central.compiled import RowModel
from fedrec.federation.model import Citation, Initial, Parameter, Values, dot, item_table, user_table


class MF(RowModel):
    """Centralised matrix factorisation."""

    paper = Citation(
        "Koren, Bell, Volinsky",
        "Matrix factorization techniques for recommender systems",
        "Computer",
        2009,
    )
    cost = "O(S d) for S samples."

    def parameters(self) -> dict[str, Parameter]:
        """One vector per user, one per item."""
        d, spread = self.settings["d"], Initial("normal", self.settings["spread"])
        return {"P": user_table(self.users, d, spread), "Q": item_table(self.items, d, "shared", spread)}

    def score(self, w: Values, users: Tensor, items: Tensor) -> Tensor:
        """Inner product of user vector p and item row q."""
        return dot(w.P[users], w.Q[items])


METHOD = MF
