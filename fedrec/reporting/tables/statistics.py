"""The tables of datasets: our counts beside every printed row, and properties of the splits."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedrec.config.catalogue import Catalogue, Dataset, Published
from fedrec.errors import ConfigurationError
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import statistics_of, stem_of
from fedrec.reporting.tables.table import ReportColumn, ReportTable, Row, write_forms

LAYOUT = Layout("table", needs=("statistics",), selection="statistics")

_COUNTS = ("users", "items", "interactions")


def build(target: Target, project: Project) -> None:
    """Write the statistics of a target's datasets: all rows, or those of one paper."""
    paper = target.content.get("paper")
    rows = [
        row
        for row in statistics_rows(
            project.catalogue, statistics_of(target, project), target.content["unavailable"]
        )
        if paper in (None, row["paper"])
    ]
    if not rows:
        raise ConfigurationError(f"{target.name}: has no datasets. Name some in its entry.")
    write_forms(stem_of(target, project), rows, statistics_tables(rows, target.fingerprint))


def statistics_rows(
    catalogue: Catalogue, described: Mapping[str, Mapping[str, Any]], unavailable: Mapping[str, str]
) -> list[Row]:
    """One row per dataset and paper, in the catalogue's order, or one row for a dataset that no paper uses.

    `described` has the statistics of available datasets, `unavailable` the reasons for datasets and splits
    (`dataset/protocol`) that are not available. The table has every dataset of either.
    """
    return [
        row
        for name in catalogue
        if name in described or name in unavailable
        for row in _rows_of(catalogue[name], described.get(name), unavailable)
    ]


def statistics_tables(rows: Sequence[Row], code: str) -> list[ReportTable]:
    """Two tables: counts beside those of the papers, and properties of the splits."""
    return [_counts_table(rows, code), _splits_table(rows, code)]


def _counts_table(rows: Sequence[Row], code: str) -> ReportTable:
    # A dataset whose counts no paper prints has one row here, not one per paper.
    first = {row["dataset"]: row["paper"] for row in reversed(rows)}
    shown = [
        row
        for row in rows
        if row["printed_in"] or (row["unprinted"] and row["paper"] == first[row["dataset"]])
    ]
    # Without printed counts there is nothing to compare with.
    printed = any(row["printed_in"] for row in shown)
    sides = (("", ""), ("_published", ", printed")) if printed else (("", ""),)
    beside = ", ours beside each paper's" if printed else ""
    about = ("printed_in", "printed in") if printed else ("title", "title")
    return ReportTable(
        caption=f"Dataset statistics{beside}: users and items after the filter, rows of the file as "
        "interactions, sparsity in percent. Counts of the filtered file, before any protocol. "
        f"Code {code[:12]}; hashes of the data are in the csv.",
        columns=[
            ReportColumn("dataset", "dataset", align="left"),
            ReportColumn(*about, align="left"),
            *(
                ReportColumn(f"{count}{suffix}", f"{count}{heading}", "{:,}")
                for count in _COUNTS
                for suffix, heading in sides
            ),
            *(ReportColumn(f"sparsity{suffix}", f"sparsity{heading}", "{:.2f}") for suffix, heading in sides),
            *([ReportColumn("match", "match", align="left")] if printed else []),
        ],
        rows=shown,
        part="counts",
        notes=list(dict.fromkeys(_notes(shown))),
    )


