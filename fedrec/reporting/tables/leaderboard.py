"""The leaderboard: metrics and costs of all methods, tuned by the same rule under the clean protocol."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedrec.audit.differences import COMPARED_METRICS
from fedrec.config.claims import NOT_COUNTED
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import finished_runs, stem_of
from fedrec.reporting.diverged import diverged_notes, mark_of
from fedrec.reporting.evaluated import ROW_LABELS, evaluated_notes, evaluated_records
from fedrec.reporting.exact import EXACT_METRICS_NOTE, exact_notes
from fedrec.reporting.provenance import origin_sentence, provenance_of_rows
from fedrec.reporting.tables.leaderboard_rows import (
    ACTIVITY_GROUPS,
    AGAINST_SIDES,
    LEADING_METRIC,
    NOT_FINISHED,
    NOT_TRAINED,
    leaderboard_rows,
)
from fedrec.reporting.tables.leaderboard_text import answers, not_counted_notes
from fedrec.reporting.tables.table import RUNS, Chapter, ReportColumn, ReportTable, write_forms
from fedrec.runs.exact import EXACT_METRICS, metric_title
from fedrec.runs.record import SCORE_SOURCE

LAYOUT = Layout("table", needs=("runs", "splits", "models", "evaluated"))
_METHOD = ReportColumn("title", "method", align="left")
_KIND = ReportColumn("kind_label", "kind", align="left")
_BEFORE = ("before_published", "before_clean")
_LEADING_FORM = "{:.4f}"
_UNTUNED = {SCORE_SOURCE: "not known"}
_Rows = Sequence[Mapping[str, Any]]


def build(target: Target, project: Project) -> None:
    """Write the tables of a target, and below the first the answers in words."""
    records = finished_runs(target, project)
    by_folder = {record.id.folder: record for record in records}
    theirs = evaluated_records(target, project, records)
    rows = leaderboard_rows(target.content, by_folder, project.methods, project.results / "data", theirs)
    found = answers(rows)
    missing = [f"Not shown: {dataset}, {why}." for dataset, why in target.content["unavailable"].items()]
    notes = [
        *found,
        *not_counted_notes(rows),
        *exact_notes(records),
        *evaluated_notes(target, theirs),
        *missing,
    ]
    tables = leaderboard_tables(rows, notes)
    chapter = Chapter(
        "Leaderboard: all methods tuned alike, without the leak",
        "Every method has the same rule of freedom and the same budget for its search, under the clean "
        "protocol. Settings of papers compete with what it found, on validation. Where there is no number, "
        f"the line says why: {NOT_FINISHED}, or {NOT_TRAINED}.",
        order=0,
        finding=found,
    )
    write_forms(stem_of(target, project), rows, tables, chapter)


def leaderboard_tables(rows: _Rows, notes: Sequence[str]) -> list[ReportTable]:
    """The table over all datasets, two tables for each dataset, and the tables of ranks."""
    shown = [{**row, "kind_label": ROW_LABELS[row["kind"]], **_marks(row)} for row in rows]
    datasets = list(dict.fromkeys(row["dataset"] for row in shown))
    groups = {
        dataset: _best_first([row for row in shown if row["dataset"] == dataset]) for dataset in datasets
    }
    tables = [_over_all(groups, notes)]
    for dataset, of_dataset in groups.items():
        tables += [_results(dataset, of_dataset), _costs(dataset, of_dataset)]
    return [*tables, *_neutral(groups), *_ranks(groups)]


def _best_first(rows: _Rows) -> list[Mapping[str, Any]]:
    return sorted(rows, key=lambda row: -(row.get(LEADING_METRIC) or 0.0))


def _marks(row: Mapping[str, Any]) -> dict[str, str]:
    """The marks behind numbers: the interval, divergence, or the reason for a missing number."""
    if row["state"]:
        return {f"{LEADING_METRIC}_mark": f" {row['state']}"}
    diverged = mark_of(row)
    marks = {f"{name}_mark": diverged for name in (*EXACT_METRICS, *COMPARED_METRICS) if diverged}
    for key in (LEADING_METRIC, *AGAINST_SIDES):
        if f"{key}_low" in row:
            low, high = row[f"{key}_low"], row[f"{key}_high"]
            if key == LEADING_METRIC:
                marks[f"{key}_mark"] = f"{diverged} [{low:.3f}, {high:.3f}]"
            else:
                marks[f"{key}_difference_mark"] = f" [{low:+.4f}, {high:+.4f}]"
    return marks


def _over_all(groups: Mapping[str, _Rows], notes: Sequence[str]) -> ReportTable:
    """The leading metric by dataset, and mean ranks among the methods that have it on all counted datasets.

    Scores of other systems have no rank: they were tuned by other rules.
    """
    to_count = {name: rows for name, rows in groups.items() if not rows[0][NOT_COUNTED]}
    counted = [name for name, rows in to_count.items() if sum(LEADING_METRIC in row for row in rows) > 1]
    lines: dict[str, dict[str, Any]] = {}
    ranked = _with_numbers_on_all([groups[name] for name in counted])
    for dataset, rows in groups.items():
        ranks = _ranked([row for row in rows if row["method"] in ranked], LEADING_METRIC)
        for row in rows:
            line = lines.setdefault(
                row["method"], {"title": row["title"], "kind_label": row["kind_label"], "ranks": {}, RUNS: []}
            )
            line[dataset] = row.get(LEADING_METRIC)
            line[f"{dataset}_mark"] = mark_of(row)
            line[RUNS] = [*line[RUNS], *row[RUNS]]
            if row["method"] in ranks:
                line["ranks"][dataset] = ranks[row["method"]]
    for line in lines.values():
        own = [line["ranks"].get(dataset) for dataset in counted]
        line["rank"] = float(np.mean(own)) if own and None not in own else None
    without = [line for line in lines.values() if line["rank"] is None]
    return ReportTable(
        caption="Leaderboard: exact NDCG@10 of the test items, clean protocol, all methods tuned "
        f"by the same rule on each dataset. The mean rank is over the {len(counted)} of {len(to_count)} "
        "counted datasets on which several methods have numbers, among the methods that have a number on all "
        f"of these: {len(lines) - len(without)} of {len(lines)} lines. Scores of other systems have no rank. "
        f"{EXACT_METRICS_NOTE}",
        columns=[
            _METHOD,
            _KIND,
            ReportColumn("rank", "mean rank", "{:.1f}"),
            *(ReportColumn(name, name, _LEADING_FORM, ranked=True) for name in groups),
        ],
        rows=sorted(lines.values(), key=lambda line: (line["rank"] is None, line["rank"] or 0.0)),
        notes=notes,
        part="all",
    )


def _results(dataset: str, rows: _Rows) -> ReportTable:
    central = next((row["central_against"] for row in rows if "central_against" in row), None)
    best = next((row["title"] for row in rows if row["method"] == central), "not known yet")
    return ReportTable(
        caption=f"Leaderboard on {dataset}, clean protocol{_users(rows)}: exact metrics, NDCG@10 with its "
        "95 % interval over users and seeds, and sampled metrics. A method has the settings that the search "
        "found, or a paper's own, whichever are better on validation. Differences are in exact NDCG@10, with "
        "95 % intervals over users, and in exact HR@10: to the centralised method that is best on "
        f"validation ({best}), and to the method's backbone. The p are of the "
        f"randomisation test, with Holm's correction over their column. {_origin(rows)}",
        columns=[
            _METHOD,
            _KIND,
            *(
                ReportColumn(name, metric_title(name), _LEADING_FORM, ranked=True)
                for name in _leading_first()
            ),
            *(
                ReportColumn(name, f"sampled {name.upper()}", _LEADING_FORM, ranked=True)
                for name in COMPARED_METRICS
            ),
            ReportColumn("central_difference", "to best centralised", "{:+.4f}"),
            ReportColumn("central_holm", "p", "{:.2g}"),
            ReportColumn("backbone_against", "backbone", align="left"),
            ReportColumn("backbone_difference", "to backbone", "{:+.4f}"),
            ReportColumn("backbone_holm", "p", "{:.2g}"),
            ReportColumn("backbone_hr_difference", "to backbone, HR@10", "{:+.4f}"),
            ReportColumn("backbone_hr_holm", "p", "{:.2g}"),
        ],
        rows=rows,
        notes=diverged_notes(rows, "title"),
        part=f"{dataset} reached",
    )


def _costs(dataset: str, rows: _Rows) -> ReportTable:
    names = ("least active", *("middle",) * (ACTIVITY_GROUPS - 2), "most active")
    return ReportTable(
        caption=f"Costs on {dataset}, clean protocol, means over seeds. KB: to and from a client in a round, "
        "at four bytes a number; MB: of all clients in all rounds. Seconds of different devices do not "
        "compare. Catalogue shown: the share of all items among the ten best of any user; popularity: the "
        "mean share of users who have these items in training (first seed, last round). AUC: the strongest "
        "attack on uploads, first seed. NDCG@10 of three groups: exact, users in equal groups by training "
        "rows. Validation: sampled NDCG@10 of the search and of the best paper. A dash: not measured.",
        columns=[
            _METHOD,
            ReportColumn("kilobytes_down", "KB down", "{:,.1f}"),
            ReportColumn("kilobytes_up", "KB up", "{:,.1f}"),
            ReportColumn("megabytes", "MB in all", "{:,.0f}"),
            ReportColumn("seconds", "seconds", "{:,.1f}"),
            ReportColumn("coverage", "catalogue shown", "{:.3f}"),
            ReportColumn("popularity", "popularity", "{:.3f}"),
            ReportColumn("auc", "AUC, uploads", "{:.3f}"),
            *(
                ReportColumn(f"group_{number}", f"NDCG@10, {name}", _LEADING_FORM, ranked=True)
                for number, name in enumerate(names, start=1)
            ),
            ReportColumn("settings_of", "settings of", align="left"),
            ReportColumn("validation_of_search", "validation, search", _LEADING_FORM),
            ReportColumn("validation_of_papers", "validation, papers", _LEADING_FORM),
            ReportColumn("trials", "trials"),
            ReportColumn("settings", "found", align="left"),
        ],
        rows=[
            {
                **row,
                "settings": row["settings"] or row["state"] or _UNTUNED.get(row["kind"], "nothing to tune"),
            }
            for row in rows
        ],
        notes=diverged_notes(rows, "title"),
        part=f"{dataset} costs",
    )


def _neutral(groups: Mapping[str, _Rows]) -> list[ReportTable]:
    """Sampled metrics of the same settings under the neutral protocol, for datasets that have runs."""
    tables = []
    for dataset, rows in groups.items():
        there = [row for row in rows if "runs_neutral_hr@10" in row]
        if there:
            tables.append(
                ReportTable(
                    caption=f"The same settings on {dataset} under the neutral protocol, whose clients "
                    "sample neither held-out items nor candidates: sampled metrics, means over seeds. Exact "
                    "metrics leak there. The p have Holm's correction over their column.",
                    columns=[
                        _METHOD,
                        *(
                            ReportColumn(key, f"{name.upper()}, {protocol}", _LEADING_FORM, ranked=True)
                            for name in COMPARED_METRICS
                            for key, protocol in ((name, "clean"), (f"runs_neutral_{name}", "neutral"))
                        ),
                        ReportColumn("backbone_against", "backbone", align="left"),
                        ReportColumn("backbone_neutral_difference", "to backbone, HR@10, neutral", "{:+.4f}"),
                        ReportColumn("backbone_neutral_holm", "p", "{:.2g}"),
                    ],
                    rows=sorted(there, key=lambda row: -row["runs_neutral_ndcg@10"]),
                    part=f"{dataset} neutral",
                )
            )
    return tables


def _ranks(groups: Mapping[str, _Rows]) -> list[ReportTable]:
    """The ranks of the papers' methods: published, clean, and tuned under clean."""
    tables = []
    for dataset, rows in groups.items():
        keys = [*(f"{which}_ndcg@10" for which in _BEFORE), "ndcg@10", LEADING_METRIC]
        there = [row for row in rows if all(key in row for key in keys)]
        if len(there) < 2:
            continue
        ranks = [_ranked(there, key) for key in keys]
        shown = [
            {"title": row["title"], "kind_label": row["kind_label"], RUNS: row[RUNS]}
            | {f"rank_{index}": of_key[row["method"]] for index, of_key in enumerate(ranks)}
            | {f"rank_{index}_runs": row.get(f"{key}_runs", row[RUNS]) for index, key in enumerate(keys)}
            for row in there
        ]
        headings = ("published rank", "clean rank", "tuned clean rank", "tuned clean rank, exact")
        tables.append(
            ReportTable(
                caption=f"Ranks of {len(there)} methods of papers on {dataset}. The first two are with a "
                "paper's settings: under its own protocol, which leaks, and under the clean one. The "
                "others are with the settings found under the clean one. All are by sampled NDCG@10, the "
                "last by exact NDCG@10, means over seeds; equal numbers share their mean rank.",
                columns=[
                    _METHOD,
                    _KIND,
                    *(
                        ReportColumn(f"rank_{index}", heading, "{:g}")
                        for index, heading in enumerate(headings)
                    ),
                ],
                rows=sorted(shown, key=lambda row: row["rank_0"]),
                part=f"{dataset} ranks",
            )
        )
    return tables


def _with_numbers_on_all(groups: Sequence[_Rows]) -> set[str]:
    """The methods that fedrec trained and that have the leading metric on every dataset."""
    on_each = [
        {row["method"] for row in rows if LEADING_METRIC in row and row["kind"] != SCORE_SOURCE}
        for rows in groups
    ]
    return set.intersection(*on_each) if on_each else set()


def _ranked(rows: _Rows, key: str) -> dict[str, float]:
    """The rank of each method with a number, 1 for the highest; equal numbers share their mean rank."""
    values = {row["method"]: row[key] for row in rows if key in row}
    return {
        method: 1 + sum(other > value for other in values.values())
        + (sum(other == value for other in values.values()) - 1) / 2
        for method, value in values.items()
    }  # fmt: skip


def _leading_first() -> list[str]:
    return [LEADING_METRIC, *(name for name in EXACT_METRICS if name != LEADING_METRIC)]


def _users(rows: _Rows) -> str:
    users = next((row["users"] for row in rows if "users" in row), None)
    return "" if users is None else f", {users:,} users"


def _origin(rows: _Rows) -> str:
    there = [row for row in rows if row[RUNS]]
    return origin_sentence(provenance_of_rows(there)) if there else "There are no runs yet."
