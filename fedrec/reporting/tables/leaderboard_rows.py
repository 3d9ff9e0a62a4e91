"""The rows of the leaderboard: metrics of each method, costs, and paired comparisons.

A row without a finished search, or without runs, has the reason in place of numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrec.audit.differences import COMPARED_METRICS
from fedrec.audit.protocol_seeds import over_protocol_seeds
from fedrec.audit.recommendations import recommended
from fedrec.audit.significance import compare, holm
from fedrec.audit.uploads import attack_uploads
from fedrec.config.claims import NOT_COUNTED
from fedrec.config.methods import Methods, resolve, setting_text
from fedrec.errors import ResultError
from fedrec.evaluation.metrics import activity_groups, per_user
from fedrec.federation.observe.recorder import extras
from fedrec.plan.runs import STATE
from fedrec.reporting.artefact_runs import split_table, training_counts
from fedrec.reporting.exact import exact_means
from fedrec.reporting.tables.table import RUNS
from fedrec.runs.exact import exact_name, sampled_name
from fedrec.runs.method_kinds import kind_of
from fedrec.runs.provenance_columns import folders_of, origin_columns
from fedrec.runs.record import SCORE_SOURCE, RunRecord

LEADING_METRIC = exact_name("ndcg@10")
"""The metric that ranks methods."""
ON_VALIDATION = "ndcg@10"
"""The validation metric that chooses the best of a kind: sampled, since every run stores it."""
NOT_FINISHED = "search not finished"
NOT_TRAINED = "not trained yet"
NOT_OF_ALL_ITEMS = "no scores of all items"
ACTIVITY_GROUPS = 3
AGAINST_SIDES = ("central", "backbone")
"""The two rivals of a method: the best centralised method, and its own backbone."""
_EXACT_HITS = exact_name("hr@10")
_NEUTRAL = "neutral"
_COMPARED = {"": LEADING_METRIC, "hr_": _EXACT_HITS, "neutral_": f"hr@10, {_NEUTRAL}"}
"""The metrics of these comparisons, by the middle part of their column names."""
BY_SEARCH = "the search"
"""The origin of a line's settings, unless they are a paper's."""
FEDERATED_KINDS = ("personalised", "federated")
_MEGA = 1_000_000


@dataclass(frozen=True)
class _Measured:
    """The finished runs of a line that have numbers, and each user's part in the compared metrics."""

    group: Sequence[RunRecord]
    user: NDArray[np.int64]
    values: Mapping[str, NDArray[np.float64]]
    """By metric, `(seeds, users)`. Sampled HR@10 under the neutral protocol is included if runs exist."""


def leaderboard_rows(
    content: Mapping[str, Any],
    records: Mapping[str, RunRecord],
    methods: Methods,
    data: Path,
    theirs: Sequence[RunRecord] = (),
) -> list[dict[str, Any]]:
    """One row per line of a plan's `content`; `records` are its finished runs by their folder.

    `theirs` are records of other systems under the same protocol, which also have rows.
    """
    rows: list[dict[str, Any]] = []
    for dataset in dict.fromkeys(line["dataset"] for line in content["lines"]):
        lines = [_best_settings(line, records) for line in content["lines"] if line["dataset"] == dataset]
        measured = {line["method"]: one for line in lines if (one := _measured(line, records))}
        systems = {record.id.method: record for record in theirs if record.id.dataset == dataset}
        measured |= {
            name: one for name, record in systems.items() if (one := _measured_of([record])) is not None
        }
        _check_users(measured)
        of_dataset = [
            _about(line, content["titles"], methods)
            | {NOT_COUNTED: content[NOT_COUNTED].get(dataset, "")}
            | _numbers(_group(line, records), measured.get(line["method"]), data)
            | _other_protocols(line, records)
            for line in lines
        ]
        of_dataset += [
            _row_of_theirs(record, measured.get(name), data)
            | {NOT_COUNTED: content[NOT_COUNTED].get(dataset, "")}
            for name, record in systems.items()
        ]
        _compare(of_dataset, measured)
        rows += of_dataset
    # A paper may compare a method on one dataset only; it counts as a paper's method on all.
    of_papers = {row["method"] for row in rows if row["is_of_papers"]}
    return [row | {"is_of_papers": row["method"] in of_papers} for row in rows]


