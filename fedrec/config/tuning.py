"""Searches for what papers do not state: which settings, over which ranges, in how many trials.

`config/tuning.yaml` names them. A search belongs to a method and to the paper under whose protocol it is made
(`fedncf@pfedclr`). What that paper states is not searched. `fedrec.plan.trials` knows the trials.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from fedrec.config.document import Document, KeyPath, Mistake, refuse, told_at
from fedrec.config.method_entries import SEARCHED, Setting
from fedrec.config.methods import Methods, Settings, canonical, entries_of, resolve, setting_text, settings_in
from fedrec.config.names import parse
from fedrec.config.schema import load
from fedrec.errors import ConfigurationError, did_you_mean

RangeKind = Literal["log", "linear", "choice"]
RANGE_KINDS: tuple[RangeKind, ...] = ("log", "linear", "choice")
STATED = "paper"
"""The source of a value that its paper states."""
_LENGTH = "rounds"
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
    """The value before the search."""


@dataclass(frozen=True)
class Search:
    """The settings of a method that are searched under a paper's protocol, and why."""

    key: str
    """`fedncf@pfedclr`."""
    method: str
    """Spelt canonically, with the settings that every trial has instead of the paper's."""
    paper: str
    dataset: str
    because: str
    ranges: tuple[Range, ...]

    @property
    def target(self) -> str:
        """Its name among all targets: `tune_fedncf_pfedclr`."""
        return "tune_" + re.sub(r"\W|-", "_", self.key)


@dataclass(frozen=True)
class Halving:
    """When poor trials end: after each of `rounds`, of those compared only the best share goes on."""

    rounds: tuple[int, ...]
    keep: float


@dataclass(frozen=True)
class Tuning:
    """All searches, and what they have in common."""

    trials: int
    design: int
    seed: int
    halving: Halving | None
    searches: Mapping[str, Search]
    """By the name of their target."""


def load_tuning(path: Path, methods: Methods) -> Tuning:
    """Read and check the file of searches; the catalogue is not asked, nor which papers there are."""
    document = load(path, "tuning")
    content = document.content
    searches: dict[str, Search] = {}
    for key in content["searches"]:
        search = _search(document, key, methods)
        if search.target in searches:
            raise ConfigurationError(
                f"{document.place(('searches', key))}: {searches[search.target].key} and {key} would both be "
                f"{search.target}. Keep one."
            )
        searches[search.target] = search
    halving = _halving(document, searches.values(), methods) if "halving" in content else None
    return Tuning(content["trials"], content["design"], content["seed"], halving, searches)


def check_searched(document: Document, methods: Methods, tuning: Tuning) -> None:
    """Raise `ConfigurationError` where a value is marked `searched` and no search there is would find it.

    `document` holds the methods. What an entry takes over by an anchor is looked at where it is written.
    """
    found = {
        (name, search.paper, one.setting)
        for search in tuning.searches.values()
        for name in _names(search)
        for one in search.ranges
    }
    refuse(
        document,
        [
            Mistake(
                key,
                f"no search looks for {setting} of {name} under {paper}. Declare it in the file of searches, "
                "or name another source.",
            )
            for key, name, paper, setting in _marked(methods)
            if (name, paper, setting) not in found and not document.taken_over(key)
        ],
    )


def _names(search: Search) -> list[str]:
    """What a search finds values of: a method, or a plug-in and its composition with a backbone."""
    composition = parse(search.method)
    plugin = [] if composition.plugin is None else [f"+{composition.plugin}"]
    return [composition.name, *plugin]


def _marked(methods: Methods) -> Iterator[tuple[KeyPath, str, str, str]]:
    """Every value that is marked `searched`: its key, whose it is, the paper and the setting."""
    for name, entry in methods.items():
        for key, setting in entry.settings.items():
            at = (name, "settings", key)
            if setting.default.source == SEARCHED:
                yield (*at, "source"), name, entry.paper or "no paper", key
            for paper, sourced in setting.papers.items():
                if sourced.source == SEARCHED:
                    yield (*at, "papers", paper, "source"), name, paper, key
        for part, places in (("papers", entry.papers), ("composed", entry.composed)):
            for place, values in places.items():
                backbone, _, paper = place.rpartition("@")
                for key, sourced in values.items():
                    if sourced.source == SEARCHED:
                        yield (name, part, place, key, "source"), f"{backbone}{name}", paper, key


