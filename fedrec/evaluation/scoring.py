"""Scores as a protocol ranks them, and the ranks of held-out items among their candidates."""

import torch
from torch import Tensor

from fedrec.evaluation.ranking import rank_of_target
from fedrec.federation.clients import Clients
from fedrec.federation.learner import Learner


def candidate_ranks(learner: Learner, clients: Clients, part: str) -> Tensor:
    """The rank of each client's held-out item among its candidates, by its protocol."""
    everyone = clients.everyone
    items = torch.cat((clients.held_out[part].unsqueeze(1), clients.candidates[part]), dim=1)
    scores = protocol_scores(learner, clients, everyone, items)
    return rank_of_target(scores[:, 0], scores[:, 1:], clients.protocol.rank_ties)


def protocol_scores(learner: Learner, clients: Clients, who: Tensor, items: Tensor) -> Tensor:
    """What items are ranked by."""
    scores = learner.scores(who, items)
    probability = clients.protocol.ranked_score == "probability" and learner.logits
    return torch.sigmoid(scores) if probability else scores
