"""BPR-MF: factors that rank a user's training items above its negatives, with all data in one place.

    score     p_u . q_i
    loss      mean softplus(p_u . q_j - p_u . q_i) over negatives j of a training row (u, i), and
              reg/2 times the squared vectors of a row, mean over rows
    training  Adam on mini-batches of training rows, each with its negatives; every row once per epoch

The paper draws rows with replacement, and takes a step of SGD on each. Here each epoch has every row once, as
in all other methods.
"""

from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from fedrec.central.method import CentralMethod
from fedrec.federation.model import Citation, Initial, Parameter, Values, dot, item_table, user_table


class BPRMF(CentralMethod):
    """Bayesian personalised ranking of matrix factorisation."""

    paper = Citation(
        "Rendle, Freudenthaler, Gantner, Schmidt-Thieme",
        "BPR: Bayesian personalized ranking from implicit feedback",
        "UAI",
        2009,
    )
    cost = "O(S d + T / B x (m + n) d) for S samples and T training rows in mini-batches of B."

    whole_rows = True

    def parameters(self) -> dict[str, Parameter]:
        """One vector per user, one per item."""
        d, spread = self.settings["d"], Initial("normal", self.settings["spread"])
        return {"P": user_table(self.users, d, spread), "Q": item_table(self.items, d, "shared", spread)}

    def score(self, w: Values, users: Tensor, items: Tensor) -> Tensor:
        """Inner product of user vector p and item row q."""
        return dot(w.P[users], w.Q[items])

    @override
    def loss(self, w: Values, users: Tensor, items: Tensor, labels: Tensor) -> Tensor:
        """A positive, which comes first, above its negatives; and the pull of all vectors to zero."""
        user, item = w.P[users].unsqueeze(1), w.Q[items]
        scores = dot(user, item)
        squares = (user.square().sum() + item.square().sum()) / len(scores)
        ranking = functional.softplus(scores[:, 1:] - scores[:, :1]).mean()
        total: Tensor = ranking + self.settings["reg"] / 2 * squares
        return total


METHOD = BPRMF
