"""States of runs in words, and as JSON for scripts."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from fedrec.errors import first_lines
from fedrec.plan.cost import duration
from fedrec.plan.state import DONE, FAILED, LOST, RUNNING, STATES, WAITING, Forecast, RunState
from fedrec.progress import span_text

_MOST_RUNS = 20
"""That are told one by one, of those in one state."""


def told_states(states: Sequence[RunState], forecast: Forecast) -> str:
    """How many runs are how far, how long the rest takes, and every run that runs, failed or is lost."""
    count = Counter(state.kind for state in states)
    kinds = [kind for kind in STATES if kind != DONE and count[kind]]
    others = [f"{count[kind]} {kind}" for kind in kinds]
    first = ", ".join([f"{count[DONE]} of {len(states)} runs done", *others])
    lines = [f"{first}{_time_left(forecast)}."]
    for kind, line in ((RUNNING, _running), (FAILED, _failed), (LOST, _lost)):
        of_kind = [state for state in states if state.kind == kind]
        lines += [f"{kind}:"] if of_kind else []
        lines += first_lines(["\n".join(line(state, forecast)) for state in of_kind], _MOST_RUNS)
    begun = sum(state.begun for state in states if state.kind == WAITING)
    lines += [f"{begun} of the waiting runs resume from a checkpoint."] if begun else []
    return "\n".join(lines)


def states_as_json(states: Sequence[RunState], forecast: Forecast) -> dict[str, Any]:
    """The same as values: seconds are numbers, and null where nothing is known."""
    count = Counter(state.kind for state in states)
    return {
        "runs": len(states),
        **{kind: count[kind] for kind in STATES},
        "seconds_left_one_after_another": round(forecast.seconds, 1),
        "seconds_left": None if forecast.until_end is None else round(forecast.until_end, 1),
        "by": "measured runs" if forecast.is_measured else "guess",
        "each": [_entry(state, forecast) for state in states],
    }


def _entry(state: RunState, forecast: Forecast) -> dict[str, Any]:
    asked, holder = state.run.request, state.holder
    left = forecast.of_run.get(str(state.run.out))
    return {
        "folder": str(state.run.out),
        "state": state.kind,
        "method": asked.method,
        "dataset": asked.dataset,
        "protocol": asked.protocol,
        "seed": asked.seed,
        "round": state.round,
        "rounds": state.rounds,
        "seconds_a_round": state.seconds_a_round,
        "seconds_left": None if left is None else round(left, 1),
        "checkpoint": state.begun,
        "process": None if holder is None else holder.process,
        "host": None if holder is None else holder.host,
        "seconds_silent": None if holder is None else round(holder.silent, 1),
        "log": None if state.log is None else str(state.log),
        "said": list(state.said),
    }


def _time_left(forecast: Forecast) -> str:
    if not forecast.of_run:
        return ""
    by = "measured on finished runs" if forecast.is_measured else "by the cost model"
    if forecast.until_end is None:
        return f"; none is running, the rest takes about {duration(forecast.seconds)} ({by})"
    return f"; about {span_text(forecast.until_end)} left with {forecast.at_once} at the same time ({by})"


def _running(state: RunState, forecast: Forecast) -> Iterator[str]:
    left = span_text(forecast.of_run[str(state.run.out)])
    yield f"  {_name(state)}: {_how_far(state)}, about {left} left{_where(state)}"


def _failed(state: RunState, _forecast: Forecast) -> Iterator[str]:
    yield f"  {_name(state)}, log {state.log}:"
    yield from (f"      {line}" for line in state.said)


def _lost(state: RunState, _forecast: Forecast) -> Iterator[str]:
    kept = "it resumes from its checkpoint" if state.begun else "it has no checkpoint and starts from round 1"
    yield f"  {_name(state)}: {_how_far(state)}{_where(state)}; when started again, {kept}"


def _how_far(state: RunState) -> str:
    if state.round is None:
        return "before round 1"
    pace = "" if state.seconds_a_round is None else f", {state.seconds_a_round:.3g} s per round"
    return f"round {state.round} of {state.rounds}{pace}"


def _where(state: RunState) -> str:
    holder = state.holder
    if holder is None:
        return ""
    silent = (
        "" if holder.lives and state.kind == RUNNING else f", no sign of life for {span_text(holder.silent)}"
    )
    return f" (process {holder.process} on {holder.host}{silent})"


def _name(state: RunState) -> str:
    """A run by its folder, without that of all runs."""
    return str(state.run.out).rpartition(f"runs{os.sep}")[2]
