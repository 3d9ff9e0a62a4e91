"""Training items of clients as scores see them: the set, and the most recent ones."""

import torch
from torch import Tensor

from fedrec.federation.clients import Clients
from fedrec.federation.model.history import History, Past


def own_items(clients: Clients, who: Tensor) -> Tensor:
    """1 for the training items of each of some clients, 0 for others: (clients, items, 1)."""
    item, place = clients.training(who)
    own = torch.zeros(len(who), clients.items, 1, device=clients.device)
    own[place, item] = 1
    return own


def history_of(clients: Clients, who: Tensor, length: int) -> History:
    """The last training items of some clients: (clients, 1, length)."""
    past = Past(clients.sizes[who].unsqueeze(1), clients.start[who].unsqueeze(1), clients.by_time)
    return History(*past.items(length))
