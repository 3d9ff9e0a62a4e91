"""A search without a declaration in a file: of any method, on any dataset, under any protocol.

By default it uses the ranges of the method's declared search under the shared protocol. The rules for early
ends and for several seeds come from the same file.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from typing_extensions import override

from fedrec.config.method_entries import SHARED_PROTOCOL, setting_meant
from fedrec.config.methods import Methods, entries_of, resolve, setting_text, setting_value, settings_in
from fedrec.config.names import parse
from fedrec.config.tuning import (
    RANGE_KINDS,
    Final,
    Range,
    Search,
    Tuning,
    fixed_settings,
    load_tuning,
    range_mistakes,
    range_of,
)
from fedrec.errors import ConfigurationError

RangeOrChoices = Mapping[str, Sequence[object]] | Sequence[object]
"""`{"log": (0.001, 1)}`, `{"linear": (0, 1)}`, or values to choose from."""
_BOUNDS = 2


@dataclass(frozen=True)
class CustomSearch(Search):
    """A search under a protocol that its key does not name."""

    under: str = SHARED_PROTOCOL

    @property
    @override
    def protocol(self) -> str:
        """The protocol of its trials, by its full name."""
        return self.under


@dataclass(frozen=True)
class SearchRequest:
    """The arguments of a search."""

    method: str
    """Its canonical spelling."""
    paper: str
    dataset: str
    protocol: str
    ranges: Mapping[str, RangeOrChoices] | None
    """By setting; None for those of the file."""
    trials: int
    seeds: int
    """Of the best trials."""


def custom_search(request: SearchRequest, methods: Methods, file: Path) -> tuple[CustomSearch, Tuning]:
    """The requested search, and its rules; `file` declares those of the project."""
    for name in ("trials", "seeds"):
        if getattr(request, name) < 1:
            raise ConfigurationError(f"{name}: {getattr(request, name)} is too few. Give 1 or more.")
    rules = load_tuning(file, methods)
    if request.ranges is None:
        ranges, starts = _declared_ranges(request, rules, methods, file)
    else:
        ranges, starts = _given_ranges(request, request.ranges, methods), ()
    search = CustomSearch(
        key=f"{request.method}@{request.protocol}",
        method=request.method,
        paper=request.paper,
        dataset=request.dataset,
        because="requested by the user",
        ranges=ranges,
        starts=starts,
        exact=True,
        under=request.protocol,
    )
    final = None
    if rules.final is not None and request.seeds > 1:
        final = Final(rules.final.keep, request.seeds)
    tuning = Tuning(request.trials, request.trials, rules.design, rules.seed, rules.halving, {}, (), final)
    return search, tuning


def _given_ranges(
    request: SearchRequest, given: Mapping[str, RangeOrChoices], methods: Methods
) -> tuple[Range, ...]:
    """The given ranges, with the checks of declared ones."""
    composition = parse(request.method)
    known = settings_in(entries_of(methods, composition))
    values, sources, _ = resolve(methods, request.method, request.paper, request.dataset)
    if not given:
        raise ConfigurationError(
            "ranges: the mapping is empty. Give a range for each setting to search, or omit ranges."
        )
    ranges = []
    for name, given_range in given.items():
        where = f"range of {name}"
        if name not in known:
            raise ConfigurationError(
                f"{where}: {composition.name} has no such setting.{setting_meant(name, known)} It has: "
                f"{', '.join(known)}."
            )
        if name in dict(composition.changes):
            raise ConfigurationError(
                f"{where}: the name {request.method} sets it already. Remove it from the name, or here."
            )
        entry = _entry(where, given_range, partial(setting_value, composition, known, name))
        for mistake in range_mistakes(
            (name,), entry, known[name], SHARED_PROTOCOL, values[name], sources[name]
        ):
            raise ConfigurationError(f"{where}: {mistake.text}")
        ranges.append(range_of(name, entry, known[name], values[name]))
    return tuple(ranges)


def _entry(where: str, given: RangeOrChoices, read: Callable[[str], object]) -> dict[str, Any]:
    """A given range in the format of the file; texts are parsed as values of the setting."""
    entry = dict(given) if isinstance(given, Mapping) else {"choice": given}
    (kind, *others) = entry or [""]
    values = entry.get(kind)
    if others or kind not in RANGE_KINDS or isinstance(values, str) or not isinstance(values, Sequence):
        raise ConfigurationError(
            f"{where}: {given!r} is not a range. Write {{'log': (0.001, 1)}}, {{'linear': (0, 1)}}, or a "
            "list of values."
        )
    values = [read(value) if isinstance(value, str) else value for value in values]
    numbers = all(isinstance(value, int | float) for value in values)
    if kind != "choice" and (len(values) != _BOUNDS or not numbers):
        raise ConfigurationError(f"{where}: {values} are not bounds. Give the lowest and the highest value.")
    if not values:
        raise ConfigurationError(f"{where}: the list of values is empty. Give at least one.")
    return {kind: values}


def _declared_ranges(
    request: SearchRequest, rules: Tuning, methods: Methods, file: Path
) -> tuple[tuple[Range, ...], tuple[tuple[str, ...], ...]]:
    """Ranges and starts of the file, without the settings in the method's name.

    If the method has several ways to train it, they come from the way that differs least from the name.
    """
    composition = parse(request.method)
    ways = [search for search in rules.under_shared_protocol if search.name == composition.name]
    if not ways:
        raise ConfigurationError(
            f"{file} has no ranges for {composition.name}. Give your own: "
            "ranges={'rate': {'log': (0.001, 1)}}, or --range rate=log:0.001:1."
        )
    values, _, _ = resolve(methods, request.method, request.paper, request.dataset)
    way = min(ways, key=lambda range_: _without_search(range_, values, methods))
    free = [
        index for index, range_ in enumerate(way.ranges) if range_.setting not in dict(composition.changes)
    ]
    if not free:
        raise ConfigurationError(
            f"{request.method} sets every setting that {file} would search. Remove a setting from the name."
        )
    ranges = tuple(
        replace(way.ranges[index], was=setting_text(values[way.ranges[index].setting])) for index in free
    )
    return ranges, tuple(tuple(start[index] for index in free) for start in way.starts)


def _without_search(way: Search, values: Mapping[str, Any], methods: Methods) -> int:
    """The number of unsearched settings in which a way's runs differ from `values`."""
    return sum(values.get(name) != value for name, value in fixed_settings(way, methods).items())
