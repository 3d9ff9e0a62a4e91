"""How well scores rank held-out items, whoever made them."""

import numpy as np
import torch

from fedrec.evaluation.metrics import metrics_of
from fedrec.evaluation.scoring import first_ranks
from fedrec.federation.clients import Clients


def ndcg(scores: np.ndarray, clients: Clients) -> float:
    """NDCG@10 of validation items among their candidates, by the protocol."""
    items = torch.cat((clients.held_out["validation"].unsqueeze(1), clients.candidates["validation"]), dim=1)
    ranks = first_ranks(torch.from_numpy(scores).gather(1, items), clients.protocol.rank_ties)
    return metrics_of(ranks.numpy())["ndcg@10"]