def _best_settings(line: Mapping[str, Any], records: Mapping[str, RunRecord]) -> dict[str, Any]:
    """A line with the settings that are best on validation: those of its search, or a paper's.

    The mean over seeds decides; in a tie the search wins. Settings with fewer finished seeds than the
    search's do not compete.
    """
    settings = {BY_SEARCH: line["runs"], **line["stated"]}
    groups = {
        name: [run for run in _group({"runs": runs}, records) if run.has_numbers()]
        for name, runs in settings.items()
    }
    if line["search"] is None or not groups[BY_SEARCH]:
        return dict(line)
    validation = {
        name: _mean(run.metric(ON_VALIDATION, "validation") for run in group)
        for name, group in groups.items()
        if len(group) >= len(groups[BY_SEARCH])
    }
    best = max(validation, key=lambda name: validation[name])
    papers = [value for name, value in validation.items() if name != BY_SEARCH]
    return {
        **line,
        "runs": settings[best],
        "settings_of": best,
        "validation_of_search": validation[BY_SEARCH],
        "validation_of_papers": max(papers, default=None),
    }


def _group(
    line: Mapping[str, Any], records: Mapping[str, RunRecord], which: str = "runs", protocol: str = "clean"
) -> list[RunRecord]:
    """The finished runs of a line under a protocol."""
    return [records[folder] for folder in line[which].get(protocol, ()) if folder in records]


def _about(line: Mapping[str, Any], titles: Mapping[str, str], methods: Methods) -> dict[str, Any]:
    """The columns of a row that need no runs."""
    settings, _, _ = resolve(methods, line["method"], None, line["dataset"])
    found = ", ".join(f"{key} {setting_text(value)}" for key, value in line["settings"].items())
    is_finished = line["search"] is None or line["trials"] is not None
    return {
        "dataset": line["dataset"],
        "method": line["method"],
        "title": titles[line["method"]],
        "kind": kind_of(methods, line["method"], settings),
        "backbone": line["backbone"],
        "is_of_papers": bool(line["stated"]),
        "search": line["search"],
        "trials": line["trials"],
        "settings": found or None,
        **{name: line.get(name) for name in ("settings_of", "validation_of_search", "validation_of_papers")},
        "state": NOT_TRAINED if is_finished else NOT_FINISHED,
    }


def _row_of_theirs(record: RunRecord, measured: _Measured | None, data: Path) -> dict[str, Any]:
    """The row of another system: its metrics, without search, costs or validation."""
    empty = (
        "backbone", "search", "trials", "settings", "settings_of", "validation_of_search",
        "validation_of_papers",
    )  # fmt: skip
    return {
        "dataset": record.id.dataset,
        "method": record.id.method,
        "title": record.id.method,
        "kind": SCORE_SOURCE,
        "is_of_papers": False,
        **dict.fromkeys(empty),
        "settings": "in its note" if (record.score_source or {}).get("note") else None,
        "state": NOT_OF_ALL_ITEMS if measured is None else "",
        **origin_columns([record]),
        **{name: record.metric(name) for name in COMPARED_METRICS},
        "seeds_shown": 1,
        **_exact_numbers([record], measured, data),
    }


def _measured(line: Mapping[str, Any], records: Mapping[str, RunRecord]) -> _Measured | None:
    neutral = [record for record in _group(line, records, protocol=_NEUTRAL) if record.has_numbers()]
    return _measured_of(_group(line, records), neutral)


def _measured_of(group: Sequence[RunRecord], neutral: Sequence[RunRecord] = ()) -> _Measured | None:
    """The compared metrics of runs that differ by seed; None if any lacks exact ranks."""
    numbered = [record for record in group if record.has_numbers()]
    if not numbered or not all(record.exact_metrics for record in numbered):
        return None
    user, _ = _of_users(numbered, LEADING_METRIC)
    values = {metric: _of_users(numbered, metric)[1] for metric in (LEADING_METRIC, _EXACT_HITS)}
    if neutral:
        # The first run checks that the users are the same.
        values[_COMPARED["neutral_"]] = _of_users([*numbered[:1], *neutral], "hr@10")[1][1:]
    return _Measured(numbered, user, values)


