"""The status of runs as text, and as JSON for scripts."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from fedrec.errors import first_lines
from fedrec.plan.cost import duration
from fedrec.plan.run_status import DONE, FAILED, LOST, RUNNING, STATES, WAITING, RunStatus, TimeEstimate
from fedrec.progress import span_text

_MOST_RUNS = 20
"""Runs to list one by one for each state."""


def format_status(states: Sequence[RunStatus], estimate: TimeEstimate) -> str:
    """The number of runs in each state, the time left, and a line for each running, failed or lost run."""
    count = Counter(state.state for state in states)
    kinds = [kind for kind in STATES if kind != DONE and count[kind]]
    others = [f"{count[kind]} {kind}" for kind in kinds]
    first = ", ".join([f"{count[DONE]} of {len(states)} runs done", *others])
    lines = [f"{first}{_time_left(estimate)}."]
    for kind, line in ((RUNNING, _running), (FAILED, _failed), (LOST, _lost)):
        of_kind = [state for state in states if state.state == kind]
        lines += [f"{kind}:"] if of_kind else []
        lines += first_lines(["\n".join(line(state, estimate)) for state in of_kind], _MOST_RUNS)
    begun = sum(state.has_checkpoint for state in states if state.state == WAITING)
    lines += [f"{begun} of the waiting runs resume from a checkpoint."] if begun else []
    return "\n".join(lines)


def status_as_dict(states: Sequence[RunStatus], estimate: TimeEstimate) -> dict[str, Any]:
    """The same as JSON values: seconds are numbers, or null if unknown."""
    count = Counter(state.state for state in states)
    return {
        "runs": len(states),
        **{kind: count[kind] for kind in STATES},
        "seconds_left_one_after_another": round(estimate.seconds, 1),
        "seconds_left": None if estimate.until_end is None else round(estimate.until_end, 1),
        "by": "measured runs" if estimate.is_measured else "guess",
        "each": [_entry(state, estimate) for state in states],
    }


def _entry(state: RunStatus, estimate: TimeEstimate) -> dict[str, Any]:
    request, holder = state.run.request, state.holder
    left = estimate.of_run.get(str(state.run.out))
    return {
        "folder": str(state.run.out),
        "state": state.state,
        "method": request.method,
        "dataset": request.dataset,
        "protocol": request.protocol,
        "seed": request.seed,
        "round": state.round,
        "rounds": state.rounds,
        "seconds_a_round": state.seconds_a_round,
        "seconds_left": None if left is None else round(left, 1),
        "checkpoint": state.has_checkpoint,
        "process": None if holder is None else holder.process,
        "host": None if holder is None else holder.host,
        "seconds_silent": None if holder is None else round(holder.silent, 1),
        "log": None if state.log is None else str(state.log),
        "log_tail": list(state.log_tail),
    }


def _time_left(estimate: TimeEstimate) -> str:
    if not estimate.of_run:
        return ""
    by = "measured on finished runs" if estimate.is_measured else "by the cost model"
    if estimate.until_end is None:
        return f"; none is running, the rest takes about {duration(estimate.seconds)} ({by})"
    return f"; about {span_text(estimate.until_end)} left with {estimate.at_once} at the same time ({by})"


def _running(state: RunStatus, estimate: TimeEstimate) -> Iterator[str]:
    left = span_text(estimate.of_run[str(state.run.out)])
    yield f"  {_name(state)}: {_how_far(state)}, about {left} left{_where(state)}"


def _failed(state: RunStatus, _estimate: TimeEstimate) -> Iterator[str]:
    yield f"  {_name(state)}, log {state.log}:"
    yield from (f"      {line}" for line in state.log_tail)


def _lost(state: RunStatus, _estimate: TimeEstimate) -> Iterator[str]:
    restart = (
        "it resumes from its checkpoint"
        if state.has_checkpoint
        else "it has no checkpoint and starts from round 1"
    )
    yield f"  {_name(state)}: {_how_far(state)}{_where(state)}; when started again, {restart}"


def _how_far(state: RunStatus) -> str:
    if state.round is None:
        return "before round 1"
    pace = "" if state.seconds_a_round is None else f", {state.seconds_a_round:.3g} s per round"
    return f"round {state.round} of {state.rounds}{pace}"


def _where(state: RunStatus) -> str:
    holder = state.holder
    if holder is None:
        return ""
    silent = (
        ""
        if holder.is_alive and state.state == RUNNING
        else f", no sign of life for {span_text(holder.silent)}"
    )
    return f" (process {holder.process} on {holder.host}{silent})"


def _name(state: RunStatus) -> str:
    """The folder of a run, below the folder of all runs."""
    return str(state.run.out).rpartition(f"runs{os.sep}")[2]
