"""Scores as a protocol ranks them, and the ranks of held-out items among candidates and in the catalogue."""

import torch
from torch import Tensor

from fedrec.evaluation.ranking import rank_in_catalogue, rank_of_target
from fedrec.federation.clients import Clients
from fedrec.federation.learner import Learner

HELD_OUT_PARTS = ("validation", "test")
"""The held-out parts of a split: one item of each per client."""
_CHUNK = 1 << 21
"""Scores computed at once: each needs a row of every table, and more."""


def candidate_ranks(learner: Learner, clients: Clients, part: str) -> Tensor:
    """The rank of each client's held-out item among its candidates, by its protocol."""
    held_out, candidates = clients.held_out[part], clients.candidates[part]
    ranks = []
    for who in clients.everyone.split(max(1, _CHUNK // (1 + candidates.shape[1]))):
        items = torch.cat((held_out[who].unsqueeze(1), candidates[who]), dim=1)
        scores = protocol_scores(learner, clients, who, items)
        ranks.append(rank_of_target(scores[:, 0], scores[:, 1:], clients.protocol.rank_ties))
    return torch.cat(ranks)


def protocol_scores(learner: Learner, clients: Clients, who: Tensor, items: Tensor) -> Tensor:
    """Scores of `items` (clients, k) for the clients `who`, as the protocol ranks them."""
    scores = learner.scores(who, items)
    probability = clients.protocol.ranked_score == "probability" and learner.logits
    return torch.sigmoid(scores) if probability else scores


def catalogue_ranks(learner: Learner, clients: Clients, those: Tensor | None = None) -> dict[str, Tensor]:
    """The rank of each client's held-out item among all items outside its training items, by part.

    For test the validation item is left out, too. Of all clients, or of `those`.
    """
    all_items = torch.arange(clients.items, device=clients.device)
    ranks: dict[str, list[Tensor]] = {part: [] for part in HELD_OUT_PARTS}
    chosen = clients.everyone if those is None else those
    for who in chosen.split(max(1, _CHUNK // clients.items)):
        scores = protocol_scores(learner, clients, who, all_items.expand(len(who), -1))
        excluded = torch.zeros_like(scores, dtype=torch.bool)
        item, place = clients.training(who)
        excluded[place, item] = True
        for part in HELD_OUT_PARTS:
            target = clients.held_out[part][who]
            ranks[part].append(rank_in_catalogue(scores, target, excluded, clients.protocol.rank_ties))
            excluded[torch.arange(len(who), device=clients.device), target] = True
    return {part: torch.cat(chunks) for part, chunks in ranks.items()}
