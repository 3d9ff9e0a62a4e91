"""Methods side by side: HR and NDCG of the reported round, under each protocol, sampled and exact."""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from fedrec.audit.differences import COMPARED_METRICS, EXACT_METRIC
from fedrec.audit.protocol_seeds import over_protocol_seeds
from fedrec.audit.significance import bootstrap_interval
from fedrec.config.methods import Methods
from fedrec.config.papers import BOTH
from fedrec.config.protocol import rules_name, short_name
from fedrec.evaluation.metrics import per_user
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import finished_runs, stem_of
from fedrec.reporting.diverged import diverged_notes, mark_of
from fedrec.reporting.evaluated import ROW_LABELS, evaluated_notes, evaluated_records
from fedrec.reporting.exact import EXACT_METRICS_NOTE, exact_means, exact_notes
from fedrec.reporting.headline import chance_sentence, rounds_sentence, seeds_sentence
from fedrec.reporting.method_scores import (
    CLEAN,
    METRIC,
    MethodScore,
    hits_of,
    method_scores,
    own_rounds,
    titles_of,
)
from fedrec.reporting.provenance import devices_of, rounds_of
from fedrec.reporting.tables.table import RUNS, ReportColumn, ReportTable, Row, write_forms
from fedrec.runs.exact import EXACT_METRICS, is_exact, metric_title, sampled_name
from fedrec.runs.method_kinds import kind_of
from fedrec.runs.provenance_columns import origin_columns
from fedrec.runs.record import SCORE_SOURCE, RunRecord

_NAMES = (
    ReportColumn("method", "method", align="left"),
    ReportColumn("kind", "kind", align="left"),
    ReportColumn("paper", "settings of", align="left"),
)
_EXACT_SHOWN = ("exact_hr@10", "exact_ndcg@10")
"""The exact metrics shown under every protocol."""
_EXACT_CLEAN = tuple(name for name in EXACT_METRICS if name not in _EXACT_SHOWN)
"""The exact metrics shown only under the clean protocol."""
_VALIDATION = f"validation_{METRIC}"
"""The column by which methods are sorted: a choice by it is not a choice on test."""
LAYOUT = Layout("table", needs=("runs", "models", "evaluated"), selection="comparison")


def build(target: Target, project: Project) -> None:
    """Write the comparison of the runs of a target, which are on one dataset."""
    records = finished_runs(target, project)
    theirs = evaluated_records(target, project, records)
    rows, tables = comparison(records, project.methods, theirs, evaluated_notes(target, theirs))
    write_forms(stem_of(target, project), rows, tables)


def comparison(
    records: Sequence[RunRecord],
    methods: Methods,
    theirs: Sequence[RunRecord] = (),
    about_theirs: Sequence[str] = (),
) -> tuple[list[dict[str, Any]], list[ReportTable]]:
    """The rows of the csv, score per method, paper and protocol, and the tables, of runs on score dataset.

    `theirs` are records of other systems on the same splits; notes state the origin of their scores.
    """
    every = method_scores(records, methods)
    scores = [score for score in every if rules_name(score.protocol) == score.protocol] or every
    by_run = {score.runs.split()[0]: score for score in every}
    titles = titles_of(records, methods)
    rows = []
    for group in _groups(records):
        first, standing = group[0], by_run.get(group[0].id.folder)
        if standing is None:
            rows.append(_without_numbers(group, titles[first.id.method], methods))
        else:
            rows.append(_row(group, standing))
    rows += map(_row_of_theirs, theirs)
    lacking = [*exact_notes(records), *about_theirs]
    seeded = _over_seeds(records, titles)
    more = [_seeds_table(seeded, scores)] if seeded else []
    if not any(name in row for row in rows for name in EXACT_METRICS):
        return [*rows, *seeded], [_table(rows, scores, lacking), *more]
    return [*rows, *seeded], [_table(rows, scores), _exact_table(rows, scores, lacking), *more]


