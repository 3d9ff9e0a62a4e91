"""The table of printed hit ratios: single runs, or averages of five as the papers say."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedrec.audit.granularity import ALL_TABLES, AVERAGED_RUNS, AVERAGES, NEITHER, granularity_rows
from fedrec.config.catalogue import Catalogue
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import statistics_of, stem_of
from fedrec.reporting.tables.table import Chapter, ReportColumn, ReportTable, Row, write_forms

LAYOUT = Layout("table", needs=("statistics",), selection="printed_numbers")
CHAPTER = Chapter(
    "Granularity: are printed numbers averages?",
    "A hit ratio of one run over n users is a multiple of 1/n; an average of five runs need not be one. "
    "Where nearly all printed numbers are such multiples, though few would be by chance, they fit single "
    "runs, or five that are all the same. It is a question to the authors, not an accusation.",
    order=6,
)


def build(target: Target, project: Project) -> None:
    """Write the table of all printed hit ratios."""
    rows = granularity_rows(users_of(project.catalogue, statistics_of(target, project)))
    write_forms(stem_of(target, project), rows, [granularity_table(rows)], CHAPTER)


def users_of(catalogue: Catalogue, described: Mapping[str, Mapping[str, Any]]) -> dict[tuple[str, str], int]:
    """The number of users by paper and dataset, for every paper that uses the dataset.

    It is that of our split for the paper, if `described` (the statistics of each available dataset) has one;
    else that of our interactions; else the one the paper prints. A dataset with none of them is left out.
    """
    users: dict[tuple[str, str], int] = {}
    for name in catalogue:
        for paper in catalogue[name].papers:
            printed = catalogue[name].published.get(paper)
            if name in described:
                split = described[name]["splits"].get(f"published-{paper}", described[name])
                users[paper, name] = split["users"]
            elif printed is not None and printed.users is not None:
                users[paper, name] = printed.users
    return users


def granularity_table(rows: Sequence[Row]) -> ReportTable:
    """The rows of `fedrec.audit.granularity.granularity_rows` to be read."""
    return ReportTable(
        caption=f"Are the printed hit ratios averages of {AVERAGED_RUNS} runs, as the papers state? One run "
        f"over n users gives a multiple of 1/n, an average of {AVERAGED_RUNS} runs a multiple of "
        f"1/({AVERAGED_RUNS}n). The table counts the distinct printed numbers that are such multiples after "
        "rounding. “By chance” is the share of all numbers of so many digits that are. “Of averages” is the "
        "share that averages would give. Each p is the probability of so many matches or more.",
        columns=[
            ReportColumn("paper", "paper", align="left"),
            ReportColumn("dataset", "dataset", align="left"),
            ReportColumn("table", "table", align="left"),
            ReportColumn("users", "n", "{:,}"),
            ReportColumn("finding", "finding", align="left"),
            ReportColumn("values", "numbers"),
            ReportColumn("single_matches", "fit 1/n"),
            ReportColumn("single_chance", "by chance", "{:.2f}"),
            ReportColumn("single_p", "p", "{:.1g}"),
            ReportColumn("single_claimed", "of averages", "{:.2f}"),
            ReportColumn("single_claimed_p", "p of averages", "{:.1g}"),
            ReportColumn("average_matches", f"fit 1/({AVERAGED_RUNS}n)"),
            ReportColumn("average_chance", "by chance", "{:.2f}"),
            ReportColumn("average_p", "p", "{:.1g}"),
        ],
        rows=rows,
        notes=[
            f"{AVERAGES}: these are not single runs. They point to averages of {AVERAGED_RUNS} runs only if "
            f"few numbers fit 1/({AVERAGED_RUNS}n) by chance.",
            f"{NEITHER}: as rounded, these are neither single runs nor averages of {AVERAGED_RUNS} runs "
            "over n users.",
            *(
                f"{row['paper']}, {row['dataset']}, {row['table']}: hit ratios over part of the users, left "
                f"out: {row['left_out']}."
                for row in rows
                if row["left_out"] and row["table"] != ALL_TABLES
            ),
        ],
    )
