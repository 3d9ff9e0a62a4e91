"""Searches for what papers do not state: which settings, over which ranges, on which datasets.

`config/tuning.yaml` names them. A search belongs to a method, to the paper under whose protocol it is made
(`fedncf@pfedclr`), and to a dataset. A setting that the paper states is not searched; a grid that it states
may be.
Trials differ from the runs that are reported in what is searched alone: what was found is refused once
anything else differs. `fedrec.plan.trials` knows the trials.

A search under `clean` (`fedncf@clean`) belongs to no paper. Everything may be searched there, and a run has
what was found by its name alone (`name_with_found`).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from fedrec.config.document import Document, KeyPath, Mistake, refuse, told_at
from fedrec.config.method_entries import SHARED_PROTOCOL, Found, Setting
from fedrec.config.methods import Methods, Settings, canonical, entries_of, resolve, setting_text, settings_in
from fedrec.config.names import parse
from fedrec.config.schema import load
from fedrec.errors import ConfigurationError, did_you_mean

RangeKind = Literal["log", "linear", "choice"]
RANGE_KINDS: tuple[RangeKind, ...] = ("log", "linear", "choice")
STATED = "paper"
"""The source of a value, or of a range, that its paper states."""
LENGTH = "rounds"
"""The setting that decides how long a trial is."""


@dataclass(frozen=True)
class Range:
    """What a setting may be in a search, as texts that names of runs hold."""

    setting: str
    kind: RangeKind
    bounds: tuple[float, float] | None
    """Least and largest value; None for a choice."""
    choices: tuple[str, ...]
    """The values of a choice; none for an interval."""
    whole: bool
    """Whether values are integers."""
    was: str
    """The value without the search."""


@dataclass(frozen=True)
class Search:
    """The settings of a method that are searched on a dataset under a paper's protocol, and why."""

    key: str
    """`fedncf@pfedclr`, or `fedncf@clean`."""
    method: str
    paper: str
    """Whose settings trials have besides; under the shared protocol, the method's own paper."""
    dataset: str
    because: str
    ranges: tuple[Range, ...]
    exact: bool = False
    """Whether trials are compared by ranks among all items, and not among sampled candidates."""
    backbone: str | None = None
    """The method that this one builds on, which has a search on the same dataset under the shared "
    "protocol."""

    @property
    def protocol(self) -> str:
        """The protocol of its trials: `published`, which is the paper's own, or the shared one."""
        return SHARED_PROTOCOL if self.key.endswith(f"@{SHARED_PROTOCOL}") else "published"

    @property
    def target(self) -> str:
        """Its name among all targets: `tune_fedncf_pfedclr_ml_100k`."""
        return "tune_" + re.sub(r"\W|-", "_", f"{self.key}_{self.dataset}")


@dataclass(frozen=True)
class Halving:
    """When poor trials end: after each of `rounds`, of those compared only the best share goes on."""

    rounds: tuple[int, ...]
    keep: float


@dataclass(frozen=True)
class Tuning:
    """All searches, and what they have in common."""

    trials_per_setting: int
    most_trials: int
    design: int
    seed: int
    halving: Halving | None
    searches: Mapping[str, Search]
    """By the name of their target."""
    controls: tuple[str, ...] = ()
    """Methods without a search that are shown beside those tuned alike."""

    @property
    def alike(self) -> list[Search]:
        """The searches under the shared protocol: of methods that are tuned alike."""
        return [search for search in self.searches.values() if search.protocol == SHARED_PROTOCOL]

    def trials_of(self, search: Search) -> int:
        """How many trials a search has, unless it has fewer points."""
        return min(self.most_trials, self.trials_per_setting * len(search.ranges))


def load_tuning(path: Path, methods: Methods) -> Tuning:
    """Read and check the file of searches; the catalogue is not asked, nor which papers there are."""
    document = load(path, "tuning")
    content = document.content
    searches: dict[str, Search] = {}
    for key in content["searches"]:
        for search in _searches(document, key, methods):
            if search.target in searches:
                other = searches[search.target].key
                raise ConfigurationError(
                    f"{document.place(('searches', key))}: {other} and {key} would both be {search.target}. "
                    "Keep one."
                )
            searches[search.target] = search
    refuse(document, list(_of_backbones(searches)))
    halving = _halving(document) if "halving" in content else None
    with told_at(document.place(("controls",))):
        controls = tuple(canonical(methods, name) for name in content.get("controls", ()))
    return Tuning(
        content["trials_per_setting"],
        content["most_trials"],
        content["design"],
        content["seed"],
        halving,
        searches,
        controls,
    )


