"""Searches for settings that papers do not state: their ranges, on each dataset.

`config/tuning.yaml` declares them. A search belongs to a method, to the paper whose protocol it uses
(`fedncf@pfedclr`), and to a dataset. It must not search a setting that the paper states, but may use a grid
that the paper states. Trials and reported runs differ only in searched settings: fedrec refuses a finding
once another setting differs. `fedrec.plan.trials` plans the trials.

A search under `clean` (`fedncf@clean`) belongs to no paper, and may search any setting. A run uses its
finding only by name (`name_with_finding`). A method with more than one way to train it has a search for each
(`fedmf[optimiser=sgd]@clean`); these searches share the method's budget.
"""

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from fedrec.config.document import Document, KeyPath, Mistake, error_at, refuse
from fedrec.config.method_entries import (
    SHARED_PROTOCOL,
    Finding,
    Setting,
    entry_key,
    is_shared,
    setting_meant,
)
from fedrec.config.methods import Methods, Settings, canonical, entries_of, resolve, setting_text, settings_in
from fedrec.config.names import Composition, parse
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
    """The values of a setting in a search, as texts for names of runs."""

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
    """Its canonical spelling, with the settings of the way to train it, which all trials share."""
    paper: str
    """The paper of all other settings; under the shared protocol, the method's own paper."""
    dataset: str
    because: str
    ranges: tuple[Range, ...]
    starts: tuple[tuple[str, ...], ...] = ()
    """Points to try first, each with a value for every range."""
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
    def name(self) -> str:
        """The method without settings."""
        return parse(self.method).name

    @property
    def target(self) -> str:
        """Its name among all targets: `tune_fedncf_pfedclr_ml_100k`."""
        return "tune_" + re.sub(r"\W+", "_", f"{self.key}_{self.dataset}")


@dataclass(frozen=True)
class Halving:
    """The early end of poor trials: after each of `rounds`, only the best share continues."""

    rounds: tuple[int, ...]
    keep: float


@dataclass(frozen=True)
class Final:
    """The final comparison: the `keep` best trials, by their mean over `seeds` seeds."""

    keep: int
    seeds: int


@dataclass(frozen=True)
class Transfer:
    """How searches under the shared protocol on other datasets use those on one dataset."""

    source: str
    """The dataset whose finding is a start on all others."""
    most_trials: int
    """Of a method, on each of the others."""


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
    """Methods without a search that the leaderboard shows as well."""
    final: Final | None = None
    """None where one seed decides."""
    transfer: Transfer | None = None
    """None if every dataset has independent searches with the same budget."""

    @property
    def seeds(self) -> range:
        """The seeds of trials: that of all, and those that follow it, of the best alone."""
        return range(self.seed, self.seed + (1 if self.final is None else self.final.seeds))

    @cached_property
    def under_shared_protocol(self) -> list[Search]:
        """The searches under the shared protocol, by which the leaderboard tunes all methods."""
        return [search for search in self.searches.values() if search.protocol == SHARED_PROTOCOL]

    def ways_of(self, search: Search) -> list[Search]:
        """The searches for all ways to train the method of a search, itself included."""
        if search.protocol != SHARED_PROTOCOL:
            return [search]
        return self._ways.get((search.name, search.dataset), [search])

    @cached_property
    def _ways(self) -> Mapping[tuple[str, str], list[Search]]:
        """The searches under the shared protocol by method and dataset."""
        ways: dict[tuple[str, str], list[Search]] = {}
        for search in self.under_shared_protocol:
            ways.setdefault((search.name, search.dataset), []).append(search)
        return ways

    def trials_of(self, search: Search) -> int:
        """How many trials a search has, unless it has fewer points: an equal share of its method's."""
        ways = self.ways_of(search)
        searched = {range_.setting for way in ways for range_ in way.ranges}
        most = self._most_trials(search)
        return math.ceil(min(most, self.trials_per_setting * len(searched)) / len(ways))

    def finalists_of(self, search: Search) -> int:
        """How many trials of a search are trained with several seeds: an equal share of its method's."""
        assert self.final is not None, "one seed decides"
        return math.ceil(self.final.keep / len(self.ways_of(search)))

    def _most_trials(self, search: Search) -> int:
        if self.transfer is None or search.protocol != SHARED_PROTOCOL:
            return self.most_trials
        return self.most_trials if search.dataset == self.transfer.source else self.transfer.most_trials


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
                    f"{document.location(('searches', key))}: {other} and {key} would both be "
                    f"{search.target}. Keep one."
                )
            searches[search.target] = search
    refuse(document, list(_backbone_mistakes(searches)))
    halving = _halving(document) if "halving" in content else None
    with error_at(document.location(("controls",))):
        controls = tuple(canonical(methods, name) for name in content.get("controls", ()))
    tuning = Tuning(
        content["trials_per_setting"],
        content["most_trials"],
        content["design"],
        content["seed"],
        halving,
        searches,
        controls,
        Final(**content["final"]) if "final" in content else None,
        Transfer(**content["transfer"]) if "transfer" in content else None,
    )
    refuse(document, [*_ways_mistakes(tuning), *_budget_mistakes(tuning)])
    return tuning


