"""Scores by a protocol's rule, and ranks of held-out items among candidates and in the catalogue."""

import torch
from torch import Tensor

from fedrec.evaluation.rank_kernel import FIRST_RANKS, RANKS, first_ranks_by, ranks_by
from fedrec.evaluation.ranking import TieRule, rank_in_catalogue, rank_of_target
from fedrec.federation.clients import Clients
from fedrec.federation.learner import Learner
from fedrec.native.kernel import kernel_or_none

HELD_OUT_PARTS = ("validation", "test")
"""The held-out parts of a split, with one item per client each."""
_CHUNK = {"cpu": 1 << 18, "cuda": 1 << 22}
"""Scores computed at once, each of which needs a row of every table. Few fit the cache of a CPU; many keep a
GPU busy."""

_LANES = 128
"""GPU threads for the candidates of one client."""


def candidate_ranks(learner: Learner, clients: Clients, part: str) -> Tensor:
    """Rank each client's held-out item among its candidates, by its protocol."""
    held_out, candidates = clients.held_out[part], clients.candidates[part]
    ranks = []
    at_once = max(1, _CHUNK[clients.device.type] // (1 + candidates.shape[1]))
    chunks = (each.split(at_once) for each in (clients.everyone, held_out.unsqueeze(1), candidates))
    for who, target, others in zip(*chunks, strict=True):
        scores = protocol_scores(learner, clients, who, torch.cat((target, others), dim=1))
        ranks.append(first_ranks(scores, clients.protocol.rank_ties))
    return ranks[0] if len(ranks) == 1 else torch.cat(ranks)


def first_ranks(scores: Tensor, ties: TieRule) -> Tensor:
    """Rank each client's first score among its `scores` `(clients, k)`; the result has shape `(clients,)`."""
    kernel = kernel_or_none(FIRST_RANKS[scores.dtype], scores.device, _LANES)
    if kernel is None:
        return rank_of_target(scores[:, 0], scores[:, 1:], ties)
    return first_ranks_by(kernel, scores, ties)


def protocol_scores(learner: Learner, clients: Clients, who: Tensor, items: Tensor) -> Tensor:
    """Score `items` `(clients, k)` for the clients `who`, by the rule of the protocol."""
    scores = learner.scores(who, items)
    probability = clients.protocol.ranked_score == "probability" and learner.logits
    return torch.sigmoid(scores) if probability else scores


def catalogue_ranks(learner: Learner, clients: Clients, those: slice = slice(None)) -> dict[str, Tensor]:
    """Rank each client's held-out items among all items outside its training items, by part.

    For test, the validation item is excluded, too. Covers all clients, or a range of neighbours.
    """
    chunks = []
    for who in clients.everyone[those].split(max(1, _CHUNK[clients.device.type] // clients.items)):
        scores = protocol_scores(learner, clients, who, clients.catalogue.expand(len(who), -1))
        chunks.append(_ranks_in_catalogue(scores, clients, who))
    return dict(zip(HELD_OUT_PARTS, torch.cat(chunks).unbind(1), strict=True))


def _ranks_in_catalogue(scores: Tensor, clients: Clients, who: Tensor) -> Tensor:
    """Rank the held-out items of neighbouring clients: `(clients, parts)`."""
    kernel = kernel_or_none(RANKS[scores.dtype], clients.device)
    if kernel is None:
        return ranks_in_torch(scores, clients, who)
    held_out = clients.held_out["validation"], clients.held_out["test"]
    first, ties = int(who.storage_offset()), clients.protocol.rank_ties
    return ranks_by(kernel, scores, first, clients.start, clients.train_item, held_out, ties)


def ranks_in_torch(scores: Tensor, clients: Clients, who: Tensor) -> Tensor:
    """Rank the held-out items of the clients `who` by torch, on machines without kernels."""
    excluded = torch.zeros_like(scores, dtype=torch.bool)
    item, row = clients.training(who)
    excluded[row, item] = True
    ranks = []
    for part in HELD_OUT_PARTS:
        target = clients.held_out[part][who]
        ranks.append(rank_in_catalogue(scores, target, excluded, clients.protocol.rank_ties))
        excluded[torch.arange(len(who), device=clients.device), target] = True
    return torch.stack(ranks, dim=1)
