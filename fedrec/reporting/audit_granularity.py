"""The table of printed hit ratios: single runs, or averages of five as the papers say."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedrec.audit.granularity import ALL_TABLES, AVERAGES, NEITHER, RUNS
from fedrec.config.catalogue import Catalogue
from fedrec.reporting.tables import Column, Row, Table


def users_of(catalogue: Catalogue, described: Mapping[str, Mapping[str, Any]]) -> dict[tuple[str, str], int]:
    """The number of users by paper and dataset, for every paper that uses the dataset.

    It is that of our split for the paper, if `described` (the statistics of each dataset at hand) has one;
    else that of our interactions; else the one the paper prints. A dataset with none of them is left out.
    """
    found: dict[tuple[str, str], int] = {}
    for name in catalogue:
        for paper in catalogue[name].papers:
            printed = catalogue[name].published.get(paper)
            if name in described:
                split = described[name]["splits"].get(f"published-{paper}", described[name])
                found[paper, name] = split["users"]
            elif printed is not None and printed.users is not None:
                found[paper, name] = printed.users
    return found


def granularity_table(rows: Sequence[Row]) -> Table:
    """The rows of `fedrec.audit.granularity.granularity_rows` to be read."""
    return Table(
        caption=f"Are the printed hit ratios averages of {RUNS} runs, as the papers say? A run over n users "
        f"gives a multiple of 1/n and an average of {RUNS} runs one of 1/({RUNS}n), so the table counts the "
        "distinct printed numbers that are such multiples when rounded, beside the share that chance would "
        "give and, for 1/n, the share and p-value that true averages would.",
        columns=[
            Column("paper", "paper", align="left"),
            Column("dataset", "dataset", align="left"),
            Column("table", "table", align="left"),
            Column("users", "n", "{:,}"),
            Column("finding", "finding", align="left"),
            Column("values", "numbers"),
            Column("single_matches", "fit 1/n"),
            Column("single_chance", "by chance", "{:.2f}"),
            Column("single_p", "p", "{:.1g}"),
            Column("single_claimed", "of averages", "{:.2f}"),
            Column("single_claimed_p", "p of averages", "{:.1g}"),
            Column("average_matches", f"fit 1/({RUNS}n)"),
            Column("average_chance", "by chance", "{:.2f}"),
            Column("average_p", "p", "{:.1g}"),
        ],
        rows=rows,
        notes=[
            f"{AVERAGES}: no single runs; averages of {RUNS} runs in particular only where few numbers fit "
            f"1/({RUNS}n) by chance.",
            f"{NEITHER}: neither single runs nor averages of {RUNS} runs over n users, as rounded.",
            *(
                f"{row['paper']}, {row['dataset']}, {row['table']}: hit ratios over part of the users, left "
                f"out: {row['left_out']}."
                for row in rows
                if row["left_out"] and row["table"] != ALL_TABLES
            ),
        ],
    )