def fixed_settings(search: Search, methods: Methods) -> Settings:
    """The values that all trials of a search have in common, as runs that are reported have them."""
    values, _, _ = resolve(methods, search.method, search.paper, search.dataset)
    searched = {range_.setting for range_ in search.ranges}
    return {key: value for key, value in values.items() if key not in searched}


def finding_of(methods: Methods, search: Search) -> Finding | None:
    """The finding of a search, as `methods` have it; None where it found nothing yet."""
    return _finding(methods, search.method, search.key.rpartition("@")[2], search.dataset)


def _finding(methods: Methods, method: str, place: str, dataset: str) -> Finding | None:
    """The finding for a method under a paper's protocol, or the shared one."""
    composition = parse(method)
    findings = entries_of(methods, composition)[-1].findings
    return findings.get(entry_key(composition, place), {}).get(dataset)


def name_with_finding(methods: Methods, search: Search) -> str:
    """The method of a search with what was found, spelt out; as it is where nothing was found yet.

    So a run has what was found under the shared protocol: no paper's settings do.
    """
    finding = finding_of(methods, search)
    return search.method if finding is None else _spelt(methods, search.method, finding)


def tuned_name(methods: Methods, method: str, dataset: str) -> tuple[str, str] | None:
    """The paper and the method of a run with what was found under the shared protocol, and its own changes.

    None if nothing was found. The paper is that of the trials' other settings. If the method has several
    searched ways, the best is returned.
    """
    composition = parse(method)
    findings = _findings_by_way(methods, composition, dataset)
    if not findings:
        return None
    way = best_way(findings)
    _, _, paper = resolve(methods.unsearched, composition.name, None, dataset)
    return paper, _spelt(methods, str(parse(way).with_changes(dict(composition.changes))), findings[way])


def best_way(findings: Mapping[str, Finding]) -> str:
    """The way whose finding has the best validation, of findings by the method with the settings of a way."""
    return min(findings, key=lambda way: (-(findings[way].validation or 0.0), way))


def _findings_by_way(methods: Methods, composition: Composition, dataset: str) -> dict[str, Finding]:
    """The findings for a method on a dataset under the shared protocol, by the method of their searches."""
    name = composition.name
    plain = "" if composition.plugin is None else composition.backbone
    findings: dict[str, Finding] = {}
    for key, datasets in entries_of(methods, composition)[-1].findings.items():
        changes = key.rpartition("@")[0].removeprefix(plain)
        if is_shared(key) and (not changes or changes[0] == "[") and dataset in datasets:
            findings[f"{name}{changes}"] = datasets[dataset]
    return findings


def _spelt(methods: Methods, method: str, finding: Finding) -> str:
    """A method with the settings of a finding spelt out; changes in its name come before these."""
    composition = parse(method)
    changes = {key: setting_text(value) for key, value in finding.settings.items()} | dict(
        composition.changes
    )
    return canonical(methods, str(replace(composition, changes=tuple(changes.items()))))


def has_tuned(methods: Methods) -> bool:
    """Whether searches under the shared protocol found anything."""
    return any(is_shared(key) for entry in methods.values() for key in entry.findings)


def check_findings(document: Document, methods: Methods, tuning: Tuning) -> None:
    """Raise `ConfigurationError` for what no search finds, or found with other settings than runs have now.

    `document` holds what searches found, and `methods` have it.
    """
    refuse(document, finding_mistakes(document.content, methods, tuning))


def finding_mistakes(content: Mapping[str, Any], methods: Methods, tuning: Tuning) -> list[Mistake]:
    """The mistakes in the findings of searches."""
    searches = {(search.key, search.dataset): search for search in tuning.searches.values()}
    keys = [key for key, _ in searches]
    mistakes: list[Mistake] = []
    for key, datasets in content.items():
        for dataset, finding in datasets.items():
            search = searches.get((key, dataset))
            if search is None:
                at = (key, dataset) if key in keys else (key,)
                text = f"no search for {key} on {dataset} is declared. Declare it in the file of searches."
                mistakes.append(Mistake(at, text + did_you_mean(key, keys)))
            else:
                mistakes += _finding_mistakes((key, dataset), search, finding, methods)
                mistakes += _way_mistakes((key, dataset), search, content, tuning)
    return mistakes