def _groups(records: Sequence[RunRecord]) -> list[list[RunRecord]]:
    """Runs that differ in the seed alone."""
    groups: dict[tuple[str, str, str], list[RunRecord]] = {}
    for record in records:
        groups.setdefault((record.id.method, record.id.paper, record.protocol), []).append(record)
    return list(groups.values())


def _table(rows: Sequence[Row], scores: Sequence[MethodScore], notes: Sequence[str] = ()) -> ReportTable:
    """The table of the published and the clean protocol, sorted by validation under clean."""
    hashes = sorted({str(row["split_hash"])[:8] for row in rows})
    protocols = _protocols(rows)
    return ReportTable(
        caption=f"Methods on {scores[0].dataset}, {_users(scores)}: test HR@10 [95 % interval over "
        "users] and NDCG@10 at the round that each protocol reports, sorted by validation. The published "
        "protocol leaks the held-out item, the clean protocol does not"
        f"{_other_protocols_text(protocols)}. {chance_sentence(scores)}{seeds_sentence(scores)} "
        "Settings are those of the paper named, except those in brackets and the rounds. "
        f"Splits {', '.join(hashes)}; hashes of code are in the csv.",
        columns=[
            *_NAMES,
            *(
                ReportColumn(f"{_VALIDATION}_{protocol}", f"validation HR@10, {protocol}", "{:.4f}")
                for protocol in _ordering(rows)
            ),
            *_numbers(COMPARED_METRICS, protocols),
            ReportColumn("rounds", "rounds trained"),
            ReportColumn("own_rounds", "rounds in the settings"),
            ReportColumn("seconds_per_round_clean", "seconds per round", "{:.3f}"),
        ],
        rows=_best_first(_merged(rows, (*COMPARED_METRICS, _VALIDATION, "seconds_per_round"), METRIC), rows),
        notes=[
            *([words] if (words := rounds_sentence(scores)) else []),
            *diverged_notes(rows, "title", "protocol"),
            *notes,
        ],
        folds=True,
    )


def _exact_table(rows: Sequence[Row], scores: Sequence[MethodScore], notes: Sequence[str]) -> ReportTable:
    """The exact metrics of the same runs, in the same order."""
    exact = _protocols([row for row in rows if EXACT_METRIC in row])
    protocols = [name for name in _protocols(rows) if name in (*BOTH, *exact)]
    return ReportTable(
        caption=f"Exact metrics of the same runs on {scores[0].dataset}, {_users(scores)}: HR@10 "
        f"[95 % interval over users], NDCG and MRR. {EXACT_METRICS_NOTE}{seeds_sentence(scores)}",
        columns=[*_NAMES, *_numbers(_EXACT_SHOWN, protocols), *_numbers(_EXACT_CLEAN, [CLEAN])],
        rows=_best_first(_merged(rows, (*EXACT_METRICS, _VALIDATION), EXACT_METRIC), rows),
        notes=[*diverged_notes(rows, "title", "protocol"), *notes],
        part="exact",
        folds=True,
    )


def _over_seeds(records: Sequence[RunRecord], titles: Mapping[str, str]) -> list[dict[str, Any]]:
    """Metrics over all seeds of a protocol, of methods with runs under several."""
    lines: dict[tuple[str, str, str], dict[str, list[RunRecord]]] = {}
    for record in records:
        key = rules_name(record.protocol), record.id.method, record.id.paper
        if record.has_numbers():
            lines.setdefault(key, {}).setdefault(record.protocol, []).append(record)
    return [
        {
            "title": titles[method],
            "method": method,
            "paper": paper,
            "protocol": f"{rules}-*",
            **_over_protocols(list(line.values())),
            **origin_columns([record for group in line.values() for record in group]),
        }
        for (rules, method, paper), line in lines.items()
        if len(line) > 1
    ]