def held_settings(search: Search, methods: Methods) -> Settings:
    """The values that all trials of a search have in common, as runs that are reported have them."""
    values, _, _ = resolve(methods, search.method, search.paper, search.dataset)
    searched = {one.setting for one in search.ranges}
    return {key: value for key, value in values.items() if key not in searched}


def found_by(methods: Methods, search: Search) -> Found | None:
    """The finding of a search, as `methods` have it; None where it found nothing yet."""
    return _found(methods, search.method, search.key.rpartition("@")[2], search.dataset)


def _found(methods: Methods, method: str, place: str, dataset: str) -> Found | None:
    """The finding for a method under a paper's protocol, or the shared one."""
    composition = parse(method)
    where = place if composition.plugin is None else f"{composition.backbone}@{place}"
    return entries_of(methods, composition)[-1].found.get(where, {}).get(dataset)


def name_with_found(methods: Methods, search: Search) -> str:
    """The method of a search with what was found, spelt out; as it is where nothing was found yet.

    So a run has what was found under the shared protocol: no paper's settings do.
    """
    found = found_by(methods, search)
    return search.method if found is None else _spelt(methods, search.method, found)


def tuned_name(methods: Methods, method: str, dataset: str) -> tuple[str, str] | None:
    """The paper and the method of a run with what was found under the shared protocol, and its own changes.

    None where nothing was found. The paper is the one whose settings the trials had besides.
    """
    composition = parse(method)
    found = _found(methods, composition.name, SHARED_PROTOCOL, dataset)
    if found is None:
        return None
    _, _, paper = resolve(methods.unsearched, composition.name, None, dataset)
    return paper, _spelt(methods, method, found)


def _spelt(methods: Methods, method: str, found: Found) -> str:
    """A method with the settings of a finding spelt out; changes in its name come before these."""
    composition = parse(method)
    changes = {key: setting_text(value) for key, value in found.settings.items()} | dict(composition.changes)
    return canonical(methods, str(replace(composition, changes=tuple(changes.items()))))


def has_tuned(methods: Methods) -> bool:
    """Whether searches under the shared protocol found anything."""
    places = (place for entry in methods.values() for place in entry.found)
    return any(place.rpartition("@")[2] == SHARED_PROTOCOL for place in places)


def check_found(document: Document, methods: Methods, tuning: Tuning) -> None:
    """Raise `ConfigurationError` for what no search finds, or found with other settings than runs have now.

    `document` holds what searches found, and `methods` have it.
    """
    refuse(document, found_mistakes(document.content, methods, tuning))


def found_mistakes(content: Mapping[str, Any], methods: Methods, tuning: Tuning) -> list[Mistake]:
    """The mistakes in the findings of searches."""
    searches = {(search.key, search.dataset): search for search in tuning.searches.values()}
    keys = [key for key, _ in searches]
    mistakes: list[Mistake] = []
    for key, datasets in content.items():
        for dataset, found in datasets.items():
            search = searches.get((key, dataset))
            if search is None:
                at = (key, dataset) if key in keys else (key,)
                text = f"there is no search for {key} on {dataset}. Declare it in the file of searches."
                mistakes.append(Mistake(at, text + did_you_mean(key, keys)))
            else:
                mistakes += _of_found((key, dataset), search, found, methods)
    return mistakes


def _of_found(key: KeyPath, search: Search, found: Mapping[str, Any], methods: Methods) -> Iterator[Mistake]:
    """A finding is of searched settings, and its trials are like the runs that have it."""
    ranges = [one.setting for one in search.ranges]
    for setting in found["settings"]:
        if setting not in ranges:
            text = f"the search {search.key} does not look for it. Take it out."
            yield Mistake((*key, "settings", setting), text)
    values = held_settings(search, methods)
    for setting, value in found["held"].items():
        if setting not in values or values[setting] != value:
            now = setting_text(values[setting]) if setting in values else "searched, or not there"
            yield Mistake(
                (*key, "held", setting),
                f"it was searched with {setting} = {setting_text(value)}, which is {now} in runs that are "
                "reported. Take out what was found, and search again.",
            )


