"""Group the runs of a list that one training produces."""

import json
from collections import Counter
from collections.abc import Iterable

from fedrec.config.protocol import full_name
from fedrec.errors import ConfigurationError, StorageError
from fedrec.plan.run_list import ListedRun
from fedrec.runs.shared_training import samples_of

_OWN = ("protocol", "out")
"""Options in which runs may differ that are trained once."""


def group_by_training(runs: Iterable[ListedRun]) -> list[list[ListedRun]]:
    """The runs of a list in groups, each in the place of its first, that one training serves."""
    groups: dict[tuple[str, int], list[ListedRun]] = {}
    times: Counter[tuple[str, str]] = Counter()
    for number, run in enumerate(runs):
        training, protocol = _training_of(run) or str(number), run.request.protocol
        # The same run twice is for two folders: nothing that one training would write.
        groups.setdefault((training, times[training, protocol]), []).append(run)
        times[training, protocol] += 1
    return list(groups.values())


def _training_of(run: ListedRun) -> str | None:
    """What decides about a run's training; None where it is to be trained by itself."""
    asked = run.request
    if asked.record or asked.paper is None:
        return None
    try:
        samples = samples_of(asked.data / full_name(asked.protocol, asked.paper))
    except (ConfigurationError, StorageError, KeyError):
        # What is wrong is told when the run is trained, and fails.
        return None
    shared = {key: value for key, value in asked.as_line().items() if key not in _OWN}
    return json.dumps([shared, run.code, samples])
