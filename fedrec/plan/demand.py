"""What runs ask of a cluster, by what was measured: time, memory, and which of them travel in one job."""

import math
from collections.abc import Iterable

from fedrec.plan.cost import gpu_seconds_of, size_of
from fedrec.plan.project import Project
from fedrec.plan.runs import RunId

_BUNDLE_SECONDS = 1800.0
"""About how long the runs of a job take, one after the other: a job takes some ten seconds to start."""
_BUNDLE_RUNS = 32
"""Runs of a job at most: its command line names each."""
_TIMES_AS_LONG = 3
"""By how much a run may take longer than the guess: another processor, neighbours, a slow disk."""
_MINUTES_TO_START = 5
_MEMORY, _MEMORY_PER_MILLION = 4500, 450
"""MB of a run, and for every million interactions besides: no less than was measured (docs/performance.md).

Clients that train at once fill 2 GiB of it wherever there are 3: so a run ends in the same bits everywhere.
"""
_MILLION = 1_000_000


class Demands:
    """What the runs of a project ask for; a job that failed asks for twice as much when it is tried again."""

    def __init__(self, project: Project) -> None:
        self._project = project

    @property
    def gpus(self) -> int:
        """GPUs of a job that trains."""
        return int(self._project.configuration["gpu_per_run"])

    def seconds(self, run: RunId) -> float:
        """About how long a run takes: on a GPU where it asks for one, else on a CPU core."""
        if not self.gpus:
            return self._project.job(run).seconds
        costs = self._project.configuration["gpu_costs"]
        return gpu_seconds_of(run, self._project.methods, self._project.catalogue, costs)

    def minutes(self, run: RunId, attempt: int) -> int:
        """Minutes after which a run may be ended."""
        minutes = _MINUTES_TO_START + math.ceil(_TIMES_AS_LONG * self.seconds(run) / 60)
        return minutes * _times(attempt)

    def memory(self, run: RunId, attempt: int) -> int:
        """MB of memory that a run may come to."""
        millions = size_of(self._project.catalogue[run.dataset]).interactions / _MILLION
        return math.ceil(_MEMORY + _MEMORY_PER_MILLION * millions) * _times(attempt)

    def bundles(self, runs: Iterable[RunId]) -> dict[RunId, str]:
        """The name of the job in which a run travels with others; a long one travels alone, and has none.

        Runs of a job are of one dataset, those of a method beside each other: they share what is read and
        compiled.
        """
        named: dict[RunId, str] = {}
        for dataset, short in self._short_runs(runs).items():
            for number, bundle in enumerate(self._filled(short), start=1):
                named |= dict.fromkeys(bundle, f"{dataset}-{number}")
        return named

    def _short_runs(self, runs: Iterable[RunId]) -> dict[str, list[RunId]]:
        """Runs of which a job can hold two, by dataset and in order."""
        short: dict[str, list[RunId]] = {}
        for run in sorted(runs, key=lambda run: (run.dataset, run.method, run)):
            if self.seconds(run) <= _BUNDLE_SECONDS / 2:
                short.setdefault(run.dataset, []).append(run)
        return short

    def _filled(self, runs: Iterable[RunId]) -> list[list[RunId]]:
        """Runs in as many jobs as they need, in order."""
        bundles: list[list[RunId]] = []
        seconds = math.inf
        for run in runs:
            seconds += self.seconds(run)
            if seconds > _BUNDLE_SECONDS or len(bundles[-1]) == _BUNDLE_RUNS:
                bundles.append([])
                seconds = self.seconds(run)
            bundles[-1].append(run)
        return bundles


def _times(attempt: int) -> int:
    """How many times as much an attempt asks for as the first."""
    return 1 << (attempt - 1)
