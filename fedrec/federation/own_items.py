"""The training items of clients as scores see them: the set, and the last ones."""

import torch
from torch import Tensor

from fedrec.federation.clients import Clients
from fedrec.federation.model.history import History, Past


def own_items(clients: Clients, who: Tensor) -> Tensor:
    """A mask of each client's training items: (clients, items, 1)."""
    item, place = clients.training(who)
    own = torch.zeros(len(who), clients.items, 1, device=clients.device)
    own[place, item] = 1
    return own


def history_of(clients: Clients, who: Tensor, length: int) -> History:
    """The last `length` training items of each client: (clients, 1, length)."""
    past = Past(clients.sizes[who].unsqueeze(1), clients.start[who].unsqueeze(1), clients.by_time)
    return History(*past.items(length))
