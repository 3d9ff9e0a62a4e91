"""Group the runs of a list that can share one training."""

import json
from collections import Counter
from collections.abc import Iterable

from fedrec.config.protocol import full_name
from fedrec.errors import ConfigurationError, StorageError
from fedrec.plan.run_list import ListedRun
from fedrec.runs.shared_training import samples_of

_PER_RUN = ("protocol", "out")
"""Options in which runs of a shared training may differ."""


def group_by_training(runs: Iterable[ListedRun]) -> list[list[ListedRun]]:
    """The runs of a list in groups that share one training, in the order of their first runs."""
    groups: dict[tuple[str, int], list[ListedRun]] = {}
    times: Counter[tuple[str, str]] = Counter()
    for number, run in enumerate(runs):
        training, protocol = _training_of(run) or str(number), run.request.protocol
        # One training writes each protocol to one folder only: put a repeated run into another group.
        groups.setdefault((training, times[training, protocol]), []).append(run)
        times[training, protocol] += 1
    return list(groups.values())


def _training_of(run: ListedRun) -> str | None:
    """Key of a run's training; None to train the run alone."""
    request = run.request
    if request.record or request.paper is None:
        return None
    try:
        samples = samples_of(request.data / full_name(request.protocol, request.paper))
    except (ConfigurationError, StorageError, KeyError):
        # The training of the run will report the error.
        return None
    shared = {key: value for key, value in request.as_line().items() if key not in _PER_RUN}
    return json.dumps([shared, run.code, samples])