def _of_users(group: Sequence[RunRecord], metric: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The users of runs, which must be the same, and each user's part in a metric: `(seeds, users)`."""
    ranks = [record.ranks_of(metric) for record in group]
    _same_users({record.folder: user_ranks.user for record, user_ranks in zip(group, ranks, strict=True)})
    return ranks[0].user, np.stack([per_user(user_ranks.rank, sampled_name(metric)) for user_ranks in ranks])


def _check_users(measured: Mapping[str, _Measured]) -> None:
    """Check that methods on a dataset have the same users, so that they can be paired."""
    _same_users({one.group[0].folder: one.user for one in measured.values()})


def _same_users(users: Mapping[Path, NDArray[np.int64]]) -> None:
    first = next(iter(users), None)
    for folder, others in users.items():
        if first is not None and not np.array_equal(others, users[first]):
            raise ResultError(
                f"{folder}: has other users than {first}, so that they cannot be paired. "
                "Train both on the same split."
            )


def _numbers(group: Sequence[RunRecord], measured: _Measured | None, data: Path) -> dict[str, Any]:
    """All numbers of the runs of a row under the shared protocol; empty without runs."""
    if not group:
        return {RUNS: []}
    row: dict[str, Any] = {"state": "", **origin_columns(group), **_costs(group), **_inside(group[0])}
    numbered = [record for record in group if record.has_numbers()]
    if numbered:
        row |= {name: _mean(record.metric(name) for record in numbered) for name in COMPARED_METRICS}
        row["validation"] = _mean(record.metric(ON_VALIDATION, "validation") for record in numbered)
    row["seeds_shown"] = len(numbered)
    return row | _exact_numbers(group, measured, data)


def _exact_numbers(group: Sequence[RunRecord], measured: _Measured | None, data: Path) -> dict[str, Any]:
    """The exact metrics of a row, with the interval of the leading one; empty if not measured."""
    if measured is None:
        return {}
    over = over_protocol_seeds([measured.values[LEADING_METRIC]])
    return {
        **{name: one.mean for name, one in exact_means(group).items()},
        f"{LEADING_METRIC}_low": over.low,
        f"{LEADING_METRIC}_high": over.high,
        "users": over.users,
        **_of_groups(measured, data),
    }


def _of_groups(measured: _Measured, data: Path) -> dict[str, float]:
    """The leading metric by group of users: equal groups by training rows, the least active first."""
    users, counts = training_counts(split_table(measured.group[0], data)[0])
    here = np.isin(users, measured.user)
    group = activity_groups(counts[here], ACTIVITY_GROUPS)
    mean = measured.values[LEADING_METRIC].mean(0)
    return {
        f"group_{number + 1}": float(mean[group == number].mean())
        for number in range(ACTIVITY_GROUPS)
        if (group == number).any()
    }


def _costs(group: Sequence[RunRecord]) -> dict[str, float]:
    """Kilobytes per client and round, megabytes of all clients in all rounds, and seconds of training."""
    every = [_times(record) for record in group]
    moved = [
        times["clients"] * (times["bytes_down_per_client"] + times["bytes_up_per_client"]) for times in every
    ]
    clients = [len(record.ranks_of(ON_VALIDATION).user) for record in group]
    return {
        "kilobytes_down": _mean(times["bytes_down_per_client"].mean() for times in every) / 1000,
        "kilobytes_up": _mean(times["bytes_up_per_client"].mean() for times in every) / 1000,
        "megabytes": _mean(one.sum() for one in moved) / _MEGA,
        "megabytes_per_client": _mean(
            one.sum() / users for one, users in zip(moved, clients, strict=True)
        ) / _MEGA,
        "seconds": _mean((times["local_seconds"] + times["server_seconds"]).sum() for times in every),
    }  # fmt: skip


def _times(record: RunRecord) -> dict[str, NDArray[Any]]:
    """The times and bytes of its rounds, up to a divergence: later rounds train nobody."""
    times = record.columns("timing")
    trained = times["round"] < (np.inf if record.diverged is None else max(2, record.diverged))
    return {name: values[trained] for name, values in times.items()}


def _inside(record: RunRecord) -> dict[str, float]:
    """Coverage, popularity and AUC of the first seed's model, stored or computed."""
    measurements = dict(record.audit or {})
    has_model = record.has_model and (record.folder / STATE).is_file() and record.diverged is None
    if not measurements and has_model:
        # Opened again, so that its model is freed afterwards.
        opened = RunRecord(record.folder)
        measurements["recommended"] = recommended(opened)
        if "users/traffic" in extras(opened.tensors):
            measurements["uploads"] = attack_uploads(opened.tensors, opened.clients)
    attacks = [
        attack["auc"] for table in measurements.get("uploads", {}).values() for attack in table.values()
        if attack["auc"] is not None
    ]  # fmt: skip
    return {**measurements.get("recommended", {}), **({"auc": max(attacks)} if attacks else {})}


def _other_protocols(line: Mapping[str, Any], records: Mapping[str, RunRecord]) -> dict[str, Any]:
    """Sampled metrics under other protocols, and with a paper's settings before the search."""
    columns: dict[str, Any] = {}
    for which in ("runs", "before"):
        for protocol in line[which]:
            numbered = [one for one in _group(line, records, which, protocol) if one.has_numbers()]
            if numbered and (which, protocol) != ("runs", "clean"):
                for name in COMPARED_METRICS:
                    columns[f"{which}_{protocol}_{name}"] = _mean(record.metric(name) for record in numbered)
                    columns[f"{which}_{protocol}_{name}_runs"] = folders_of(numbered)
    return columns


def _compare(rows: Sequence[dict[str, Any]], measured: Mapping[str, _Measured]) -> None:
    """Compare the rows of a dataset with the best centralised one and with their backbones, user by user.

    Validation chooses the best centralised one. Each question and metric is one family of Holm's correction.
    """
    there = [row for row in rows if row["method"] in measured]
    central = best_on_validation(there, ("centralised",))
    for side in AGAINST_SIDES:
        pairs: list[tuple[dict[str, Any], str]] = []
        for row in there:
            other = row["backbone"] if side == "backbone" else central and central["method"]
            takes_part = row["search"] is not None or row["kind"] == SCORE_SOURCE
            if takes_part and other in measured and other != row["method"]:
                row[f"{side}_against"] = other
                pairs.append((row, str(other)))
        for infix, metric in _COMPARED.items():
            both = [
                (row, other)
                for row, other in pairs
                if metric in measured[row["method"]].values and metric in measured[other].values
            ]
            _compare_pairs(both, f"{side}_{infix}", metric, measured)


def _compare_pairs(
    pairs: Sequence[tuple[dict[str, Any], str]], name: str, metric: str, measured: Mapping[str, _Measured]
) -> None:
    """Add to each row its difference from a rival in a metric, in columns whose names begin with `name`."""
    results = [
        compare(measured[row["method"]].values[metric].mean(0), measured[other].values[metric].mean(0))
        for row, other in pairs
    ]
    adjusted = holm([result.randomisation for result in results])
    for (row, _), result, p in zip(pairs, results, adjusted, strict=True):
        row |= {
            f"{name}difference": result.difference,
            f"{name}low": result.low,
            f"{name}high": result.high,
            f"{name}p": result.randomisation,
            f"{name}holm": p,
        }


def best_on_validation(rows: Sequence[dict[str, Any]], kinds: Sequence[str]) -> dict[str, Any] | None:
    """The tuned row of these kinds that is best on validation; None without such a row."""
    there = [row for row in rows if row["kind"] in kinds and row["search"] and LEADING_METRIC in row]
    return max(there, key=lambda row: float(row["validation"]), default=None)


def _mean(values: Any) -> float:  # noqa: ANN401 - whatever numbers
    return float(np.mean(list(values)))
