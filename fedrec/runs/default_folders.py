"""Train runs from Python into the default folders: where the workflow stores the same runs."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedrec.config.default_paths import default_methods
from fedrec.config.methods import Methods, resolve, setting_text, with_settings
from fedrec.config.protocol import full_name
from fedrec.config.size import Size
from fedrec.data.split import Split
from fedrec.errors import ConfigurationError
from fedrec.plan.cost import duration, seconds_by_size
from fedrec.plan.runs import ALWAYS, NEVER, REFUSED, SMALL, SUMMARY, RunId, run_of
from fedrec.plan.train_request import AUTO, TrainRequest
from fedrec.progress import rounds_shown
from fedrec.runs.record import RunRecord
from fedrec.runs.splits import split_of
from fedrec.runs.train import train

_MODELS = {None: SMALL, True: ALWAYS, False: NEVER}
"""The models to write, by the argument `with_model`."""
RESULTS = Path("results")
"""The folder of results that the workflow uses."""


def results_of(data: Path) -> Path:
    """The folder of results with the dataset's folder; `results` if that is not in a folder `data`."""
    return data.parent.parent if data.parent.name == "data" else RESULTS


def default_run(methods: Methods, data: Path, method: str, protocol: str, seed: int) -> RunId:
    """The run of a method with the settings of its own paper, by the name that the workflow gives it."""
    _, _, paper = resolve(methods, method, None, data.name)
    split = split_of(data, protocol, paper)
    if split.dataset != data.name:
        raise ConfigurationError(
            f"{data}: the folder must have the name of its dataset, {split.dataset}. Rename it to "
            f"{split.dataset}."
        )
    return run_of(methods, paper, data.name, protocol, method, seed)


def is_finished(data: Path, run: RunId) -> bool:
    """Whether the default folder has a finished run."""
    return (default_record(data, run).folder / SUMMARY).is_file()


def default_record(data: Path, run: RunId) -> RunRecord:
    """The record of the run in its default folder, which is valid once the run is finished."""
    return RunRecord(results_of(data) / run.folder, data)


def cost_text(runs: Sequence[RunId], methods: Methods, data: Path, split: Split) -> str:
    """The number of runs, the number of finished ones, and the estimated time of the others, as text."""
    size = Size(split.users, split.items, len(split.user))
    left = [run for run in runs if not is_finished(data, run)]
    finished = f", of which {len(runs) - len(left)} are finished" if len(left) < len(runs) else ""
    seconds = sum(seconds_by_size(run, methods, size) for run in left)
    takes = f": about {duration(seconds)}" if left else ""
    return f"{len(runs)} runs{finished}{takes}, in {results_of(data) / 'runs'}."


def train_run(run: RunId, data: Path, **options: Any) -> RunRecord:  # noqa: ANN401
    """Train a run into its default folder, unless it is finished there.

    As in the workflow, a finished run with other settings or code is replaced. `options` are further fields
    of a `TrainRequest`.
    """
    return _trained(run, data, default_record(data, run).folder, replace=True, **options)


def train_named(
    data: str | os.PathLike[str],
    method: str,
    *,
    protocol: str = "clean",
    seed: int = 0,
    settings: Mapping[str, object] | None = None,
    out: str | os.PathLike[str] | None = None,
    device: str = AUTO,
    engine: str = AUTO,
    with_model: bool | None = None,
    diverged: str = REFUSED,
    progress: bool = True,
) -> RunRecord:
    """Train a method on a split; `fedrec.train` documents the arguments."""
    methods, folder = default_methods(), Path(data)
    texts = {name: setting_text(_plain(value)) for name, value in (settings or {}).items()}
    name, files = with_settings(methods, method, texts)
    if files and out is None:
        raise ConfigurationError(
            f"{files[0]}: a path cannot be part of a method's name, so this run has no default folder. Give "
            "one: out=FOLDER."
        )
    run = default_run(methods, folder, name, protocol, seed)
    options: dict[str, Any] = {
        "device": device, "engine": engine, "model": _MODELS[with_model], "diverged": diverged,
    }  # fmt: skip
    with rounds_shown(progress):
        if out is None:
            return train_run(run, folder, **options)
        return _trained(run, folder, Path(out), changes=files, **options)


def _trained(run: RunId, data: Path, out: Path, **options: Any) -> RunRecord:  # noqa: ANN401
    request = TrainRequest(
        data=data,
        method=run.method,
        paper=run.paper,
        protocol=full_name(run.protocol, run.paper),
        seed=run.seed,
        out=out,
        **options,
    )
    train(request, default_methods())
    return RunRecord(out, data)


def _plain(value: object) -> object:
    """Convert a numpy scalar to a Python value, because numpy spells its values differently."""
    return value.item() if isinstance(value, np.generic) else value
