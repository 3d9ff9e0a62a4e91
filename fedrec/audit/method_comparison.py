"""Comparison of methods on one split: means over seeds, and differences from the best on validation.

Test items never choose the best. Users are paired, each with its mean over seeds.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrec.audit.differences import TrainedMethod, trained_method, values_of_users
from fedrec.audit.pairing import PAIRED_TESTS, check_same_split, compared_metrics
from fedrec.audit.significance import bootstrap_interval, compare, holm, least_seeds, over_seeds
from fedrec.errors import ComparisonError
from fedrec.runs.exact import exact_name
from fedrec.runs.record import RunRecord

CHOOSING = "ndcg@10"
"""The validation metric that chooses the method with which the others are compared."""
COMPARISON_COLUMNS: Mapping[str, type] = {
    "metric": str, "method": str, "paper": str, "seeds": int, "diverged": int, "validation": float,
    "value": float, "low": float, "high": float, "against": str, "difference": float, "difference_low": float,
    "difference_high": float, "effect": float, "randomisation": float, "randomisation_holm": float,
    "wilcoxon": float, "wilcoxon_holm": float, "over_seeds": float, "users": int,
}  # fmt: skip
"""The columns of a comparison, with their types."""
_Runs = Mapping[TrainedMethod, Sequence[RunRecord]]


def comparison_rows(runs: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """One row per metric and method, the best on validation first; `fedrec.compare` describes the columns."""
    _check_runs(runs)
    groups = {key: [run for run in runs if trained_method(run) == key] for key in map(trained_method, runs)}
    _check_groups(groups)
    numbered = {
        key: own for key, group in groups.items() if (own := [run for run in group if run.has_numbers()])
    }
    without = [key for key in groups if key not in numbered]
    validation = _validation(numbered)
    order = sorted(numbered, key=lambda key: -validation[key])
    metrics = [
        metric
        for metric in dict.fromkeys(metric for run in runs for metric in compared_metrics(run))
        if all(metric in compared_metrics(run) for own in numbered.values() for run in own)
    ]
    rows = []
    for metric in metrics:
        results = _compared({key: numbered[key] for key in order}, metric) if order else {}
        for key in (*order, *without):
            own = numbered.get(key, [])
            about = {
                "metric": metric, "method": key[1], "paper": key[0], "seeds": len(own),
                "diverged": len(groups[key]) - len(own), "validation": validation.get(key),
            }  # fmt: skip
            rows.append({**dict.fromkeys(COMPARISON_COLUMNS), **about, **results.get(key, {})})
    return rows


def chosen_by(runs: Sequence[RunRecord]) -> str:
    """The validation metric that decides: exact if all runs have it, else sampled."""
    exact = all(run.exact_validation for run in runs if run.has_numbers())
    return exact_name(CHOOSING) if exact else CHOOSING


def few_seeds(runs: Sequence[RunRecord]) -> str | None:
    """A warning if no method has enough seeds for a test over seeds; None if one has."""
    seeds = min(
        len({run.id.seed for run in runs if trained_method(run) == key}) for key in map(trained_method, runs)
    )
    if seeds >= least_seeds():
        return None
    return (
        f"{seeds} seed{'s' * (seeds != 1)} of a method: intervals and p-values are over users, and say "
        f"nothing about other seeds. A test over seeds needs {least_seeds()}."
    )


def _compared(runs: _Runs, metric: str) -> dict[TrainedMethod, dict[str, Any]]:
    """The numbers of each method; the others are compared with the first one."""
    values = values_of_users(runs, metric)
    rows = {key: _value_columns(of_users) for key, of_users in values.items()}
    best, *others = values
    results = {key: compare(values[key].mean(0), values[best].mean(0)) for key in others}
    for key, result in results.items():
        rows[key] |= {
            "against": best[1],
            "difference": result.difference,
            "difference_low": result.low,
            "difference_high": result.high,
            "effect": result.effect,
        }
        if _seeds(runs[key]) == _seeds(runs[best]) and len(runs[key]) >= least_seeds():
            means = (values[one].mean(1) for one in (key, best))
            rows[key]["over_seeds"] = over_seeds(*means).randomisation
    for test in PAIRED_TESTS:
        p_values = [getattr(result, test) for result in results.values()]
        for key, p, corrected in zip(results, p_values, holm(p_values), strict=True):
            rows[key] |= {test: p, f"{test}_holm": corrected}
    return rows


def _value_columns(of_users: NDArray[np.float64]) -> dict[str, Any]:
    means = of_users.mean(0)
    low, high = bootstrap_interval(means)
    return {"value": float(means.mean()), "low": low, "high": high, "users": len(means)}


def _validation(runs: _Runs) -> dict[TrainedMethod, float]:
    """The validation metric of each method, mean over its seeds."""
    metric = chosen_by([run for own in runs.values() for run in own])
    return {
        key: fmean(
            run.metric(metric, "validation") if metric == CHOOSING else run.exact_validation[metric]
            for run in own
        )
        for key, own in runs.items()
    }


def _seeds(runs: Sequence[RunRecord]) -> list[int]:
    return [run.id.seed for run in runs]


def _check_runs(runs: Sequence[RunRecord]) -> None:
    """Raise `ComparisonError` unless runs exist, all on one split and under one protocol."""
    if not runs:
        raise ComparisonError("No runs to compare. Give finished runs of at least two methods.")
    first, *others = runs
    for other in others:
        check_same_split(first, other)
        if other.protocol != first.protocol:
            raise ComparisonError(
                f"{other.folder}: is a run under {other.protocol}, and {first.folder} one under "
                f"{first.protocol}. Compare runs of one protocol."
            )


def _check_groups(groups: _Runs) -> None:
    """Raise `ComparisonError` if runs of a method differ in more than their seeds."""
    for (_, method), runs in groups.items():
        seeds = _seeds(runs)
        twice = next((run for run in runs if seeds.count(run.id.seed) > 1), None)
        if twice is not None:
            raise ComparisonError(
                f"{twice.folder}: is the second run of {method} with seed {twice.id.seed}. Leave one out."
            )
        apart = next((run for run in runs if run.settings != runs[0].settings), None)
        if apart is not None:
            raise ComparisonError(
                f"{apart.folder}: is called {method}, and has other settings than {runs[0].folder}. Name "
                "settings that differ: method[setting=value]."
            )