def _notes(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        for key in ("unavailable", "note", "note_on_printed"):
            if row[key]:
                whole = key == "note" or row["paper"] is None
                about = row["dataset"] if whole else f"{row['dataset']}, {row['paper']}"
                yield f"{about}: {row[key]}"


def _splits_table(rows: Sequence[Row], code: str) -> ReportTable:
    return ReportTable(
        caption="Properties of the splits, under each paper's published protocol and under the clean one. In "
        "percent of users: tied last, the latest time is shared by several rows; cold test, the test item is "
        "in nobody's training rows; known test, the test item is among the user's own training rows. Counts: "
        "repeated (user, item) rows; users split; users dropped because fewer than 3 rows are left, or too "
        "few unseen items for the candidates. "
        f"Code {code[:12]}; seeds and split hashes are in the csv.",
        columns=[
            ReportColumn("dataset", "dataset", align="left"),
            ReportColumn("paper", "paper", align="left"),
            ReportColumn("repeated_pairs", "repeated pairs", "{:,}"),
            ReportColumn("tied_last_percent", "tied last", "{:.1f}"),
            ReportColumn("cold_test_percent_published", "cold test, published", "{:.1f}"),
            ReportColumn("cold_test_percent_clean", "cold test, clean", "{:.1f}"),
            ReportColumn("known_test_percent_published", "known test, published", "{:.1f}"),
            ReportColumn("known_test_percent_clean", "known test, clean", "{:.1f}"),
            ReportColumn("split_users_published", "users, published", "{:,}"),
            ReportColumn("split_users_clean", "users, clean", "{:,}"),
            ReportColumn("dropped_users_clean", "dropped, clean", "{:,}"),
        ],
        rows=[row for row in rows if row["protocol"]],
        part="splits",
    )


def _rows_of(
    dataset: Dataset, described: Mapping[str, Any] | None, unavailable: Mapping[str, str]
) -> Iterator[Row]:
    papers: list[str | None] = [*dict.fromkeys((*dataset.published, *dataset.papers))]
    # A dataset that no paper uses has one row too, with its clean split alone.
    for paper in papers or [None]:
        printed = dataset.published.get(paper) if paper else None
        splits = described["splits"] if described else {}
        name = f"published-{paper}" if paper else "clean"
        yield {
            "dataset": dataset.name,
            "title": dataset.title,
            "paper": paper,
            "printed_in": f"{paper}, {printed.table}" if printed else None,
            **_counts(described, printed),
            "match": "not available" if described is None else _match(described, printed),
            "unavailable": unavailable.get(dataset.name, unavailable.get(f"{dataset.name}/{name}")),
            "note": dataset.note or None,
            "note_on_printed": (printed.note or None) if printed else None,
            "unprinted": not dataset.published,
            "repeated_pairs": described["repeated_pairs"] if described else None,
            "tied_last_percent": _tied_percent(described),
            "protocol": name if name in splits else None,
            **_split_columns(splits.get(name) if paper else None, "published"),
            **_split_columns(splits.get("clean"), "clean"),
            "interactions_hash": described["content"] if described else None,
        }


def _counts(described: Mapping[str, Any] | None, printed: Published | None) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for count in _COUNTS:
        columns[count] = described[count] if described else None
        columns[f"{count}_published"] = getattr(printed, count) if printed else None
    columns["sparsity"] = round(described["sparsity_percent"], 4) if described else None
    columns["sparsity_published"] = printed.sparsity if printed else None
    return columns


def _match(described: Mapping[str, Any], printed: Published | None) -> str:
    """`exact`, or what differs: ours, the paper's, and by how much."""
    if printed is None:
        return "nothing printed"
    differences = [
        f"{count}: {described[count]:,}, printed {getattr(printed, count):,} "
        f"({described[count] - getattr(printed, count):+,})"
        for count in _COUNTS
        if getattr(printed, count) not in (None, described[count])
    ]
    ours = f"{described['sparsity_percent']:.2f}"
    if ours != f"{printed.sparsity:.2f}":
        differences.append(f"sparsity: {ours}, printed {printed.sparsity:.2f}")
    return "; ".join(differences) or "exact"


def _tied_percent(described: Mapping[str, Any] | None) -> float | None:
    if described is None or described["tied_last_users"] is None:
        return None
    return _percent(described["tied_last_users"], described["users"])


def _split_columns(split: Mapping[str, Any] | None, suffix: str) -> dict[str, Any]:
    shares = {"cold_test": "cold_test_users", "known_test": "test_in_train_users"}
    columns: dict[str, Any] = {
        f"{name}_percent_{suffix}": _percent(split[key], split["users"]) if split else None
        for name, key in shares.items()
    }
    columns[f"split_users_{suffix}"] = split["users"] if split else None
    columns[f"dropped_users_{suffix}"] = split["dropped_users"] if split else None
    columns[f"split_seed_{suffix}"] = split["seed"] if split else None
    columns[f"split_hash_{suffix}"] = split["content"] if split else None
    return columns


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 4)
