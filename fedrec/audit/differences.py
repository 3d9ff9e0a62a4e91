"""Methods compared on the users of one split: every method against the best, and against popularity."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrec.audit.significance import ALPHA, Comparison, compare, holm, least_seeds, over_seeds
from fedrec.config.methods import Methods, title
from fedrec.config.names import parse
from fedrec.errors import ResultError
from fedrec.evaluation.metrics import per_user
from fedrec.runs.exact import exact_name, sampled_name
from fedrec.runs.provenance_columns import folders_of, origin_columns
from fedrec.runs.record import RunRecord

REFERENCE = "popularity"
COMPARED_METRICS = ("hr@10", "ndcg@10")
EXACT_METRIC = exact_name("hr@10")
"""The exact metric that is also compared, if all runs have it."""
TrainedMethod = tuple[str, str]
"""The paper whose settings runs follow, and their method; runs with both equal differ by seed."""


def difference_rows(records: Sequence[RunRecord], methods: Methods) -> list[dict[str, Any]]:
    """One row per dataset, protocol, metric and method: its differences from the best method and from
    popularity.

    Users are paired, each with its mean over seeds. One table is one family of Holm's correction. Runs that
    diverged before they had a number are left out; a method with only such runs has a row with that reason.
    Records of other systems are compared, too; one without exact ranks has no row of the exact metric.
    """
    rows: list[dict[str, Any]] = []
    groups = dict.fromkeys((record.id.dataset, record.protocol) for record in records)
    for dataset, protocol in groups:
        there = [record for record in records if (record.id.dataset, record.protocol) == (dataset, protocol)]
        runs = {
            key: [run for run in there if trained_method(run) == key] for key in map(trained_method, there)
        }
        exact = [EXACT_METRIC] * all(bool(run.exact_metrics) for run in there if run.score_source is None)
        for metric in (*COMPARED_METRICS, *exact):
            about = {"dataset": dataset, "protocol": protocol, "metric": metric}
            with_metric = {
                key: group for key, group in runs.items() if metric != EXACT_METRIC or group[0].exact_metrics
            }
            rows += _compared(with_metric, about, methods)
    return rows


def trained_method(record: RunRecord) -> TrainedMethod:
    """The paper whose settings a run follows, and its method."""
    return record.id.paper, record.id.method


def _about(run: RunRecord, methods: Methods) -> dict[str, str]:
    paper, method = trained_method(run)
    if run.score_source is not None:
        return {"paper": "", "method": method, "title": f"{method} (scored elsewhere)"}
    return {"paper": paper, "method": method, "title": title(methods, method, ["rounds"])}


def values_of_users(
    runs: Mapping[TrainedMethod, Sequence[RunRecord]], metric: str
) -> dict[TrainedMethod, NDArray[np.float64]]:
    """The values of each method with a paper's settings, `(seeds, users)`; all have the same users."""
    first = next(iter(runs.values()))[0]
    everyone = first.ranks_of(metric).user
    values: dict[TrainedMethod, NDArray[np.float64]] = {}
    for key, records in runs.items():
        of_seeds = []
        for record in records:
            ranks = record.ranks_of(metric)
            if not np.array_equal(ranks.user, everyone):
                raise ResultError(
                    f"{record.folder}: has other users than {first.folder}, so that they cannot be paired. "
                    "Train both on the same split."
                )
            of_seeds.append(per_user(ranks.rank, sampled_name(metric)))
        values[key] = np.stack(of_seeds)
    return values


def _compared(
    runs: Mapping[TrainedMethod, Sequence[RunRecord]], about: Mapping[str, str], methods: Methods
) -> list[dict[str, Any]]:
    numbered = {key: there for key, group in runs.items() if (there := _with_numbers(group))}
    values = values_of_users(numbered, about["metric"]) if numbered else {}
    mean = {key: float(of_users.mean()) for key, of_users in values.items()}
    order = sorted(values, key=lambda key: -mean[key])
    against = {"best": order[0]} if order else {}
    reference = [key for key in order if parse(key[1]).name == REFERENCE]
    if reference:
        against["reference"] = reference[0]
    rows: dict[TrainedMethod, dict[str, Any]] = {
        key: {**about, **_about(runs[key][0], methods), "value": mean[key], "users": values[key].shape[1]}
        for key in order
    }
    for side, other in against.items():
        compared = {key: row for key, row in rows.items() if key != other}
        results = [compare(values[key].mean(0), values[other].mean(0)) for key in compared]
        for test in ("randomisation", "wilcoxon"):
            corrected = holm([getattr(result, test) for result in results])
            for row, result, p in zip(compared.values(), results, corrected, strict=True):
                row |= {f"{side}_{test}": getattr(result, test), f"{side}_{test}_holm": p}
        for (key, row), result in zip(compared.items(), results, strict=True):
            row |= _columns(side, other[1], result)
            if _seeds(numbered[key]) == _seeds(numbered[other]):
                row |= _over_seeds(side, values[key], values[other])
    for key, row in rows.items():
        row |= origin_columns(runs[key])
        row["runs_against"] = [] if key == order[0] else folders_of(runs[order[0]])
        row["runs_reference"] = folders_of(runs[reference[0]]) if reference and key != reference[0] else []
    without = [key for key in runs if key not in numbered]
    return [
        *rows.values(),
        *({**about, **_about(runs[key][0], methods), **origin_columns(runs[key])} for key in without),
    ]


def _columns(side: str, other: str, result: Comparison) -> dict[str, Any]:
    return {
        f"{side}": other,
        f"{side}_difference": result.difference,
        f"{side}_low": result.low,
        f"{side}_high": result.high,
        f"{side}_interval": f"[{result.low:+.4f}, {result.high:+.4f}]",
        f"{side}_effect": result.effect,
    }


def _with_numbers(records: Sequence[RunRecord]) -> list[RunRecord]:
    return [record for record in records if record.has_numbers()]


def _seeds(records: Sequence[RunRecord]) -> list[int]:
    return [record.id.seed for record in records]


def _over_seeds(side: str, own: NDArray[np.float64], other: NDArray[np.float64]) -> dict[str, Any]:
    """The test over the common seeds of both; empty if they are too few."""
    if len(own) < least_seeds(ALPHA):
        return {}
    result = over_seeds(own.mean(1), other.mean(1))
    return {f"{side}_over_seeds": result.randomisation}
