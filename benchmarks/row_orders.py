"""Measure how much the order of rows decides for a file without times.

    fedrec fetch douban-book && fedrec prepare douban-book --out results/data/douban-book
    python -m benchmarks.row_orders results/data/douban-book > docs/numbers/row_orders.csv

Each order makes a split by FedRAP's published rules. The csv has the share of test items among the user's own
training rows, the share among nobody's training rows, and the metrics of popularity.
"""

import argparse
import csv
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedrec.config.protocol_file import load_protocols
from fedrec.data.interactions import Interactions, read_interactions_file
from fedrec.data.split import PARTS, Split, make_split
from fedrec.evaluation.metrics import metrics_of
from fedrec.evaluation.ranking import rank_of_target

_PROTOCOL = "published-fedrap"


def orders_of(interactions: Interactions) -> dict[str, Interactions]:
    """The interactions with each order that could replace times."""
    first = np.full(interactions.items, np.iinfo(np.int64).max)
    np.minimum.at(first, interactions.item, interactions.row)
    return {
        "an item's first appearance": replace(interactions, time=first[interactions.item]),
        "first row the latest": replace(interactions, time=np.zeros_like(interactions.time)),
        "last row the latest": replace(interactions, time=interactions.row),
    }


def order_row(split: Split) -> dict[str, int | float]:
    """Shares of test items in their user's, or in nobody's, training rows, and the metrics of popularity."""
    (train_user, train_item), (user, item) = (split.pairs_of(PARTS.index(part)) for part in ("train", "test"))
    counts = np.bincount(train_item, minlength=split.items)
    own = np.isin(_pairs(split, user, item), _pairs(split, train_user, train_item))
    scores = torch.from_numpy(counts[np.column_stack((item, split.candidates.test))]).double()
    metrics = metrics_of(rank_of_target(scores[:, 0], scores[:, 1:], "target_mean").numpy())
    return {
        "users": len(user),
        "own": float(own.mean()),
        "cold": float((counts[item] == 0).mean()),
        "hr": metrics["hr@10"],
        "ndcg": metrics["ndcg@10"],
    }


def table_of(folders: Iterable[Path], protocols: Path) -> list[dict[str, Any]]:
    """A row for each prepared dataset and order, a random one among them."""
    rows: list[dict[str, Any]] = []
    rules = load_protocols(protocols)[_PROTOCOL]
    for folder in folders:
        interactions = read_interactions_file(folder / "interactions.parquet")
        splits = {name: make_split(one, rules) for name, one in orders_of(interactions).items()}
        splits["random"] = make_split(interactions, replace(rules, no_times="random"))
        for name, split in splits.items():
            row = order_row(split)
            rounded = {key: f"{row[key]:.4f}" for key in row if key != "users"}
            rows.append({"dataset": folder.name, "order": name, "users": row["users"], **rounded})
    return rows


def _pairs(split: Split, user: NDArray[Any], item: NDArray[Any]) -> NDArray[np.int64]:
    """Each pair of user and item as one number."""
    pairs: NDArray[np.int64] = user.astype(np.int64) * split.items + item
    return pairs


def main() -> None:
    """Print the rows as csv."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="prepared datasets without times")
    parser.add_argument("--protocols", type=Path, default=Path("config/protocols.yaml"))
    parsed = parser.parse_args()
    rows = table_of(parsed.folders, parsed.protocols)
    writer = csv.DictWriter(sys.stdout, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


if __name__ == "__main__":
    main()