def _over_protocols(groups: Sequence[Sequence[RunRecord]]) -> dict[str, float]:
    """Sampled HR@10, and exact if all runs have it, of the users that exist under all protocol seeds."""
    exact = all(record.exact_metrics for group in groups for record in group)
    columns: dict[str, float] = {}
    for metric in (METRIC, *([EXACT_METRIC] if exact else [])):
        ranks = [[record.ranks_of(metric) for record in group] for group in groups]
        users = reduce(np.intersect1d, [of_run.user for group in ranks for of_run in group])
        values = [
            np.stack([per_user(one.rank[np.isin(one.user, users)], sampled_name(metric)) for one in group])
            for group in ranks
        ]
        result = over_protocol_seeds(values)
        columns |= {metric: result.value, f"{metric}_low": result.low, f"{metric}_high": result.high}
        columns |= {"users": result.users, "protocol_seeds": result.protocols, "runs_in_all": result.runs}
    return columns


def _seeds_table(rows: Sequence[Row], scores: Sequence[MethodScore]) -> ReportTable:
    """The metrics over seeds of protocols."""
    best = sorted(rows, key=lambda row: (row["protocol"], -row[METRIC]))
    return ReportTable(
        caption=f"Over seeds of the protocol on {scores[0].dataset}: each draws other candidates. Means over "
        "protocol seeds, training seeds and users, with 95 % intervals from a bootstrap over all three.",
        columns=[
            *_NAMES[:1],
            ReportColumn("paper", "settings of", align="left"),
            ReportColumn("protocol", "protocol", align="left"),
            *(ReportColumn(name, metric_title(name), "{:.4f}") for name in (METRIC, EXACT_METRIC)),
            ReportColumn("users", "users", "{:,}"),
            ReportColumn("protocol_seeds", "protocol seeds", "{:,}"),
            ReportColumn("runs_in_all", "runs", "{:,}"),
        ],
        rows=[{**row, **_interval_marks(row), "method": row["title"]} for row in best],
        notes=diverged_notes(rows, "title", "protocol"),
        part="seeds",
    )


def _interval_marks(row: Row) -> dict[str, str]:
    diverged = mark_of(row)
    return {
        f"{name}_mark": f"{diverged} [{row[f'{name}_low']:.3f}, {row[f'{name}_high']:.3f}]"
        for name in (METRIC, EXACT_METRIC)
        if name in row
    }


def _protocols(rows: Sequence[Row]) -> list[str]:
    """The short names of the protocols that have columns; those with another seed have none."""
    there = dict.fromkeys(short_name(row["protocol"]) for row in rows)
    both = (name for name in BOTH if name in there)
    return [*both, *(name for name in there if name not in BOTH and rules_name(name) == name)]


def _users(scores: Sequence[MethodScore]) -> str:
    """The number of users, and the number under further protocols if it differs."""
    others = {
        score.protocol: score.users
        for score in scores
        if score.protocol not in BOTH and score.users != scores[0].users
    }
    under = (f"{users:,} under {protocol}" for protocol, users in others.items())
    return ", ".join((f"{scores[0].users:,} users", *under))


def _other_protocols_text(protocols: Sequence[str]) -> str:
    others = [name for name in protocols if name not in BOTH]
    return f", nor do others ({', '.join(others)})" if others else ""


def _numbers(metrics: Sequence[str], protocols: Sequence[str]) -> list[ReportColumn]:
    return [
        ReportColumn(f"{name}_{protocol}", f"{metric_title(name)}, {protocol}", "{:.4f}", ranked=True)
        for name in metrics
        for protocol in protocols
    ]


def _merged(rows: Sequence[Row], keys: Sequence[str], with_interval: str) -> list[dict[str, Any]]:
    """A row per method and paper, of all protocols."""
    merged: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        protocol = short_name(row["protocol"])
        shown = merged.setdefault((row["method"], row["paper"]), _about(row) | {RUNS: []})
        shown |= {f"{key}_{protocol}": row.get(key) for key in keys}
        shown |= {f"{key}_{protocol}_runs": row[RUNS] for key in keys if "@" in key}
        shown |= _marks(row, protocol, [key for key in keys if "@" in key], with_interval)
        shown[RUNS] = [*shown[RUNS], *row[RUNS]]
    return list(merged.values())