def _searches(document: Document, key: str, methods: Methods) -> Iterator[Search]:
    """A search for each of its datasets."""
    content, at = document.content["searches"][key], ("searches", key)
    name, _, paper = key.rpartition("@")
    with told_at(document.place(at)):
        known = settings_in(entries_of(methods, parse(name)))
        method = canonical(methods, name)
    for setting in content["settings"]:
        if setting not in known:
            raise ConfigurationError(
                f"{document.place((*at, 'settings', setting))}: {name} has no setting '{setting}'."
                f"{did_you_mean(setting, known)} It has: {', '.join(known)}."
            )
    exact = content.get("validation") == "exact"
    for dataset in content.get("datasets", document.content["datasets"]):
        whose = None if paper == SHARED_PROTOCOL else paper
        values, sources, whose = resolve(methods.unsearched, method, whose, dataset)
        mistakes = [
            mistake
            for setting, entry in content["settings"].items()
            for mistake in _of_range(
                (*at, "settings", setting), entry, known[setting], paper, values[setting], sources[setting]
            )
        ]
        refuse(document, mistakes)
        ranges = tuple(
            _range(setting, entry, known[setting], values[setting])
            for setting, entry in content["settings"].items()
        )
        backbone = content.get("backbone")
        yield Search(key, method, whose, dataset, content["because"], ranges, exact, backbone)


def _of_backbones(searches: Mapping[str, Search]) -> Iterator[Mistake]:
    """A backbone is tuned alike: it has a search on the same dataset."""
    alike = {(search.key, search.dataset) for search in searches.values()}
    for search in searches.values():
        wanted = f"{search.backbone}@{SHARED_PROTOCOL}"
        if search.backbone is None:
            continue
        if search.protocol != SHARED_PROTOCOL or (wanted, search.dataset) not in alike:
            text = f"there is no search {wanted} on {search.dataset}. Add one, or take the backbone out."
            yield Mistake(("searches", search.key, "backbone"), text)


def _of_range(
    key: KeyPath, entry: Mapping[str, Any], setting: Setting, paper: str, value: object, source: str
) -> Iterator[Mistake]:
    """A setting that may be searched, and a range of values that it may have."""
    if key[-1] == LENGTH:
        yield Mistake(key, "decides how long a trial is, and is not searched: each has the paper's own.")
        return
    if source == STATED and entry.get("from") != STATED and paper != SHARED_PROTOCOL:
        yield Mistake(
            key,
            f"{paper} states it: {key[-1]} = {setting_text(value)}. What a paper states is not searched; "
            "take it out, or say that the paper states this very range: from: paper.",
        )
        return
    kinds = [kind for kind in RANGE_KINDS if kind in entry]
    if len(kinds) != 1:
        yield Mistake(key, f"give exactly one of {', '.join(RANGE_KINDS)}.")
        return
    (kind,) = kinds
    if kind == "choice":
        for place, one in enumerate(entry["choice"]):
            if not setting.allows(one):
                yield Mistake((*key, kind, place), setting.refusal(one))
    else:
        yield from _of_bounds((*key, kind), kind, entry[kind], setting)


def _of_bounds(key: KeyPath, kind: RangeKind, bounds: list[float], setting: Setting) -> Iterator[Mistake]:
    low, high = bounds
    if setting.type not in ("integer", "number"):
        yield Mistake(key, f"goes with numbers; this is {setting.allowed_values}. Write choice: [...].")
    elif not low < high:
        yield Mistake(key, f"the least value, {low:g}, must lie below the largest, {high:g}.")
    elif kind == "log" and low <= 0:
        yield Mistake(key, f"a range of type log starts above 0, not at {low:g}. Raise it, or write linear.")
    else:
        yield from (Mistake(key, setting.refusal(one)) for one in bounds if not setting.allows(one))


def _range(name: str, entry: Mapping[str, Any], setting: Setting, was: object) -> Range:
    (kind,) = (kind for kind in RANGE_KINDS if kind in entry)
    choices = tuple(setting_text(value) for value in entry.get("choice", ()))
    bounds = None if kind == "choice" else (float(entry[kind][0]), float(entry[kind][1]))
    return Range(name, kind, bounds, choices, setting.type == "integer", setting_text(was))


def _halving(document: Document) -> Halving:
    """The rule by which trials end early."""
    content = document.content["halving"]
    rounds = tuple(content["rounds"])
    if list(rounds) != sorted(rounds):
        raise ConfigurationError(
            f"{document.place(('halving', 'rounds'))}: write them from the first to the last."
        )
    return Halving(rounds, content["keep"])
