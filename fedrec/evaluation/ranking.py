"""The rank of a held-out item among its candidates, with the protocol's rule for equal scores."""

from typing import Literal

import torch
from torch import Tensor

TieRule = Literal["target_last", "target_mean"]


def rank_of_target(target: Tensor, others: Tensor, ties: TieRule) -> Tensor:
    """Rank each row's `target` `(n,)` among itself and its `others` `(n, k)`; 1 is best.

    If the target's score or any other one is NaN, the target comes last, so that a diverged model cannot look
    perfect.
    """
    target_scores = target.unsqueeze(1)
    broken = target.isnan() | others.isnan().any(1)
    last = torch.full_like(target, others.shape[1])
    return _rank((others > target_scores).sum(1), (others == target_scores).sum(1), broken, last, ties)


def rank_in_catalogue(scores: Tensor, target: Tensor, excluded: Tensor, ties: TieRule) -> Tensor:
    """Rank item `target` `(n,)` among all items of `scores` `(n, items)` that are not `excluded`.

    The target itself is ranked even if `excluded` marks it.
    """
    target_scores = scores.gather(1, target.unsqueeze(1))
    hidden = excluded.scatter(1, target.unsqueeze(1), True)
    # Excluded items and the target get the lowest score, so that they never count and are not NaN.
    others = scores.masked_fill(hidden, -torch.inf)
    broken = target_scores.squeeze(1).isnan() | others.isnan().any(1)
    equal = ((others == target_scores) & ~hidden).sum(1)
    return _rank((others > target_scores).sum(1), equal, broken, (~hidden).sum(1), ties)


def _rank(better: Tensor, equal: Tensor, broken: Tensor, last: Tensor, ties: TieRule) -> Tensor:
    """1 + the better scores + all or half of the equal ones; the last rank if a score is NaN."""
    ahead = better + equal if ties == "target_last" else better + equal / 2
    return 1 + torch.where(broken, last.float(), ahead.float())
