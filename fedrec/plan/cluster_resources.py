"""Resources of training jobs, from measurements: time, memory, GPUs, and the runs that share a job."""

import math

from fedrec.plan.cost import gpu_seconds_of, size_of
from fedrec.plan.project import Project
from fedrec.plan.runs import RunId

SHORT_RUNS = "short"
"""The Snakemake group of short runs; `group-components` of a profile sets how many of them share a job."""
_SHORT_SECONDS = 900.0
"""Runs up to this long share a job, because a job takes about ten seconds to start."""
_TIMES_AS_LONG = 3
"""Factor by which a run may exceed its estimate: a slower processor, other jobs, a slow disk."""
_MINUTES_TO_START = 5
_MEMORY, _MEMORY_PER_MILLION = 4500, 450
"""MB of a run, and MB for every million interactions: at least what was measured (docs/performance.md).

2 GiB of it are for clients that train at once. fedrec uses the same 2 GiB on every machine with 3 GiB or
more, so that a run gives the same bits everywhere.
"""
_MILLION = 1_000_000


class ResourceEstimator:
    """Estimate the resources of a project's runs; every further attempt requests twice as much."""

    def __init__(self, project: Project) -> None:
        self._project = project

    @property
    def gpus(self) -> int:
        """GPUs of a training job."""
        return int(self._project.configuration["gpu_per_run"])

    def seconds(self, run: RunId) -> float:
        """Estimated seconds of a run: on a GPU if training jobs request one, else on a CPU core."""
        if not self.gpus:
            return self._project.job(run).seconds
        costs = self._project.configuration["gpu_costs"]
        return gpu_seconds_of(run, self._project.methods, self._project.catalogue, costs)

    def minutes(self, run: RunId, attempt: int) -> int:
        """Time limit of a run's job, in minutes."""
        minutes = _MINUTES_TO_START + math.ceil(_TIMES_AS_LONG * self.seconds(run) / 60)
        return minutes * _factor(attempt)

    def memory(self, run: RunId, attempt: int) -> int:
        """Memory limit of a run's job, in MB."""
        millions = size_of(self._project.catalogue[run.dataset]).interactions / _MILLION
        return math.ceil(_MEMORY + _MEMORY_PER_MILLION * millions) * _factor(attempt)

    def group(self, run: RunId) -> str | None:
        """The group of runs that share a cluster job; None for a long run, which has a job of its own."""
        return SHORT_RUNS if self.seconds(run) <= _SHORT_SECONDS else None


def _factor(attempt: int) -> int:
    """Factor by which an attempt, counted from 1, requests more than the first one."""
    return 1 << (attempt - 1)
