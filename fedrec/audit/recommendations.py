"""Catalogue coverage and popularity of the items that a model recommends."""

import torch

from fedrec.evaluation.scoring import protocol_scores
from fedrec.runs.record import RunRecord

_SHOWN = 10
"""Recommended items of each user."""
_AT_ONCE = 1 << 20
"""Scores computed at once."""


def recommended(run: RunRecord) -> dict[str, float]:
    """The `coverage` and `popularity` of the ten best items of each user of a finished run.

    Coverage is the share of all items that any user is recommended. Popularity is the mean, over recommended
    items, of the share of users who have the item in training. No user is recommended its own training or
    validation items.
    """
    clients, learner = run.clients, run.learner
    holders = torch.bincount(clients.train_item, minlength=clients.items)
    shown = torch.zeros(clients.items, dtype=torch.int64, device=clients.device)
    for who in clients.everyone.split(max(1, _AT_ONCE // clients.items)):
        with torch.no_grad():
            scores = protocol_scores(learner, clients, who, clients.catalogue.expand(len(who), -1)).clone()
        item, row = clients.training(who)
        scores[row, item] = -torch.inf
        scores.scatter_(1, clients.held_out["validation"][who].unsqueeze(1), -torch.inf)
        best = scores.topk(min(_SHOWN, clients.items), dim=1).indices
        shown += torch.bincount(best.flatten(), minlength=clients.items)
    return {
        "coverage": float((shown > 0).double().mean()),
        "popularity": float((shown * holders).double().sum() / shown.sum() / len(clients)),
    }
