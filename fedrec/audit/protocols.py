"""Metrics and ranks of every method at each step from the published protocol to the clean one."""

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

    Only runs in `shown` count, if given. A method uses the seeds that it has at all its steps, so that steps
    differ only by the protocol. A method without runs at a step has no row there. If all its runs diverged
    before they had a number, it has neither number nor rank.
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
                    # Another step may name the same method differently, as for a paper with equal settings.
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
    """Rows of one step with their `rank`; None for a row without a number."""
    values = [row["hr@10"] for row in at_step if row["hr@10"] is not None]
    ranks = dict(zip(values, shared_ranks(values), strict=True))
    return [{**row, "rank": ranks.get(row["hr@10"])} for row in at_step]


def _common_seeds(at_steps: Iterable[Mapping[str, Sequence[RunId]]]) -> dict[str, frozenset[int]]:
    """The seeds that each method has at all its steps."""
    common: dict[str, frozenset[int]] = {}
    for runs_there in at_steps:
        for method, runs in runs_there.items():
            if runs:
                seeds = frozenset(run.seed for run in runs)
                common[method] = common.get(method, seeds) & seeds
    return common


def step_heading(step: str) -> str:
    """The title of a step in tables and figures: `only pool`, `up to lists`."""
    return step.replace("only-", "only ").replace("upto-", "up to ")


def shared_ranks(values: Sequence[float]) -> list[int]:
    """Ranks, 1 for the highest value; equal values share the better rank."""
    return [1 + sum(other > value for other in values) for value in values]


def _numbers(results: Path, step: ProtocolStep, runs: Sequence[RunId]) -> dict[str, Any]:
    """The numbers of a method at a step, and the runs behind them."""
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
