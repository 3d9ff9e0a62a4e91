"""Methods side by side: HR and NDCG of the reported round, under each protocol."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedrec.audit.differences import COMPARED_METRICS, MARKS_EXPLAINED, difference_rows, significance_marks
from fedrec.config.methods import title
from fedrec.config.protocol import short_name
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.subject import finished_runs, stem_of
from fedrec.reporting.tables.table import RUNS, ReportColumn, ReportTable, Row, write_forms
from fedrec.runs.origins import origin_columns
from fedrec.runs.record import RunRecord

LAYOUT = Layout("table", needs=("runs",), selection="compared")


def build(target: Target, project: Project) -> None:
    """Write the comparison of the runs of a target, which are on one dataset."""
    records = finished_runs(target, project)
    marks = significance_marks(difference_rows(records, project.methods))
    titles = _titles(records, project.methods)
    rows = [
        {"title": titles[row["method"]], **row}
        | {
            f"{metric}_mark": marks[row["paper"], row["method"], row["protocol"], metric]
            for metric in COMPARED_METRICS
        }
        for row in comparison_rows(records)
    ]
    table = comparison_table(rows, records[0].id.dataset)
    write_forms(stem_of(target, project), rows, [table])


def comparison_rows(records: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """One row per method, paper and protocol: metrics of the protocol's own round, mean over seeds."""
    groups: dict[tuple[str, str, str], list[RunRecord]] = {}
    for record in records:
        groups.setdefault((record.id.method, record.id.paper, record.protocol), []).append(record)
    return [_row(*key, group) for key, group in groups.items()]


def comparison_table(rows: Sequence[Row], dataset: str) -> ReportTable:
    """The published and the clean protocol beside each other, best methods first under clean."""
    merged: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        protocol = short_name(row["protocol"])
        name = {"method": row.get("title") or row["method"], "paper": row["paper"]}
        shown = merged.setdefault((row["method"], row["paper"]), name | {RUNS: []})
        shown |= {f"{key}_{protocol}": row[key] for key in (*COMPARED_METRICS, "seconds_per_round")}
        shown |= {f"{key}_{protocol}_mark": row.get(f"{key}_mark") or "" for key in COMPARED_METRICS}
        shown[RUNS] = [*shown[RUNS], *row[RUNS]]
    hashes = sorted({str(row["split_hash"])[:8] for row in rows})
    seeds = sorted({str(row["seeds"]) for row in rows})
    # One round says all there is to say of popularity.
    rounds = sorted({int(row["rounds"]) for row in rows} - {1})
    return ReportTable(
        caption=f"Methods on {dataset}: test HR@10 and NDCG@10 at the round each protocol reports, under the "
        "paper's published protocol, which leaks the held-out item, and under the clean one. Settings of the "
        f"paper named, but for those in brackets; trained for {' or '.join(map(str, rounds))} rounds. "
        f"Seeds {', '.join(seeds)}; splits {', '.join(hashes)}; "
        "hashes of code are in the csv.",
        columns=[
            ReportColumn("method", "method", align="left"),
            ReportColumn("paper", "settings of", align="left"),
            *(
                ReportColumn(f"{name}_{protocol}", f"{name.upper()}, {protocol}", "{:.4f}", ranked=True)
                for protocol in ("published", "clean")
                for name in COMPARED_METRICS
            ),
            ReportColumn("seconds_per_round_clean", "s a round", "{:.3f}"),
        ],
        rows=sorted(merged.values(), key=lambda row: -row.get("hr@10_clean", 0.0)),
        notes=[MARKS_EXPLAINED]
        if any(row.get(f"{m}_mark") for row in rows for m in COMPARED_METRICS)
        else [],
        folds=True,
    )


def _titles(records: Sequence[RunRecord], methods: Mapping[str, Any]) -> dict[str, str]:
    """What each method is called: the caption says once how many rounds most were given, others say it."""
    changed = [run.settings["rounds"] for run in records if run.summary["sources"]["rounds"] == "user"]
    usual = [rounds for rounds, _ in Counter(changed).most_common(1)]
    return {
        run.id.method: title(methods, run.id.method, ["rounds"] if run.settings["rounds"] in usual else [])
        for run in records
    }


def _row(method: str, paper: str, protocol: str, group: Sequence[RunRecord]) -> dict[str, Any]:
    first = group[0]
    rule = first.round_rule
    values = [record.summary["metrics"][rule]["test"] for record in group]
    metrics = {name: float(np.mean([value[name] for value in values])) for name in values[0]}
    deviations = (
        {f"{name}_sd": float(np.std([value[name] for value in values], ddof=1)) for name in values[0]}
        if len(values) > 1
        else {}
    )
    return {
        "method": method,
        "paper": paper,
        "protocol": protocol,
        "round_rule": rule,
        "round": first.summary["rounds"][rule],
        "rounds": first.settings["rounds"],
        **metrics,
        **deviations,
        "seconds_per_round": float(
            np.median([record.summary["measured"]["seconds_per_round"] for record in group])
        ),
        "device": first.summary["measured"]["device"],
        **origin_columns(group),
    }
