"""Count the users that a split at one time for all users leaves, on each dataset with times.

    fedrec fetch ml-100k && fedrec prepare ml-100k --out results/data/ml-100k
    python -m benchmarks.cuts results/data/ml-100k > docs/numbers/cuts.csv

A user takes part with two rows before the time and one from it on. Users without a row from it on have
`left`; users with one, but without two before it, have `joined`. `rows_percent` is the share of rows before
the time that belong to users who take part. `later_percent` is the share of unseen items that the user
interacts with after the test item. `cold_percent` is the share of test items in nobody's training rows.
"""

import argparse
import csv
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedrec.config.protocol import Protocol
from fedrec.config.protocol_file import load_protocols
from fedrec.data.interactions import Interactions, read_interactions_file
from fedrec.data.split import TRAIN
from fedrec.data.statistics import describe_split
from fedrec.data.temporal import FEWEST_BEFORE, rows_around, split_by

_PROTOCOL = "temporal"
CUTS = (0.8, 0.9)


def cut_row(interactions: Interactions, protocol: Protocol, cut: float) -> dict[str, int | float]:
    """Counts of users that take part in a split at one time and that do not, with their differences."""
    before, after = (
        np.bincount(interactions.user[rows], minlength=interactions.users)
        for rows in rows_around(interactions, protocol, cut)
    )
    split = split_by(interactions, replace(protocol, cut=cut))
    described, stays = describe_split(split), np.unique(split.user)
    is_in = np.bincount(stays, minlength=interactions.users) > 0
    trained = np.bincount(split.pairs_of(TRAIN)[0], minlength=interactions.users)[stays]
    # The validation and the test item are not trained on, nor unseen.
    unseen = interactions.items - trained - 2
    return {
        "users": interactions.users,
        "stay": len(stays),
        "stay_percent": 100 * len(stays) / interactions.users,
        "left": int(np.count_nonzero(~is_in & (after == 0))),
        "joined": int(np.count_nonzero(~is_in & (after > 0) & (before < FEWEST_BEFORE))),
        "rows_percent": 100 * float(before[is_in].sum() / before.sum()),
        "median_rows": float(np.median((before + after)[is_in])),
        "median_rows_of_all": float(np.median(before + after)),
        "later_percent": 100 * float(np.mean((after[stays] - 1) / unseen)),
        "cold_percent": 100 * described["cold_test_users"] / described["users"],
    }


def table_of(folders: Iterable[Path], protocol: Protocol) -> list[dict[str, Any]]:
    """A row for each prepared dataset and cut."""
    rows = []
    for folder in folders:
        interactions = read_interactions_file(folder / "interactions.parquet")
        for cut in CUTS:
            row = cut_row(interactions, protocol, cut)
            rounded = {name: round(value, 1) for name, value in row.items()}
            rows.append({"dataset": folder.name, "cut": cut, **rounded})
    return rows


def main() -> None:
    """Print the rows as csv."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="prepared datasets with times")
    parser.add_argument("--protocols", type=Path, default=Path("config/protocols.yaml"))
    parsed = parser.parse_args()
    rows = table_of(parsed.folders, load_protocols(parsed.protocols)[_PROTOCOL])
    writer = csv.DictWriter(sys.stdout, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


if __name__ == "__main__":
    main()
