"""The rank of a held-out item among its candidates, with the protocol's rule for equal scores."""

from typing import Literal

import torch
from torch import Tensor

TieRule = Literal["target_last", "target_mean"]


def rank_of_target(target: Tensor, others: Tensor, ties: TieRule) -> Tensor:
    """The rank of each row's `target` (n) among it and its `others` (n x k), 1 is best.

    A score that is not a number never helps: where the target's or any other's is NaN, the
    target comes last, so a diverged model cannot look perfect.
    """
    own = target.unsqueeze(1)
    broken = target.isnan() | others.isnan().any(1)
    last = torch.full_like(target, others.shape[1])
    return _rank((others > own).sum(1), (others == own).sum(1), broken, last, ties)


def rank_in_catalogue(scores: Tensor, target: Tensor, excluded: Tensor, ties: TieRule) -> Tensor:
    """The rank of item `target` (n) among all items of `scores` (n x m) that are not `excluded`.

    The target itself is ranked even where `excluded` marks it.
    """
    own = scores.gather(1, target.unsqueeze(1))
    hidden = excluded.scatter(1, target.unsqueeze(1), True)
    # Excluded items and the target leave the comparison: below every other score, and not NaN.
    others = scores.masked_fill(hidden, -torch.inf)
    broken = own.squeeze(1).isnan() | others.isnan().any(1)
    equal = ((others == own) & ~hidden).sum(1)
    return _rank((others > own).sum(1), equal, broken, (~hidden).sum(1), ties)


def _rank(better: Tensor, equal: Tensor, broken: Tensor, last: Tensor, ties: TieRule) -> Tensor:
    """1 + those ahead of the target: the better ones, and of its equals all or half; all, if it is broken."""
    ahead = better + equal if ties == "target_last" else better + equal / 2
    return 1 + torch.where(broken, last.float(), ahead.float())