def _best_first(shown: Sequence[dict[str, Any]], rows: Sequence[Row]) -> list[dict[str, Any]]:
    keys = [f"{_VALIDATION}_{protocol}" for protocol in _ordering(rows)]
    return sorted(shown, key=lambda row: [-(row.get(key) or 0.0) for key in keys])


def _ordering(rows: Sequence[Row]) -> list[str]:
    """The protocol whose validation sorts the methods: clean, or the first that has runs."""
    protocols = _protocols(rows)
    return [CLEAN] if CLEAN in protocols else protocols[:1]


def _marks(row: Row, protocol: str, metrics: Sequence[str], with_interval: str) -> dict[str, str]:
    """The marks behind the numbers of a row: divergence, and the interval of one metric."""
    diverged = mark_of(row)
    marks = {f"{key}_{protocol}_mark": diverged for key in metrics if diverged}
    if row.get(with_interval) is not None:
        # Exact metrics are small: two digits would show little.
        digits = 3 if is_exact(with_interval) else 2
        low, high = (f"{row[f'{with_interval}_{end}']:.{digits}f}" for end in ("low", "high"))
        interval = f" [{low}, {high}]"
        marks[f"{with_interval}_{protocol}_mark"] = f"{diverged}{interval}"
    return marks


def _about(row: Row) -> dict[str, Any]:
    """The cells of a shown row that do not depend on the protocol."""
    about = {key: row[key] for key in ("paper", "rounds", "own_rounds")}
    return {"method": row["title"], "kind": ROW_LABELS[row["kind"]], **about}


def _without_numbers(group: Sequence[RunRecord], title: str, methods: Methods) -> dict[str, Any]:
    """The row of runs that diverged before they had a number."""
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
        _VALIDATION: float(
            np.mean([record.summary["metrics"][rule]["validation"][METRIC] for record in numbered])
        ),
        "hr@10_low": standing.low,
        "hr@10_high": standing.high,
        **_exact(numbered, standing),
        "seconds_per_round": float(
            np.median([record.summary["measured"]["seconds_per_round"] for record in numbered])
        ),
        "device": devices_of(group),
        **origin_columns(group),
    }


def _row_of_theirs(record: RunRecord) -> dict[str, Any]:
    """The row of another system: its metrics, without settings, rounds or costs."""
    low, high = bootstrap_interval(hits_of([record]))
    row = {
        "title": record.id.method,
        "method": record.id.method,
        "kind": SCORE_SOURCE,
        "paper": None,
        "protocol": record.protocol,
        "rounds": None,
        "own_rounds": None,
        "users": len(record.ranks_of(METRIC).user),
        **record.summary["metrics"][record.round_rule]["test"],
        "hr@10_low": low,
        "hr@10_high": high,
        **origin_columns([record]),
    }
    if record.exact_metrics:
        low, high = bootstrap_interval(hits_of([record], EXACT_METRIC))
        row |= {**record.exact_metrics, f"{EXACT_METRIC}_low": low, f"{EXACT_METRIC}_high": high}
    return row


def _exact(group: Sequence[RunRecord], standing: MethodScore) -> dict[str, float | None]:
    """The exact metrics of runs that differ by seed, with the interval of HR@10; empty if any lacks them."""
    means = exact_means(group)
    if not means:
        return {}
    deviations = {f"{name}_sd": sd for name in EXACT_METRICS if (sd := means[name].sd) is not None}
    return {
        **{name: means[name].mean for name in EXACT_METRICS},
        **deviations,
        f"{EXACT_METRIC}_low": standing.exact_low,
        f"{EXACT_METRIC}_high": standing.exact_high,
    }
