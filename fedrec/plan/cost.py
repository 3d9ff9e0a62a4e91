"""About how long runs take, from the seconds of a round that `config/methods.yaml` holds."""

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
"""Of the dataset that the methods' seconds were measured on."""
_SYNTHETIC_PER_USER = 20
"""Interactions of a user of a small synthetic dataset."""
_DEFAULT_SECONDS = 2.0
"""Seconds of a round where a method's entry has none."""
_DEFAULT_GPU_SECONDS = 0.5
"""Seconds of a round on a GPU, for a million interactions, of a method without a number of its own."""
_NOISE_SECONDS = 3.5e-8
"""Seconds on a CPU core of a number that noise is drawn for."""
_MILLION, _BILLION = 1_000_000, 1_000_000_000
_SECONDS_PER_MINUTE = 60
_MINUTES_PER_HOUR = 60
START_SECONDS = 1.0
"""Seconds that a run takes besides its rounds, in a process that did others: reading, compiling, writing."""


def seconds_of(run: RunId, methods: Methods, catalogue: "Catalogue") -> float:
    """About how long a run takes on one CPU core, by its rounds, epochs, interactions, users and items."""
    return seconds_by_size(run, methods, size_of(catalogue[run.dataset]))


def seconds_by_size(run: RunId, methods: Methods, size: Size) -> float:
    """The same of a run on a dataset that is so large."""
    seconds = sum(_seconds(methods[name]) for name in _entries(run))
    whole = sum(methods[name].table_seconds for name in _entries(run))
    work = _work_of(run, methods, size)
    trained = (seconds - whole) * work.training * size.interactions / _MEASURED.interactions
    on_tables = whole * size.users * size.items / (_MEASURED.users * _MEASURED.items)
    return float(START_SECONDS + work.rounds * (trained + on_tables + _NOISE_SECONDS * work.noise))


def gpu_seconds_of(run: RunId, methods: Methods, catalogue: "Catalogue", costs: Mapping[str, Any]) -> float:
    """About how long a run takes on a GPU, by the `gpu_costs` of a configuration."""
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
    """A time of work on one CPU core, in words: `40 core-minutes`, `30.1 core-hours`."""
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
    """What the settings of a run ask for."""

    rounds: int
    training: float
    """How much more it trains in a round than its method usually does."""
    noise: float
    """For how many numbers it draws noise in a round."""


def _work_of(run: RunId, methods: Methods, size: Size) -> _Work:
    values, _, _ = resolve(methods, run.method, run.paper, run.dataset)
    usual, _, _ = resolve(methods, parse(run.method).name, None, run.dataset)
    epochs = values.get("local_epochs", 1) / usual.get("local_epochs", 1)
    taking_part = values.get("participation", 1)
    # On an upload there is noise once, on gradients in every mini-batch of every epoch.
    noises = bool(values.get("ldp")) + (_batches(values, size) if values.get("dp_noise") else 0)
    return _Work(
        rounds=int(values["rounds"]),
        training=epochs * taking_part / usual.get("participation", 1),
        noise=noises * taking_part * size.users * size.items * values.get("d", 1),
    )


def _batches(values: Mapping[str, Any], size: Size) -> int:
    """About how many mini-batches a client trains on in a round."""
    samples: float = size.interactions / size.users * (1 + values.get("negatives", 0))
    in_epoch = ceil(samples / (values.get("batch_size") or samples))
    return int(in_epoch * values.get("local_epochs", 1))


def size_of(dataset: "Dataset") -> Size:
    """About how large a dataset is: as its entry says, as made or printed, or else as is usual."""
    if dataset.size is not None:
        return dataset.size
    made = dataset.synthetic
    if isinstance(made, Population):
        return Size(made.users, made.items, made.interactions)
    if made is not None:
        return Size(made.users, made.items, _SYNTHETIC_PER_USER * made.users)
    printed = dataset.published.values()
    return Size(
        users=next((one.users for one in printed if one.users), _MEASURED.users),
        items=next((one.items for one in printed if one.items), _MEASURED.items),
        interactions=next((one.interactions for one in printed if one.interactions), _MEASURED.interactions),
    )
