"""Item tables brought to given products of their rows, for all clients at once."""

import torch
from torch import Tensor


def approach_products(tables: Tensor, goal: Tensor, steps: int, rate: float, decay: float) -> Tensor:
    """Each table Q (clients x items x d) after `steps` of SGD on the norm |Q Q^T - goal|, with weight decay.

    The gradient 2 (Q Q^T - goal) Q / |Q Q^T - goal| needs no matrix of items x items per client:
    Q Q^T Q = Q (Q^T Q), goal Q is one product for all, and the square of the norm is
    |Q^T Q|^2 - 2 <Q, goal Q> + |goal|^2. A goal that is not symmetric counts by its symmetric half, except
    in the norm. O(steps x clients x items^2 x d).
    """
    clients, items, d = tables.shape
    symmetric = (goal + goal.T) / 2
    goal_square = goal.double().square().sum()
    # Items first, so that goal times all tables is one product.
    table = tables.transpose(0, 1).contiguous()
    for _ in range(steps):
        towards = (symmetric @ table.reshape(items, -1)).reshape(items, clients, d)
        gram = torch.einsum("icd,ice->cde", table, table)
        # Near the goal these sums all but cancel: in double precision they leave something over.
        meeting = (table * towards).sum(2).double().sum(0)
        square = gram.double().square().sum((1, 2)) - 2 * meeting + goal_square
        size = square.clamp(min=torch.finfo(torch.float64).tiny).sqrt().to(table.dtype)
        gradient = 2 * (torch.einsum("icd,cde->ice", table, gram) - towards) / size[:, None]
        table = table - rate * (gradient + decay * table)
    return table.transpose(0, 1).contiguous()
