"""Every method at each step from the published protocol to the clean one: its metrics, and its rank."""

from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedrec.config.methods import Methods, title
from fedrec.config.protocol import Protocol
from fedrec.plan.protocol_steps import ProtocolStep, ProtocolSteps, runs_of_step, steps
from fedrec.plan.runs import RunId
from fedrec.runs.provenance_columns import origin_columns
from fedrec.runs.record import RunRecord

METRICS_AT_STEPS = ("hr@10", "ndcg@10")


def step_rows(
    results: Path,
    audited: Iterable[ProtocolSteps],
    methods: Methods,
    protocols: Mapping[str, Protocol],
    seeds: Sequence[int],
    shown: Container[RunId] | None = None,
) -> list[dict[str, Any]]:
    """One row per dataset, step and method: test metrics, mean over seeds, and the method's rank.

    Of the runs these ask for, those that are `shown`, or all, with the seeds that the method has at all its
    steps: it differs from step to step by the protocol alone. No row for a method that has none at a step.
    One whose runs all diverged before there was a number has none, and no rank.
    """
    rows: list[dict[str, Any]] = []
    for of_dataset in audited:
        every = {
            step: {
                method: [run for run in runs if shown is None or run in shown]
                for method, runs in runs_of_step(of_dataset, methods, step, seeds).items()
            }
            for step in steps(of_dataset, protocols)
        }
        common = _common_seeds(every.values())
        for step, runs_there in every.items():
            at_step = [
                {
                    "dataset": of_dataset.dataset,
                    "paper": of_dataset.paper,
                    "step": step.name,
                    # Runs of another step may be spelt otherwise, as those of a paper that agrees.
                    "method": method,
                    "title": title(methods, method, ["rounds"]),
                    **_numbers(results, step, there),
                }
                for method, runs in runs_there.items()
                if (there := [run for run in runs if run.seed in common[method]])
            ]
            rows += ranked(at_step)
    return rows


def ranked(at_step: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of one step, each with the `rank` it has among them; None for one without a number."""
    values = [row["hr@10"] for row in at_step if row["hr@10"] is not None]
    ranks = dict(zip(values, shared_ranks(values), strict=True))
    return [{**row, "rank": ranks.get(row["hr@10"])} for row in at_step]


def _common_seeds(at_steps: Iterable[Mapping[str, Sequence[RunId]]]) -> dict[str, frozenset[int]]:
    """The seeds each method has at all steps that it has runs at."""
    common: dict[str, frozenset[int]] = {}
    for runs_there in at_steps:
        for method, runs in runs_there.items():
            if runs:
                seeds = frozenset(run.seed for run in runs)
                common[method] = common.get(method, seeds) & seeds
    return common


def step_heading(step: str) -> str:
    """What tables and figures call a step: `only pool`, `up to lists`."""
    return step.replace("only-", "only ").replace("upto-", "up to ")


def shared_ranks(values: Sequence[float]) -> list[int]:
    """Ranks from the highest value, 1; equal values share the better one."""
    return [1 + sum(other > value for other in values) for value in values]


def _numbers(results: Path, step: ProtocolStep, runs: Sequence[RunId]) -> dict[str, Any]:
    """The numbers of a method at a step, and the runs they are from."""
    records = [RunRecord(results / run.folder) for run in runs]
    numbered = [record for record in records if record.has_numbers(step.rule)]
    return {
        **{
            metric: float(np.mean([record.metric(metric, rule=step.rule) for record in numbered]))
            if numbered
            else None
            for metric in METRICS_AT_STEPS
        },
        "round_rule": step.rule,
        "protocol": step.protocol,
        "rounds": records[0].settings["rounds"],
        **origin_columns(records),
    }
