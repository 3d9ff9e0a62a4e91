"""MF: matrix factorisation with all data in one place.

Koren, Bell, Volinsky: Matrix factorization techniques for recommender systems, Computer 2009.

score     p_u . q_i
training  Adam on the mean binary cross-entropy of mini-batches mixed over users
"""

from torch import Tensor

from fedrec.central.learner import CentralMethod
from fedrec.federation.model.parameters import Initial, Parameter, matrix
from fedrec.federation.model.weights import Values


class MF(CentralMethod):
    """Centralised matrix factorisation."""

    def parameters(self) -> dict[str, Parameter]:
        """One vector per user, one per item."""
        d, spread = self.settings["d"], Initial("normal", self.settings["spread"])
        return {"P": matrix(self.users, d, "shared", spread), "Q": matrix(self.items, d, "shared", spread)}

    def score(self, w: Values, users: Tensor, items: Tensor) -> Tensor:
        """P . q."""
        scored: Tensor = (w.P[users] * w.Q[items]).sum(-1)
        return scored


METHOD = MF
