"""Methods side by side: HR and NDCG of the reported round, under each protocol."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedrec.audit.differences import COMPARED_METRICS
from fedrec.config.methods import Methods
from fedrec.config.protocol import short_name
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.diverged import diverged_notes, mark_of
from fedrec.reporting.finding import chance_sentence, rounds_sentence, seeds_sentence
from fedrec.reporting.provenance import devices_of, rounds_of
from fedrec.reporting.standings import (
    CLEAN,
    KIND_LABELS,
    PUBLISHED,
    MethodScore,
    own_rounds,
    standings,
    titles_of,
)
from fedrec.reporting.subject import finished_runs, stem_of
from fedrec.reporting.tables.table import RUNS, ReportColumn, ReportTable, Row, write_forms
from fedrec.runs.kinds import kind_of
from fedrec.runs.origins import origin_columns
from fedrec.runs.record import RunRecord

LAYOUT = Layout("table", needs=("runs", "models"), selection="compared")


def build(target: Target, project: Project) -> None:
    """Write the comparison of the runs of a target, which are on one dataset."""
    records = finished_runs(target, project)
    rows, table = comparison(records, project.methods)
    write_forms(stem_of(target, project), rows, [table])


def comparison(records: Sequence[RunRecord], methods: Methods) -> tuple[list[dict[str, Any]], ReportTable]:
    """The rows of the csv, one per method, paper and protocol, and the table, of runs on one dataset."""
    found = standings(records, methods)
    by_run = {one.runs.split()[0]: one for one in found}
    titles = titles_of(records, methods)
    rows = []
    for group in _groups(records):
        first, standing = group[0], by_run.get(group[0].id.folder)
        if standing is None:
            rows.append(_without_numbers(group, titles[first.id.method], methods))
        else:
            rows.append(_row(group, standing))
    return rows, _table(rows, found)


def _groups(records: Sequence[RunRecord]) -> list[list[RunRecord]]:
    """Runs that differ in the seed alone."""
    groups: dict[tuple[str, str, str], list[RunRecord]] = {}
    for record in records:
        groups.setdefault((record.id.method, record.id.paper, record.protocol), []).append(record)
    return list(groups.values())


def _table(rows: Sequence[Row], found: Sequence[MethodScore]) -> ReportTable:
    """The published and the clean protocol beside each other, best methods first under clean."""
    merged: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        protocol = short_name(row["protocol"])
        shown = merged.setdefault((row["method"], row["paper"]), _about(row) | {RUNS: []})
        shown |= {f"{key}_{protocol}": row.get(key) for key in (*COMPARED_METRICS, "seconds_per_round")}
        shown |= {f"{key}_{protocol}_runs": row[RUNS] for key in COMPARED_METRICS}
        shown |= _marks(row, protocol)
        shown[RUNS] = [*shown[RUNS], *row[RUNS]]
    hashes = sorted({str(row["split_hash"])[:8] for row in rows})
    dataset = found[0].dataset
    return ReportTable(
        caption=f"Methods on {dataset}, {found[0].users:,} users: test HR@10 [95 % interval over users] and "
        "NDCG@10 at the round each protocol reports. The published protocol leaks the held-out item, the "
        f"clean one does not. {chance_sentence(found)}{seeds_sentence(found)} "
        "Settings of the paper named, but for those in brackets and the rounds. "
        f"Splits {', '.join(hashes)}; hashes of code are in the csv.",
        columns=[
            ReportColumn("method", "method", align="left"),
            ReportColumn("kind", "kind", align="left"),
            ReportColumn("paper", "settings of", align="left"),
            *(
                ReportColumn(f"{name}_{protocol}", f"{name.upper()}, {protocol}", "{:.4f}", ranked=True)
                for name in COMPARED_METRICS
                for protocol in (PUBLISHED, CLEAN)
            ),
            ReportColumn("rounds", "rounds trained"),
            ReportColumn("own_rounds", "rounds in the settings"),
            ReportColumn("seconds_per_round_clean", "seconds per round", "{:.3f}"),
        ],
        rows=sorted(merged.values(), key=lambda row: -(row.get("hr@10_clean") or 0.0)),
        notes=[
            *([words] if (words := rounds_sentence(found)) else []),
            *diverged_notes(rows, "title", "protocol"),
        ],
        folds=True,
    )


def _marks(row: Row, protocol: str) -> dict[str, str]:
    """What stands behind the numbers of a row: that it diverged, and the interval of its HR@10."""
    diverged = mark_of(row)
    marks = {f"{key}_{protocol}_mark": diverged for key in COMPARED_METRICS if diverged}
    if row.get("hr@10") is not None:
        interval = f" [{row['hr@10_low']:.2f}, {row['hr@10_high']:.2f}]"
        marks[f"hr@10_{protocol}_mark"] = f"{diverged}{interval}"
    return marks


def _about(row: Row) -> dict[str, Any]:
    """What a shown row says whatever the protocol."""
    about = {key: row[key] for key in ("paper", "rounds", "own_rounds")}
    return {"method": row["title"], "kind": KIND_LABELS[row["kind"]], **about}


def _without_numbers(group: Sequence[RunRecord], title: str, methods: Methods) -> dict[str, Any]:
    """The row of runs that diverged before there was a number."""
    first = group[0]
    return {
        "title": title,
        "method": first.id.method,
        "kind": kind_of(methods, first.id.method, first.settings),
        "paper": first.id.paper,
        "protocol": first.protocol,
        "rounds": int(first.settings["rounds"]),
        "own_rounds": own_rounds(first, methods),
        **origin_columns(group),
    }


def _row(group: Sequence[RunRecord], standing: MethodScore) -> dict[str, Any]:
    numbered = [record for record in group if record.has_numbers()]
    first = numbered[0]
    rule = first.round_rule
    values = [record.summary["metrics"][rule]["test"] for record in numbered]
    metrics = {name: float(np.mean([value[name] for value in values])) for name in values[0]}
    deviations = (
        {f"{name}_sd": float(np.std([value[name] for value in values], ddof=1)) for name in values[0]}
        if len(values) > 1
        else {}
    )
    return {
        "title": standing.title,
        "method": first.id.method,
        "kind": standing.kind,
        "paper": first.id.paper,
        "protocol": first.protocol,
        "round_rule": rule,
        "round": rounds_of(group, rule),
        "rounds": standing.rounds,
        "own_rounds": standing.own_rounds,
        "users": standing.users,
        "chance": standing.chance,
        **metrics,
        **deviations,
        "hr@10_low": standing.low,
        "hr@10_high": standing.high,
        "seconds_per_round": float(
            np.median([record.summary["measured"]["seconds_per_round"] for record in numbered])
        ),
        "device": devices_of(group),
        **origin_columns(group),
    }
