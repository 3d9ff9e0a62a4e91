"""The root of this checkout, and small made datasets; importing it needs nothing that training does not need."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from fedrec.data.interactions import Interactions

ROOT = Path(__file__).resolve().parents[1]


def made_interactions(
    rows: Iterable[tuple[int, int, int]], *, items: int, timed: bool = True, **orders: Iterable[int]
) -> Interactions:
    """Interactions from (user, item, time) in file order."""
    user, item, time = (np.array(column) for column in zip(*rows, strict=True))
    return Interactions(
        dataset="made",
        users=int(user.max()) + 1,
        items=items,
        timed=timed,
        user=user.astype(np.int32),
        item=item.astype(np.int32),
        rating=np.ones(len(user), dtype=np.float32),
        time=time.astype(np.int64),
        row=np.arange(len(user), dtype=np.int64),
        row_orders={paper: np.array(list(order), dtype=np.int64) for paper, order in orders.items()},
    )
