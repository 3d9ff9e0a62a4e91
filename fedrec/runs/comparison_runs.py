"""The runs of a comparison: train the missing ones, one after the other."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedrec.config.default_paths import default_methods
from fedrec.config.methods import canonical_all
from fedrec.errors import ConfigurationError
from fedrec.plan.runs import KEPT
from fedrec.progress import rounds_shown
from fedrec.runs.default_folders import cost_text, default_run, is_finished, train_run
from fedrec.runs.record import RunRecord
from fedrec.runs.splits import split_of


def compared_runs(
    data: str | os.PathLike[str],
    methods: Sequence[str],
    *,
    protocol: str,
    seeds: int,
    progress: bool = True,
    **options: Any,  # noqa: ANN401
) -> list[RunRecord]:
    """The runs of `methods` with seeds 0 to `seeds` - 1 in their default folders; train missing ones.

    A run that diverges is a result. `options` are further fields of a `TrainRequest`. Progress goes to
    standard error; its first line has the estimated time.
    """
    if seeds < 1:
        raise ConfigurationError(f"seeds: {seeds} is too few. Give 1 or more.")
    known, folder = default_methods(), Path(data)
    runs = [
        default_run(known, folder, method, protocol, seed)
        for method in canonical_all(known, methods)
        for seed in range(seeds)
    ]
    repeated = next((run for run in runs if runs.count(run) > 1), None)
    if repeated is not None:
        raise ConfigurationError(f"two of the methods are {repeated.method} on {repeated.dataset}. Keep one.")
    missing = [run for run in runs if not is_finished(folder, run)]
    if progress:
        split = split_of(folder, runs[0].protocol, runs[0].paper)
        print(cost_text(runs, known, folder, split), file=sys.stderr)
    records = []
    for run in runs:
        is_missing = run in missing
        if progress and is_missing:
            position = f"run {missing.index(run) + 1} of {len(missing)}"
            print(f"{position}: {run.method}, seed {run.seed}", file=sys.stderr)
        with rounds_shown(progress and is_missing):
            records.append(train_run(run, folder, diverged=KEPT, **options))
    return records
