"""How far runs are, by the files of their results alone: on this machine, or on any that shares these.

done      it lies there whole, with the code, settings and split that are wanted
running   a process holds its folder that lives: it was heard of within three minutes and, if its machine is
          this one, is still there
failed    its log ends with an error
lost      the process that held its folder has gone without a word: killed, or its machine is
waiting   anything else; perhaps with a checkpoint to go on from
"""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrec.config.methods import Methods
from fedrec.config.names import parse
from fedrec.files.lock import LockHolder, holder_of
from fedrec.plan.cost import START_SECONDS
from fedrec.plan.run_list import ListedRun, spec_of
from fedrec.plan.run_matching import RunMatcher
from fedrec.plan.runs import SUMMARY, log_of
from fedrec.workers.log_tail import OWN_WORDS, log_tail

DONE, RUNNING, FAILED, LOST, WAITING = STATES = ("done", "running", "failed", "lost", "waiting")
_CHECKPOINT = "checkpoint.safetensors"
_STOPPED = (f"{OWN_WORDS}stopped", f"{OWN_WORDS}interrupted")
_TRACEBACK = "Traceback (most recent call last)"
_MOST_LINES = 10
_MOST_BYTES = 20_000
"""Of the end of a log."""


@dataclass(frozen=True)
class RunState:
    """A run that is wanted, and how far it is."""

    run: ListedRun
    kind: str
    """One of `STATES`."""
    holder: LockHolder | None = None
    """The process that trains it, or did until it was lost."""
    round: int | None = None
    rounds: int | None = None
    seconds_a_round: float | None = None
    begun: bool = False
    """Whether it goes on from a checkpoint."""
    log: Path | None = None
    said: tuple[str, ...] = ()
    """The last lines of the log of one that failed."""
    measured: float | None = None
    """Seconds that one that is done took."""
    device: str | None = None
    """Where it was trained."""
    ended: float = 0.0
    """When, if it is done."""


@dataclass(frozen=True)
class Forecast:
    """How long the runs take that are neither done nor have failed."""

    seconds: float
    """Of all of them, one after another."""
    at_once: int
    """How many run now."""
    is_measured: bool
    """Whether finished runs tell it; otherwise it is guessed."""
    of_run: Mapping[str, float]
    """Of each, by its folder."""

    @property
    def until_end(self) -> float | None:
        """Seconds until all are done, if as many run at once as now; None if none runs."""
        longest = max(self.of_run.values(), default=0.0)
        return max(longest, self.seconds / self.at_once) if self.at_once else None


def states_of(
    runs: Sequence[ListedRun],
    methods: Methods,
    since: float | None = None,
    *,
    needs_models: bool = False,
) -> list[RunState]:
    """How far runs are. Logs older than the time `since` belong to an earlier attempt and are ignored.

    The workflow `needs_models`. A list is done without them where it was trained without.
    """
    matcher = RunMatcher()
    return [_done(run, methods, matcher, needs_model=needs_models) or _unfinished(run, since) for run in runs]


def forecast_of(states: Sequence[RunState]) -> Forecast:
    """How long the rest takes: as long as finished runs of the same method took against what was guessed.

    Those count that were trained on the device of the one that ended last.
    """
    done = [state for state in states if state.measured is not None]
    device = max(done, key=lambda state: state.ended).device if done else None
    paces: dict[tuple[str, ...], list[float]] = {}
    for state in done:
        if state.device == device and state.measured is not None:
            pace = (START_SECONDS + state.measured) / max(state.run.seconds, START_SECONDS)
            for key in _kinds(state.run):
                paces.setdefault(key, []).append(pace)
    left = {
        str(state.run.out): _seconds_left(state, paces)
        for state in states
        if state.kind not in (DONE, FAILED)
    }
    # A process may train several runs at once, which take as long as one of them.
    waiting, running = 0.0, dict[tuple[str, int], float]()
    for state in (state for state in states if str(state.run.out) in left):
        seconds = left[str(state.run.out)]
        if state.kind == RUNNING and state.holder is not None:
            process = state.holder.host, state.holder.process
            running[process] = max(running.get(process, 0.0), seconds)
        else:
            waiting += seconds
    return Forecast(waiting + sum(running.values()), len(running), bool(paces), left)


def _done(run: ListedRun, methods: Methods, matcher: RunMatcher, *, needs_model: bool) -> RunState | None:
    """The state of a run that is done; None of any other."""
    try:
        ended = (run.out / SUMMARY).stat().st_mtime
    except OSError:
        return None
    match = matcher.match(spec_of(run, methods, needs_model=needs_model))
    if not match.is_current:
        return None
    measured = match.summary.get("measured", {})
    return RunState(run, DONE, measured=measured.get("seconds"), device=measured.get("device"), ended=ended)


def _unfinished(run: ListedRun, since: float | None) -> RunState:
    holder, log = holder_of(run.out), log_of(run.out)
    begun = (run.out / _CHECKPOINT).is_file()
    how_far = _noted(holder.note) if holder is not None else {}
    if holder is not None and holder.lives:
        return RunState(run, RUNNING, holder, begun=begun, log=log, **how_far)
    said = _last_words(log, since) if log is not None else ()
    if said:
        return RunState(run, FAILED, begun=begun, log=log, said=said)
    if holder is not None:
        return RunState(run, LOST, holder, begun=begun, log=log, **how_far)
    return RunState(run, WAITING, begun=begun, log=log)


def _noted(note: str) -> dict[str, Any]:
    """What a training noted of its rounds, as `fedrec.progress.RoundsDone` has it; nothing before it did."""
    try:
        said = json.loads(note)
        seconds = said["seconds"]
        return {
            "round": int(said["round"]),
            "rounds": int(said["rounds"]),
            "seconds_a_round": None if seconds is None else float(seconds),
        }
    except (ValueError, TypeError, KeyError):
        # It was read while it was written, or another program holds the folder.
        return {}


def _last_words(log: Path, since: float | None) -> tuple[str, ...]:
    """The error that a log ends with; nothing where it ends with none."""
    try:
        with log.open("rb") as stream:
            about = log.stat()
            stream.seek(max(0, about.st_size - _MOST_BYTES))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        # There is none yet.
        return ()
    if since is not None and about.st_mtime < since:
        return ()
    tail = log_tail(text, _MOST_LINES)
    if not tail or tail[0].startswith(_STOPPED):
        return ()
    failed = tail[0].startswith(OWN_WORDS) or any(line.startswith(_TRACEBACK) for line in text.splitlines())
    return tail if failed else ()


def _kinds(run: ListedRun) -> Iterable[tuple[str, ...]]:
    """What runs have in common that take as long as guessed, or as much longer: the narrowest first."""
    method = parse(run.request.method).name
    return (method, run.request.dataset), (method,), ()


def _seconds_left(state: RunState, paces: Mapping[tuple[str, ...], Sequence[float]]) -> float:
    """About how long a run still takes: by its own rounds, if it runs and has done some."""
    guess = max(state.run.seconds, START_SECONDS)
    found = next((paces[kind] for kind in _kinds(state.run) if kind in paces), None)
    whole = guess * (statistics.median(found) if found else 1.0)
    if state.kind != RUNNING or state.round is None or not state.rounds:
        return whole
    left = state.rounds - state.round
    return whole * left / state.rounds if state.seconds_a_round is None else left * state.seconds_a_round
