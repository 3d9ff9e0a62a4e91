"""Measure the length of users' histories, and the share of others' training rows after their test row.

    fedrec fetch ml-100k && fedrec prepare ml-100k --out results/data/ml-100k
    python -m benchmarks.times results/data/ml-100k > docs/numbers/times.csv

It measures the time from each user's first row to the last. In the mean over users, it also measures the
share of all other users' rows that are later than the user's last row, which is held out for test.
"""

import argparse
import csv
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrec.files.parquet import read_table

_HOUR, _DAY = 3600, 24 * 3600


def times_row(user: NDArray[Any], time: NDArray[Any]) -> dict[str, int | float]:
    """Shares of users with a history within an hour or a day, and of rows of others that are later."""
    users = np.unique(user)
    spans = np.array([np.ptp(time[user == one]) for one in users])
    ends = np.array([time[user == one].max() for one in users])
    own = np.array([(user == one).sum() for one in users])
    later = len(time) - np.searchsorted(np.sort(time), ends, side="right")
    return {
        "users": len(users),
        "within_hour_percent": 100 * float((spans <= _HOUR).mean()),
        "within_day_percent": 100 * float((spans <= _DAY).mean()),
        "later_rows_of_others_percent": 100 * float((later / (len(time) - own)).mean()),
    }


def table_of(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """A row for each prepared dataset."""
    rows = []
    for folder in folders:
        table = read_table(folder / "interactions.parquet")[0]
        row = times_row(table["user"].to_numpy(), table["time"].to_numpy())
        rows.append({"dataset": folder.name} | {key: round(value, 1) for key, value in row.items()})
    return rows


def main() -> None:
    """Print the rows as csv."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="prepared datasets with times")
    rows = table_of(parser.parse_args().folders)
    writer = csv.DictWriter(sys.stdout, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


if __name__ == "__main__":
    main()
