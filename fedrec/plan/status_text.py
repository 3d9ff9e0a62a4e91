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
"""Runs listed one by one, of those in one state."""


def format_status(states: Sequence[RunStatus], forecast: TimeEstimate) -> str:
    """How many runs are how far, how long the rest takes, and every run that runs, failed or is lost."""
    count = Counter(state.state for state in states)
    kinds = [kind for kind in STATES if kind != DONE and count[kind]]
    others = [f"{count[kind]} {kind}" for kind in kinds]
    first = ", ".join([f"{count[DONE]} of {len(states)} runs done", *others])
    lines = [f"{first}{_time_left(forecast)}."]
    for kind, line in ((RUNNING, _running), (FAILED, _failed), (LOST, _lost)):
        of_kind = [state for state in states if state.state == kind]
        lines += [f"{kind}:"] if of_kind else []
        lines += first_lines(["\n".join(line(state, forecast)) for state in of_kind], _MOST_RUNS)
    begun = sum(state.has_checkpoint for state in states if state.state == WAITING)
    lines += [f"{begun} of the waiting runs resume from a checkpoint."] if begun else []
    return "\n".join(lines)


def status_as_dict(states: Sequence[RunStatus], forecast: TimeEstimate) -> dict[str, Any]:
    """The same as values: seconds are numbers, and null where nothing is known."""
    count = Counter(state.state for state in states)
    return {
        "runs": len(states),
        **{kind: count[kind] for kind in STATES},
        "seconds_left_one_after_another": round(forecast.seconds, 1),
        "seconds_left": None if forecast.until_end is None else round(forecast.until_end, 1),
        "by": "measured runs" if forecast.is_measured else "guess",
        "each": [_entry(state, forecast) for state in states],
    }


def _entry(state: RunStatus, forecast: TimeEstimate) -> dict[str, Any]:
    asked, holder = state.run.request, state.holder
    left = forecast.of_run.get(str(state.run.out))
    return {
        "folder": str(state.run.out),
        "state": state.state,
        "method": asked.method,
        "dataset": asked.dataset,
        "protocol": asked.protocol,
        "seed": asked.seed,
        "round": state.round,
        "rounds": state.rounds,
        "seconds_a_round": state.seconds_a_round,
        "seconds_left": None if left is None else round(left, 1),
        "checkpoint": state.has_checkpoint,
        "process": None if holder is None else holder.process,
        "host": None if holder is None else holder.host,
        "seconds_silent": None if holder is None else round(holder.silent, 1),
        "log": None if state.log is None else str(state.log),
        "said": list(state.log_tail),
    }


def _time_left(forecast: TimeEstimate) -> str:
    if not forecast.of_run:
        return ""
    by = "measured on finished runs" if forecast.is_measured else "by the cost model"
    if forecast.until_end is None:
        return f"; none is running, the rest takes about {duration(forecast.seconds)} ({by})"
    return f"; about {span_text(forecast.until_end)} left with {forecast.at_once} at the same time ({by})"


def _running(state: RunStatus, forecast: TimeEstimate) -> Iterator[str]:
    left = span_text(forecast.of_run[str(state.run.out)])
    yield f"  {_name(state)}: {_how_far(state)}, about {left} left{_where(state)}"


def _failed(state: RunStatus, _forecast: TimeEstimate) -> Iterator[str]:
    yield f"  {_name(state)}, log {state.log}:"
    yield from (f"      {line}" for line in state.log_tail)


def _lost(state: RunStatus, _forecast: TimeEstimate) -> Iterator[str]:
    kept = (
        "it resumes from its checkpoint"
        if state.has_checkpoint
        else "it has no checkpoint and starts from round 1"
    )
    yield f"  {_name(state)}: {_how_far(state)}{_where(state)}; when started again, {kept}"


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
    """A run by its folder, without that of all runs."""
    return str(state.run.out).rpartition(f"runs{os.sep}")[2]
