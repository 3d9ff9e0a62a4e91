"""One run compared with others on the same users: metrics with intervals, and paired differences."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrec.audit.differences import COMPARED_METRICS
from fedrec.audit.significance import bootstrap_interval, compare, holm
from fedrec.errors import ComparisonError
from fedrec.evaluation.metrics import per_user
from fedrec.runs.exact import exact_name, sampled_name
from fedrec.runs.record import RunRecord

PAIRED_TESTS = ("randomisation", "wilcoxon")
"""The tests over users, by their names in `Comparison`."""


def interval_rows(run: RunRecord) -> list[dict[str, Any]]:
    """The compared test metrics of a run, each with its 95 % interval over users."""
    rows = []
    for metric in compared_metrics(run):
        values = _values(run, metric)
        low, high = bootstrap_interval(values)
        rows.append({"metric": metric, "value": float(values.mean()), "low": low, "high": high})
    return rows


def paired_rows(run: RunRecord, others: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """One row per metric and other run: the difference of `run` from it, positive where `run` is better.

    Users are paired. The p-values of a metric have Holm's correction over the runs. An exact metric is
    compared only with runs that have it.
    """
    for other in others:
        check_same_split(run, other)
        _check_has_numbers(other)
    return [row for metric in compared_metrics(run) for row in _paired_by(metric, run, others)]


def _paired_by(metric: str, run: RunRecord, others: Sequence[RunRecord]) -> Iterator[dict[str, Any]]:
    known = [other for other in others if metric in compared_metrics(other)]
    results = [compare(_values(run, metric), _values(other, metric)) for other in known]
    corrected = {test: holm([getattr(result, test) for result in results]) for test in PAIRED_TESTS}
    for index, (other, result) in enumerate(zip(known, results, strict=True)):
        yield {
            "metric": metric,
            "against": other.id.method,
            "paper": other.id.paper,
            "seed": other.id.seed,
            "value": run.metric_of(metric),
            "value_against": other.metric_of(metric),
            "difference": result.difference,
            "low": result.low,
            "high": result.high,
            "effect": result.effect,
            **{test: getattr(result, test) for test in PAIRED_TESTS},
            **{f"{test}_holm": corrected[test][index] for test in PAIRED_TESTS},
            "users": result.users,
            "folder": str(other.folder),
        }


def compared_metrics(run: RunRecord) -> list[str]:
    """The compared metrics: sampled ones, and exact ones if the run has them."""
    exact = [exact_name(metric) for metric in COMPARED_METRICS] if run.exact_metrics else []
    return [*COMPARED_METRICS, *exact]


def _values(run: RunRecord, metric: str) -> NDArray[np.float64]:
    """Each user's value of a metric, in the order of user numbers."""
    return per_user(run.ranks_of(metric).rank, sampled_name(metric))


def check_same_split(run: RunRecord, other: RunRecord) -> None:
    """Raise `ComparisonError` if two runs are on different splits."""
    if run.summary["split"] != other.summary["split"]:
        raise ComparisonError(
            f"{other.folder}: is a run on {other.id.dataset} under {other.protocol}, and not on the split of "
            f"{run.folder} ({run.id.dataset} under {run.protocol}), so that users cannot be paired. Evaluate "
            "both on the same split."
        )


def _check_has_numbers(other: RunRecord) -> None:
    if not other.has_numbers():
        raise ComparisonError(
            f"{other.folder}: diverged before its reported round, so it has no number to compare with. "
            "Leave it out."
        )
