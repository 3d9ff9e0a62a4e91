"""Resources of training jobs, by what was measured: time, memory, GPUs, and which runs share a job."""

import math

from fedrec.plan.cost import gpu_seconds_of, size_of
from fedrec.plan.project import Project
from fedrec.plan.runs import RunId

SHORT_RUNS = "short"
"""The Snakemake group of short runs; `group-components` of a profile says how many of them share a job."""
_SHORT_SECONDS = 900.0
"""A job takes some ten seconds to start, so that shorter runs share one."""
_TIMES_AS_LONG = 3
"""By how much a run may take longer than the estimate: another processor, neighbours, a slow disk."""
_MINUTES_TO_START = 5
_MEMORY, _MEMORY_PER_MILLION = 4500, 450
"""MB of a run, and for every million interactions besides: no less than was measured (docs/performance.md).

Clients that train at once fill 2 GiB of it wherever there are 3: so a run ends in the same bits everywhere.
"""
_MILLION = 1_000_000


class ResourceEstimator:
    """The resources that runs of a project ask for; a second attempt asks for twice as much."""

    def __init__(self, project: Project) -> None:
        self._project = project

    @property
    def gpus(self) -> int:
        """GPUs of a training job."""
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
        return minutes * _factor(attempt)

    def memory(self, run: RunId, attempt: int) -> int:
        """MB of memory that a run may use."""
        millions = size_of(self._project.catalogue[run.dataset]).interactions / _MILLION
        return math.ceil(_MEMORY + _MEMORY_PER_MILLION * millions) * _factor(attempt)

    def group(self, run: RunId) -> str | None:
        """The group of runs that share a cluster job; None for a long run, which has a job of its own."""
        return SHORT_RUNS if self.seconds(run) <= _SHORT_SECONDS else None


def _factor(attempt: int) -> int:
    """How many times as much an attempt asks for as the first."""
    return 1 << (attempt - 1)
