"""The state of runs, read from the files of the results, which several machines may share.

done      the run is stored whole, with the wanted code, settings and split
running   a live process has locked its folder: it wrote within three minutes and, on this machine, exists
failed    its log ends with an error
lost      the process that locked its folder ended without a message: it was killed, or its machine stopped
waiting   otherwise; a checkpoint may exist, from which training resumes
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
from fedrec.workers.log_tail import ERROR_PREFIX, log_tail

DONE, RUNNING, FAILED, LOST, WAITING = STATES = ("done", "running", "failed", "lost", "waiting")
_CHECKPOINT = "checkpoint.safetensors"
_STOPPED = (f"{ERROR_PREFIX}stopped", f"{ERROR_PREFIX}interrupted")
_TRACEBACK = "Traceback (most recent call last)"
_MOST_LINES = 10
_MOST_BYTES = 20_000
"""Bytes to read at the end of a log."""


@dataclass(frozen=True)
class RunStatus:
    """A listed run, its state and its progress."""

    run: ListedRun
    state: str
    """One of `STATES`."""
    holder: LockHolder | None = None
    """The process that trains the run, or trained it until it was lost."""
    round: int | None = None
    rounds: int | None = None
    seconds_a_round: float | None = None
    has_checkpoint: bool = False
    """Whether training resumes from a checkpoint."""
    log: Path | None = None
    log_tail: tuple[str, ...] = ()
    """The last lines of the log, if the run failed."""
    measured: float | None = None
    """Seconds of training, if it is done."""
    device: str | None = None
    """The device that trained it."""
    ended: float = 0.0
    """Time of its run.json, if it is done."""


@dataclass(frozen=True)
class TimeEstimate:
    """Estimated time of all runs that are neither done nor failed."""

    seconds: float
    """Their total, one after another."""
    at_once: int
    """The number of processes that train now."""
    is_measured: bool
    """Whether the estimate uses the times of finished runs; otherwise it uses the cost model alone."""
    of_run: Mapping[str, float]
    """Seconds of each run, by its folder."""

    @property
    def until_end(self) -> float | None:
        """Seconds until all are done at the current number of processes; None if none is running."""
        longest = max(self.of_run.values(), default=0.0)
        return max(longest, self.seconds / self.at_once) if self.at_once else None


def run_statuses(
    runs: Sequence[ListedRun],
    methods: Methods,
    since: float | None = None,
    *,
    needs_models: bool = False,
) -> list[RunStatus]:
    """The status of runs. Logs older than the time `since` belong to an earlier attempt and are ignored.

    With `needs_models` a run without a required model is not done. The workflow needs models; a run list does
    not.
    """
    matcher = RunMatcher()
    return [_done(run, methods, matcher, needs_model=needs_models) or _unfinished(run, since) for run in runs]


def estimate_time(states: Sequence[RunStatus]) -> TimeEstimate:
    """Estimate the time of the remaining runs: the cost model, scaled by the times of finished runs.

    The scale is the median of measured over estimated time for the same method and dataset, else the same
    method, else all runs. It uses only runs on the device of the run that ended last.
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
        if state.state not in (DONE, FAILED)
    }
    # A process may train several runs at once: count its longest run only.
    waiting, running = 0.0, dict[tuple[str, int], float]()
    for state in (state for state in states if str(state.run.out) in left):
        seconds = left[str(state.run.out)]
        if state.state == RUNNING and state.holder is not None:
            process = state.holder.host, state.holder.process
            running[process] = max(running.get(process, 0.0), seconds)
        else:
            waiting += seconds
    return TimeEstimate(waiting + sum(running.values()), len(running), bool(paces), left)


def _done(run: ListedRun, methods: Methods, matcher: RunMatcher, *, needs_model: bool) -> RunStatus | None:
    """The status of a run that is done; None for any other."""
    try:
        ended = (run.out / SUMMARY).stat().st_mtime
    except OSError:
        return None
    match = matcher.match(spec_of(run, methods, needs_model=needs_model))
    if not match.is_current:
        return None
    measured = match.summary.get("measured", {})
    return RunStatus(run, DONE, measured=measured.get("seconds"), device=measured.get("device"), ended=ended)


def _unfinished(run: ListedRun, since: float | None) -> RunStatus:
    holder, log = holder_of(run.out), log_of(run.out)
    has_checkpoint = (run.out / _CHECKPOINT).is_file()
    how_far = _noted(holder.note) if holder is not None else {}
    if holder is not None and holder.is_alive:
        return RunStatus(run, RUNNING, holder, has_checkpoint=has_checkpoint, log=log, **how_far)
    tail = _error_tail(log, since) if log is not None else ()
    if tail:
        return RunStatus(run, FAILED, has_checkpoint=has_checkpoint, log=log, log_tail=tail)
    if holder is not None:
        return RunStatus(run, LOST, holder, has_checkpoint=has_checkpoint, log=log, **how_far)
    return RunStatus(run, WAITING, has_checkpoint=has_checkpoint, log=log)


def _noted(note: str) -> dict[str, Any]:
    """Read the progress that a training writes into its lock file (`fedrec.progress.RoundsDone`)."""
    try:
        content = json.loads(note)
        seconds = content["seconds"]
        return {
            "round": int(content["round"]),
            "rounds": int(content["rounds"]),
            "seconds_a_round": None if seconds is None else float(seconds),
        }
    except (ValueError, TypeError, KeyError):
        # The file was read during a write, or another program has locked the folder.
        return {}


def _error_tail(log: Path, since: float | None) -> tuple[str, ...]:
    """The error at the end of a log; empty if there is none."""
    try:
        with log.open("rb") as stream:
            about = log.stat()
            stream.seek(max(0, about.st_size - _MOST_BYTES))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        # There is no log yet.
        return ()
    if since is not None and about.st_mtime < since:
        return ()
    tail = log_tail(text, _MOST_LINES)
    if not tail or tail[0].startswith(_STOPPED):
        return ()
    failed = tail[0].startswith(ERROR_PREFIX) or any(
        line.startswith(_TRACEBACK) for line in text.splitlines()
    )
    return tail if failed else ()


def _kinds(run: ListedRun) -> Iterable[tuple[str, ...]]:
    """Keys of groups whose runs share a scale of time, the narrowest group first."""
    method = parse(run.request.method).name
    return (method, run.request.dataset), (method,), ()


def _seconds_left(state: RunStatus, paces: Mapping[tuple[str, ...], Sequence[float]]) -> float:
    """Estimated seconds left of a run, from its own rounds if it has finished some."""
    guess = max(state.run.seconds, START_SECONDS)
    measured = next((paces[kind] for kind in _kinds(state.run) if kind in paces), None)
    whole = guess * (statistics.median(measured) if measured else 1.0)
    if state.state != RUNNING or state.round is None or not state.rounds:
        return whole
    left = state.rounds - state.round
    return whole * left / state.rounds if state.seconds_a_round is None else left * state.seconds_a_round
