"""Estimate how long runs take, from the seconds per round in `config/methods.yaml`."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from fedrec.config.method_entries import MethodEntry
from fedrec.config.methods import Methods, resolve
from fedrec.config.names import parse
from fedrec.config.population import Population
from fedrec.config.size import Size
from fedrec.plan.runs import RunId

if TYPE_CHECKING:
    from fedrec.config.catalogue import Catalogue, Dataset

_MEASURED = Size(users=943, items=1682, interactions=100_000)
"""Size of the dataset on which the seconds per round were measured."""
_SYNTHETIC_PER_USER = 20
"""Interactions per user of a small synthetic dataset."""
_DEFAULT_SECONDS = 2.0
"""Seconds per round of a method whose entry has none."""
_DEFAULT_GPU_SECONDS = 0.5
"""Seconds per round and million interactions on a GPU, of a method without an entry in `gpu_costs`."""
_NOISE_SECONDS = 3.5e-8
"""Seconds on a CPU core to draw the noise for one number."""
_MILLION, _BILLION = 1_000_000, 1_000_000_000
_SECONDS_PER_MINUTE = 60
_MINUTES_PER_HOUR = 60
START_SECONDS = 1.0
"""Seconds per run outside its rounds, in a process that has trained before: read, compile, write."""


def seconds_of(run: RunId, methods: Methods, catalogue: "Catalogue") -> float:
    """Estimated seconds of a run on one CPU core, from its rounds, epochs, interactions, users and items."""
    return seconds_by_size(run, methods, size_of(catalogue[run.dataset]))


def seconds_by_size(run: RunId, methods: Methods, size: Size) -> float:
    """Estimated seconds of a run on one CPU core, on a dataset of this `size`."""
    seconds = sum(_seconds(methods[name]) for name in _entries(run))
    whole = sum(methods[name].table_seconds for name in _entries(run))
    work = _work_of(run, methods, size)
    trained = (seconds - whole) * work.training * size.interactions / _MEASURED.interactions
    on_tables = whole * size.users * size.items / (_MEASURED.users * _MEASURED.items)
    return float(START_SECONDS + work.rounds * (trained + on_tables + _NOISE_SECONDS * work.noise))


def gpu_seconds_of(run: RunId, methods: Methods, catalogue: "Catalogue", costs: Mapping[str, Any]) -> float:
    """Estimated seconds of a run on a GPU, from the `gpu_costs` of a configuration."""
    entries = _entries(run)
    million = sum(costs["million"].get(name, _DEFAULT_GPU_SECONDS) for name in entries)
    tables = sum(costs["tables"].get(name, 0.0) for name in entries)
    size = size_of(catalogue[run.dataset])
    work = _work_of(run, methods, size)
    trained = million * work.training * size.interactions / _MILLION
    whole = tables * size.users * size.items / _MILLION
    noise = costs["noise"] * work.noise / _BILLION
    return float(costs["start"] + work.rounds * (costs["round"] + trained + whole + noise))


def duration(seconds: float) -> str:
    """Time on one CPU core as text: `40 core-minutes`, `30.1 core-hours`."""
    minutes = seconds / _SECONDS_PER_MINUTE
    if minutes >= _MINUTES_PER_HOUR:
        return f"{minutes / _MINUTES_PER_HOUR:.1f} core-hours"
    return "a core-minute" if round(minutes) <= 1 else f"{minutes:.0f} core-minutes"


def _seconds(entry: MethodEntry) -> float:
    return _DEFAULT_SECONDS if entry.seconds is None else entry.seconds


def _entries(run: RunId) -> list[str]:
    """The names of a run's method and plug-in in `config/methods.yaml`."""
    composition = parse(run.method)
    return [composition.backbone] + ([f"+{composition.plugin}"] if composition.plugin else [])


@dataclass(frozen=True)
class _Work:
    """The amount of work that the settings of a run require."""

    rounds: int
    training: float
    """Training per round, relative to the method's default settings."""
    noise: float
    """Numbers per round for which noise is drawn."""


def _work_of(run: RunId, methods: Methods, size: Size) -> _Work:
    values, _, _ = resolve(methods, run.method, run.paper, run.dataset)
    usual, _, _ = resolve(methods, parse(run.method).name, None, run.dataset)
    epochs = values.get("local_epochs", 1) / usual.get("local_epochs", 1)
    taking_part = values.get("participation", 1)
    # Uploads get noise once a round, gradients once per mini-batch of every epoch.
    noises = bool(values.get("ldp")) + (_batches(values, size) if values.get("dp_noise") else 0)
    return _Work(
        rounds=int(values["rounds"]),
        training=epochs * taking_part / usual.get("participation", 1),
        noise=noises * taking_part * size.users * size.items * values.get("d", 1),
    )


def _batches(values: Mapping[str, Any], size: Size) -> int:
    """Estimated mini-batches per client and round."""
    samples: float = size.interactions / size.users * (1 + values.get("negatives", 0))
    in_epoch = ceil(samples / (values.get("batch_size") or samples))
    return int(in_epoch * values.get("local_epochs", 1))


def size_of(dataset: "Dataset") -> Size:
    """Estimated size of a dataset: its entry's, the generator's, a printed one, or else MovieLens 100K's."""
    if dataset.size is not None:
        return dataset.size
    generator = dataset.synthetic
    if isinstance(generator, Population):
        return Size(generator.users, generator.items, generator.interactions)
    if generator is not None:
        return Size(generator.users, generator.items, _SYNTHETIC_PER_USER * generator.users)
    printed = dataset.published.values()
    return Size(
        users=next((statistics.users for statistics in printed if statistics.users), _MEASURED.users),
        items=next((statistics.items for statistics in printed if statistics.items), _MEASURED.items),
        interactions=next(
            (statistics.interactions for statistics in printed if statistics.interactions),
            _MEASURED.interactions,
        ),
    )