def _search(document: Document, key: str, methods: Methods) -> Search:
    content, at = document.content["searches"][key], ("searches", key)
    name, _, paper = key.rpartition("@")
    dataset: str = document.content["dataset"]
    held = content.get("held", {})
    with told_at(document.place(at)):
        known = settings_in(entries_of(methods, parse(name)))
    for setting in (*held, *content["settings"]):
        part = "held" if setting in held else "settings"
        if setting not in known:
            raise ConfigurationError(
                f"{document.place((*at, part, setting))}: {name} has no setting '{setting}'."
                f"{did_you_mean(setting, known)} It has: {', '.join(known)}."
            )
    refuse(document, list(_of_held((*at, "held"), held, known, content["settings"])))
    changes = tuple((setting, setting_text(value)) for setting, value in held.items())
    method = canonical(methods, str(replace(parse(name), changes=changes)))
    values, sources, _ = resolve(methods, method, paper, dataset)
    mistakes = [
        mistake
        for setting, entry in content["settings"].items()
        for mistake in _of_range(
            (*at, "settings", setting), entry, known[setting], paper, values[setting], sources[setting]
        )
    ]
    refuse(document, mistakes)
    ranges = tuple(_range(setting, entry, known[setting]) for setting, entry in content["settings"].items())
    return Search(key, method, paper, dataset, content["because"], ranges)


def _of_held(
    key: KeyPath, held: Settings, known: Mapping[str, Setting], searched: Mapping[str, Any]
) -> Iterator[Mistake]:
    """What is held has a value that is allowed, and is not searched at the same time."""
    for setting, value in held.items():
        if setting in searched:
            yield Mistake((*key, setting), "is searched below, too. Keep one of both.")
        elif not known[setting].allows(value):
            yield Mistake((*key, setting), known[setting].refusal(value))


def _of_range(
    key: KeyPath, entry: Mapping[str, Any], setting: Setting, paper: str, value: object, source: str
) -> Iterator[Mistake]:
    """A setting that may be searched, and a range of values that it may have."""
    if key[-1] == _LENGTH:
        yield Mistake(key, "decides how long a trial is, and is not searched: each has the paper's own.")
        return
    if source == STATED:
        yield Mistake(
            key,
            f"{paper} states it: {key[-1]} = {setting_text(value)}. What a paper states is not searched; "
            "take it out.",
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
    if not setting.allows(entry["was"]):
        yield Mistake((*key, "was"), setting.refusal(entry["was"]))


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


def _range(name: str, entry: Mapping[str, Any], setting: Setting) -> Range:
    (kind,) = (kind for kind in RANGE_KINDS if kind in entry)
    choices = tuple(setting_text(value) for value in entry.get("choice", ()))
    bounds = None if kind == "choice" else (float(entry[kind][0]), float(entry[kind][1]))
    return Range(name, kind, bounds, choices, setting.type == "integer", setting_text(entry["was"]))


def _halving(document: Document, searches: Iterable[Search], methods: Methods) -> Halving:
    """The rule by which trials end early, all of it before the last round of any search."""
    content, place = document.content["halving"], document.place(("halving", "rounds"))
    rounds = tuple(content["rounds"])
    if list(rounds) != sorted(rounds):
        raise ConfigurationError(f"{place}: write them from the first to the last.")
    for search in searches:
        own = resolve(methods, search.method, search.paper, search.dataset)[0][_LENGTH]
        if rounds[-1] >= own:
            raise ConfigurationError(
                f"{place}: trials of {search.key} have {own} rounds; compare them before that."
            )
    return Halving(rounds, content["keep"])