def _finding_mistakes(
    key: KeyPath, search: Search, finding: Mapping[str, Any], methods: Methods
) -> Iterator[Mistake]:
    """A finding is of searched settings, and its trials are like the runs that have it."""
    ranges = [one.setting for one in search.ranges]
    for setting in finding["settings"]:
        if setting not in ranges:
            text = f"the search {search.key} does not search it. Remove it."
            yield Mistake((*key, "settings", setting), text)
    values = fixed_settings(search, methods)
    for setting, value in finding["held"].items():
        if setting not in values or values[setting] != value:
            current = setting_text(values[setting]) if setting in values else "searched, or missing"
            name = search.key.partition("@")[0]
            other = (
                f" To try {current}, undo this, and train {name}[{setting}={current}]."
                if setting in values
                else ""
            )
            yield Mistake(
                (*key, "held", setting),
                f"it was searched with {setting} = {setting_text(value)}, which is {current} in reported "
                f"runs. Remove the entry, and search again.{other}",
            )


def _way_mistakes(
    key: KeyPath, search: Search, content: Mapping[str, Any], tuning: Tuning
) -> Iterator[Mistake]:
    """Findings for several ways of a method can be compared."""
    finding = content[search.key][search.dataset]
    others = (way for way in tuning.ways_of(search) if way != search)
    other = next((way.key for way in others if search.dataset in content.get(way.key, ())), None)
    if other is not None and finding.get("validation") is None:
        yield Mistake(
            key,
            f"it has no 'validation', which is needed to compare it with {other}, another variant of "
            f"{search.name}. Remove the entry, and adopt the search again.",
        )


def _searches(document: Document, key: str, methods: Methods) -> Iterator[Search]:
    """A search for each of its datasets."""
    content, at = document.content["searches"][key], ("searches", key)
    source = _source_of(document, key)
    name, _, paper = key.rpartition("@")
    with error_at(document.location(at)):
        known = settings_in(entries_of(methods, parse(name)))
        method = canonical(methods, name)
    refuse(document, list(_name_mistakes(at, name, method, paper, content["settings"])))
    for setting in content["settings"]:
        if setting not in known:
            raise ConfigurationError(
                f"{document.location((*at, 'settings', setting))}: {name} has no setting '{setting}'."
                f"{setting_meant(setting, known)} It has: {', '.join(known)}."
            )
    refuse(document, list(_start_mistakes(at, content, known)))
    exact = content.get("validation") == "exact"
    for dataset in content.get("datasets", document.content["datasets"]):
        whose = None if paper == SHARED_PROTOCOL else paper
        values, sources, whose = resolve(methods.unsearched, method, whose, dataset)
        mistakes = [
            mistake
            for setting, entry in content["settings"].items()
            for mistake in range_mistakes(
                (*at, "settings", setting), entry, known[setting], paper, values[setting], sources[setting]
            )
        ]
        refuse(document, mistakes)
        ranges = tuple(
            range_of(setting, entry, known[setting], values[setting])
            for setting, entry in content["settings"].items()
        )
        finding = None if source in (None, dataset) else _finding(methods, method, paper, source)
        stated = content.get("starts", ())
        starts = tuple(
            tuple(setting_text(start[one.setting]) if one.setting in start else one.was for one in ranges)
            for start in (stated if finding is None else (finding.settings, *stated))
        )
        backbone = content.get("backbone")
        yield Search(key, method, whose, dataset, content["because"], ranges, starts, exact, backbone)


def _source_of(document: Document, key: str) -> str | None:
    """The dataset whose finding a search starts from on all others; None where it does not."""
    shared = key.endswith(f"@{SHARED_PROTOCOL}")
    return document.content["transfer"]["source"] if shared and "transfer" in document.content else None


def _name_mistakes(
    at: KeyPath, name: str, method: str, paper: str, searched: Collection[str]
) -> Iterator[Mistake]:
    """A search whose name has settings is spelt as its runs are, belongs to no paper, and searches others."""
    changed = dict(parse(name).changes)
    if name != method:
        yield Mistake(at, f"write {method}@{paper}, as in the names of runs.")
    if changed and paper != SHARED_PROTOCOL:
        yield Mistake(
            at, f"only a search under {SHARED_PROTOCOL} may have settings in its name. Remove them."
        )
    if LENGTH in changed:
        yield Mistake(at, f"'{LENGTH}' sets the length of a trial. Remove it from the name.")
    for setting in changed.keys() & searched:
        text = f"{name} sets it already: {changed[setting]}. Remove it here, or from the name."
        yield Mistake((*at, "settings", setting), text)


