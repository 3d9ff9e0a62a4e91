"""iALS: factors of implicit feedback by alternating least squares, with all data in one place.

    score     p_u . q_i
    loss      sum of c_ui (o_ui - p_u . q_i)^2 over all u and i, plus the pull                         (Eq. 3)
              c_ui = 1 + alpha x o_ui, o_ui = 1 for training items, else 0
    pull      sum of lambda_u |p_u|^2 + sum of lambda_i |q_i|^2;  lambda_u = lambda (sum of c_ui over i)^nu
    training  in turns p_u = (Q^T C_u Q + lambda_u I)^-1 Q^T C_u o_u for all users                     (Eq. 4)
              and likewise q_i for all items                                                           (Eq. 5)

nu = 0 is the paper's pull. Rendle et al. (2022) use nu = 1: the pull grows with the total weight of a row.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.central.finite import check_model_finite
from fedrec.errors import DivergenceError
from fedrec.federation.clients import Clients
from fedrec.federation.learner import Learner, Report
from fedrec.federation.model import Citation, Initial, Parameter, dot, initial_values, item_table, user_table
from fedrec.federation.model.history import Past
from fedrec.random.purpose import Purpose

_NUMBERS_AT_ONCE = 1 << 19
"""Elements of gathered rows, or of their d x d products, that are in memory at once."""


@dataclass(frozen=True)
class Met:
    """The items of each user, or the users of each item; owner k has `met[first[k]:first[k] + size[k]]`."""

    met: Tensor
    first: Tensor
    size: Tensor

    @classmethod
    def of(cls, owner: Tensor, met: Tensor, owners: int) -> "Met":
        """Group `met` by their `owner`, a number below `owners`."""
        size = torch.bincount(owner, minlength=owners)
        # An owner without entries gets a valid index, since its row is padding only.
        first = (size.cumsum(0) - size).clamp(max=len(met) - 1)
        return cls(met[torch.argsort(owner, stable=True)], first, size)

    def pieces(self, width: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Groups of owners with similar sizes: the owners, their padded entries, and the mask of entries.

        A group has as many owners as memory allows for rows of `width` numbers.
        """
        order = torch.argsort(self.size, descending=True, stable=True)
        while len(order):
            longest = int(self.size[order[0]])
            count = max(1, _NUMBERS_AT_ONCE // (max(longest, width) * width))
            who, order = order.tensor_split([count])
            yield who, *Past(self.size[who], self.first[who], self.met).items(longest)


class IALS(Learner):
    """Matrix factorisation for implicit feedback."""

    paper = Citation(
        "Hu, Koren, Volinsky",
        "Collaborative filtering for implicit feedback datasets",
        "ICDM",
        2008,
    )
    cost = "O(T d^2 + (n + m) d^3) for T training rows."

    logits = False

    def __init__(self, clients: Clients, settings: Mapping[str, Any], seed: int) -> None:
        self.clients = clients
        self.settings = settings
        user = torch.repeat_interleave(clients.everyone, clients.sizes)
        self.of_users = Met.of(user, clients.train_item, len(clients))
        self.of_items = Met.of(clients.train_item, user, clients.items)
        start = initial_values(self.parameters(), seed, clients.device)
        self.P, self.Q = start["P"], start["Q"]

    def parameters(self) -> dict[str, Parameter]:
        """One vector per user, one per item."""
        d, spread = self.settings["d"], Initial("normal", self.settings["spread"])
        return {
            "P": user_table(len(self.clients), d, spread),
            "Q": item_table(self.clients.items, d, "shared", spread),
        }

    def train_round(self, round_: int) -> Report:
        """Solve for all users, then for all items."""
        start = time.perf_counter()
        self.P, _ = self.solved(self.Q, self.of_users)
        self.Q, least = self.solved(self.P, self.of_items)
        pull = self.pull(self.of_users, self.clients.items).double() @ self.P.double().square().sum(1)
        loss = float(least + pull) / len(self.clients.train_item)
        check_model_finite(round_, loss, {"P": self.P, "Q": self.Q})
        return Report(loss, len(self.clients), 0, 0, time.perf_counter() - start, 0.0)

    def solved(self, fixed: Tensor, side: Met) -> tuple[Tensor, Tensor]:
        """The best vectors of one side given the other, and the loss plus their pull."""
        alpha: float = self.settings["alpha"]
        everywhere, pull = fixed.T @ fixed, self.pull(side, len(fixed))
        vectors = fixed.new_empty(len(side.size), fixed.shape[1])
        least = torch.zeros((), dtype=torch.float64, device=fixed.device)
        for who, met, mask in side.pieces(fixed.shape[1]):
            rows = fixed[met] * mask.unsqueeze(2)
            square = everywhere + alpha * (rows.mT @ rows)
            square.diagonal(dim1=1, dim2=2).add_(pull[who].unsqueeze(1))
            target = (1 + alpha) * rows.sum(1)
            vectors[who] = torch.cholesky_solve(target.unsqueeze(2), _factor(square)).squeeze(2)
            # The minimum of the least squares is the weighted sum of squared targets minus target . vector.
            least += ((1 + alpha) * side.size[who] - dot(target, vectors[who])).double().sum()
        return vectors, least

    def pull(self, side: Met, others: int) -> Tensor:
        """The pull lambda_u of every user, or lambda_i of every item."""
        counted = others + self.settings["alpha"] * side.size.to(torch.get_default_dtype())
        pull: Tensor = self.settings["penalty"] * counted ** self.settings["nu"]
        return pull

    @override
    def scores(self, who: Tensor, items: Tensor) -> Tensor:
        if self.clients.is_catalogue(items):
            return self.P[who] @ self.Q.T
        return dot(self.P[who].unsqueeze(1), self.Q[items])

    @override
    def tensors(self) -> dict[str, Tensor]:
        return {"shared/P": self.P, "shared/Q": self.Q}

    @override
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self.P, self.Q = (tensors[f"shared/{name}"].to(self.P.device) for name in ("P", "Q"))

    @override
    def negative_draws(self, round_: int) -> list[tuple[Tensor, Purpose]]:
        return []


def _factor(squares: Tensor) -> Tensor:
    """Compute Cholesky factors; raise `DivergenceError` if rounding left a matrix not positive definite."""
    factors, failed = torch.linalg.cholesky_ex(squares)
    if failed.any():
        raise DivergenceError(
            "ials: rounding left a system of least squares without a solution. Raise penalty, or lower alpha."
        )
    return cast(Tensor, factors)


METHOD = IALS
