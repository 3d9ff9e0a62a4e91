"""Datasets with ids of their own, scores as other systems write them, and ranks counted from scores by hand."""

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from fedrec.data.split import PARTS, Split, read_split
from fedrec.files.parquet import write_table


def write_ids(data: Path, split: Split) -> None:
    """The original ids of a made dataset: words for users, numbers for items, in another order than fedrec's."""
    for name, ids in (
        ("user", [f"u-{number}" for number in range(split.users)]),
        ("item", [str(1000 - number) for number in range(split.items)]),
    ):
        numbers = np.arange(len(ids), dtype=np.int32)
        write_table(
            data / f"{name}s.parquet", pa.table({name: numbers, "original_id": ids}), {"dataset": "made"}
        )


def original_ids(data: Path) -> tuple[np.ndarray, np.ndarray]:
    """The original ids of users and of items, each at fedrec's number."""
    users, items = (pl.read_parquet(data / f"{name}s.parquet")["original_id"] for name in ("user", "item"))
    return users.to_numpy(), items.to_numpy()


def long_form(data: Path, users: np.ndarray, scores: np.ndarray) -> pl.DataFrame:
    """A row for each of `users` and each item, with original ids, in no order."""
    of_users, of_items = original_ids(data)
    count = scores.shape[1]
    return pl.DataFrame(
        {
            "user": np.repeat(of_users[users], count),
            "item": np.tile(of_items[:count], len(users)),
            "score": scores.ravel(),
        }
    ).sample(fraction=1, shuffle=True, seed=0)


def ranks_by_hand(folder: Path, scores: np.ndarray) -> dict[str, list[float]]:
    """The ranks that `scores` (users x items) give, by columns of ranks.parquet: one comparison after the other."""
    split = read_split(folder)
    half = 0.5 if split.protocol.rank_ties == "target_mean" else 1.0
    own = {
        part: dict(zip(*map(np.ndarray.tolist, split.pairs_of(number)), strict=True))
        for number, part in enumerate(PARTS)
    }
    trained = {user: set() for user in split.candidates.user.tolist()}
    for user, item in zip(*split.pairs_of(0), strict=True):
        trained[int(user)].add(int(item))
    ranks: dict[str, list[float]] = {}
    for place, user in enumerate(split.candidates.user.tolist()):
        for part in ("validation", "test"):
            target = own[part][user]
            hidden = trained[user] | ({own["validation"][user]} if part == "test" else set())
            rivals = {
                f"{part}_rank": getattr(split.candidates, part)[place].tolist(),
                f"{part}_rank_in_catalogue": [
                    item for item in range(split.items) if item not in hidden | {target}
                ],
            }
            for column, others in rivals.items():
                better = sum(scores[user, other] > scores[user, target] for other in others)
                equal = sum(scores[user, other] == scores[user, target] for other in others)
                ranks.setdefault(column, []).append(float(1 + better + half * equal))
    return ranks


def metrics_by_hand(ranks: list[float]) -> dict[str, float]:
    """HR@10 and NDCG@10 of ranks."""
    gains = [1 / np.log2(1 + rank) if rank <= 10 else 0.0 for rank in ranks]
    return {
        "hr@10": sum(rank <= 10 for rank in ranks) / len(ranks),
        "ndcg@10": float(sum(gains) / len(ranks)),
    }