def _start_mistakes(
    at: KeyPath, content: Mapping[str, Any], known: Mapping[str, Setting]
) -> Iterator[Mistake]:
    """Starts have searched settings, each with a value that the setting may have."""
    searched = content["settings"]
    for index, start in enumerate(content.get("starts", ())):
        for setting, value in start.items():
            key = (*at, "starts", index, setting)
            if setting not in searched:
                text = f"it is not searched.{did_you_mean(setting, list(searched))} Remove it."
                yield Mistake(key, f"{text} Searched settings: {', '.join(searched)}.")
            elif not known[setting].allows(value):
                yield Mistake(key, known[setting].refusal(value))


def _backbone_mistakes(searches: Mapping[str, Search]) -> Iterator[Mistake]:
    """A backbone needs a search on the same dataset, so that both are tuned by one rule."""
    alike = {
        (search.name, search.dataset) for search in searches.values() if search.protocol == SHARED_PROTOCOL
    }
    for search in searches.values():
        if search.backbone is None:
            continue
        if search.protocol != SHARED_PROTOCOL or (search.backbone, search.dataset) not in alike:
            wanted = f"{search.backbone}@{SHARED_PROTOCOL}"
            text = f"there is no search {wanted} on {search.dataset}. Add one, or remove the backbone."
            yield Mistake(("searches", search.key, "backbone"), text)


def _ways_mistakes(tuning: Tuning) -> Iterator[Mistake]:
    """The ways of a method are compared by one number, and build on one method."""
    for search in tuning.under_shared_protocol:
        first = tuning.ways_of(search)[0]
        for name, own, other in (
            ("validation", search.exact, first.exact),
            ("backbone", search.backbone, first.backbone),
        ):
            if own != other:
                text = (
                    f"its '{name}' differs from {first.key}, another variant of {search.name}. Write the "
                    "same value."
                )
                yield Mistake(("searches", search.key), text)


def _budget_mistakes(tuning: Tuning) -> Iterator[Mistake]:
    """All starts of a search are among its trials."""
    for search in tuning.searches.values():
        trials = tuning.trials_of(search)
        points = {tuple(range_.was for range_ in search.ranges), *search.starts}
        if len(points) > trials:
            text = f"with the starting values these are {len(points)} points, for {trials} trials."
            yield Mistake(("searches", search.key, "starts"), f"{text} Remove some.")


def range_mistakes(
    key: KeyPath, entry: Mapping[str, Any], setting: Setting, paper: str, value: object, source: str
) -> Iterator[Mistake]:
    """A setting that may be searched, and a range of values that it may have."""
    if key[-1] == LENGTH:
        yield Mistake(
            key, "is the length of a trial, which is each paper's own and is not searched. Remove it."
        )
        return
    if source == STATED and entry.get("from") != STATED and paper != SHARED_PROTOCOL:
        yield Mistake(
            key,
            f"{paper} states {key[-1]} = {setting_text(value)}. Settings that a paper states are not "
            "searched. Remove it; or write from: paper, if the paper states this range.",
        )
        return
    kinds = [kind for kind in RANGE_KINDS if kind in entry]
    if len(kinds) != 1:
        yield Mistake(key, f"give exactly one of {', '.join(RANGE_KINDS)}.")
        return
    (kind,) = kinds
    if kind == "choice":
        for index, choice in enumerate(entry["choice"]):
            if not setting.allows(choice):
                yield Mistake((*key, kind, index), setting.refusal(choice))
    else:
        yield from _bound_mistakes((*key, kind), kind, entry[kind], setting)


def _bound_mistakes(
    key: KeyPath, kind: RangeKind, bounds: list[float], setting: Setting
) -> Iterator[Mistake]:
    low, high = bounds
    if setting.type not in ("integer", "number"):
        yield Mistake(
            key, f"is for numbers only, and this setting is {setting.allowed_values}. Write choice: [...]."
        )
    elif not low < high:
        yield Mistake(key, f"the lowest value, {low:g}, must be below the highest, {high:g}.")
    elif kind == "log" and low <= 0:
        yield Mistake(
            key, f"a range of type log must start above 0, not at {low:g}. Raise it, or write linear."
        )
    else:
        yield from (Mistake(key, setting.refusal(bound)) for bound in bounds if not setting.allows(bound))


def range_of(name: str, entry: Mapping[str, Any], setting: Setting, was: object) -> Range:
    """The range that a right entry describes; `was` is the value without the search."""
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
            f"{document.location(('halving', 'rounds'))}: write the rounds in increasing order."
        )
    return Halving(rounds, content["keep"])
