"""The settings of a run, from `config/methods.yaml` (by method, paper and dataset) and from the user.

Unknown, misspelt and impossible settings are errors.

A method is named by its composition (see `fedrec.config.names`). In the file, a key with `+` is a plug-in.
Its settings are added to those of the backbone, or replace them. `composed` has the values that differ with
one backbone under one paper (`fedmf@plgc`). Values that differ under a paper are part of the setting. As
text, a value is a number, a choice, a text, the path of a file, `true` or `false`, `null`, or integers joined
by `x` (`layers=32x16x8`, `layers=none`).

The findings of searches are in `config/found.yaml` and take precedence; the finding of a plug-in with a
backbone overrides that of the backbone. A dataset without a search uses the finding on MovieLens 100K, unless
`config/methods.yaml` has a value for that dataset.

An entry may include settings of another entry by a YAML anchor. In runs of a paper that the other entry
names, such a setting keeps its source, since papers state common settings for all methods. In other runs the
source is `taken from fedmf`, except for the source `ours`.
"""

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Self, TypeVar

from fedrec.config.default_files import file_or_default
from fedrec.config.document import read
from fedrec.config.found_file import with_findings
from fedrec.config.method_entries import (
    COMMON_DATASET,
    OURS,
    SEARCHED,
    Finding,
    MethodEntry,
    Setting,
    setting_meant,
)
from fedrec.config.method_file import read_entries
from fedrec.config.modules import file_of, method_names, plugin_names
from fedrec.config.names import Composition, parse, parse_change
from fedrec.config.protocol import OWN
from fedrec.errors import ConfigurationError, did_you_mean

Settings = dict[str, Any]
_READERS: Mapping[str, Callable[[str], object]] = {
    "integer": int,
    "number": float,
    "choice": str,
    "text": str,
    "path": str,
    "bool": lambda text: {"true": True, "false": False}[text],
    "integers": lambda text: [] if text == "none" else [int(part) for part in text.split("x")],
}
Result = TypeVar("Result")


class Methods(Mapping[str, MethodEntry]):
    """The entries of `config/methods.yaml` by name, never changed once they are read."""

    def __init__(self, entries: Mapping[str, MethodEntry]) -> None:
        self._entries = dict(entries)
        self._cache: dict[Hashable, Any] = {}

    def __getitem__(self, name: str) -> MethodEntry:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def memoised(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        """Cached result of `compute`, called once for each key: a plan asks thousands of times for a few."""
        if key not in self._cache:
            self._cache[key] = compute()
        result: Result = self._cache[key]
        return result

    @cached_property
    def unsearched(self) -> Self:
        """The same entries as if no search had found anything."""
        return type(self)({name: replace(entry, findings={}) for name, entry in self._entries.items()})


def load_methods(path: Path, found: Path | None = None) -> Methods:
    """Read and check `config/methods.yaml`; the workflow checks its schema too, which training has not.

    `found` is the file of searches' findings; None for `found.yaml` beside `path`, if it exists.
    """
    methods_file = file_or_default(path)
    searched = file_or_default(found or path.with_name("found.yaml"))
    if found is None and not searched.is_file():
        return _loaded(methods_file, None, _state(methods_file))
    return _loaded(methods_file, searched, (_state(methods_file), _state(searched)))


def _state(path: Path) -> Hashable:
    status = path.stat() if path.is_file() else None
    return status and (status.st_mtime_ns, status.st_ino, status.st_size)


@lru_cache(maxsize=1)
def _loaded(path: Path, found: Path | None, _state: Hashable) -> Methods:
    """Read once by a process that trains run after run."""
    entries = read_entries(read(path))
    return Methods(entries if found is None else with_findings(entries, read(found)))


def resolve(
    methods: Methods, name: str, paper: str | None, dataset: str, changes: Sequence[str] = ()
) -> tuple[Settings, dict[str, str], str]:
    """The value of every setting, the source of each, and the paper the run follows (`OWN` for none).

    The name's own changes win over the file, and `changes`, texts `name=value`, over both.
    """
    key = ("resolve", name, paper, dataset, *changes)
    values, sources, paper = methods.memoised(key, lambda: _resolve(methods, name, paper, dataset, changes))
    return dict(values), dict(sources), paper


def _resolve(
    methods: Methods, name: str, paper: str | None, dataset: str, changes: Sequence[str]
) -> tuple[Settings, dict[str, str], str]:
    composition = parse(name)
    entries = entries_of(methods, composition)
    paper = paper or next((entry.paper for entry in reversed(entries) if entry.paper is not None), OWN)
    settings = settings_in(entries)
    differing = _differing(entries, composition, paper, dataset)
    own_names = [entry.name for entry in entries]
    values: Settings = {}
    sources: dict[str, str] = {}
    for key, setting in settings.items():
        sourced = setting.papers.get(paper, setting.default)
        values[key], sources[key] = differing.get(key, (sourced.on(dataset), sourced.source))
        is_own = key in differing or setting.origin in own_names or sourced.source == OURS
        if not is_own and paper not in methods[setting.origin].papers_named:
            sources[key] = f"taken from {setting.origin}"
    for key, text in (*composition.changes, *map(parse_change, changes)):
        values[key] = setting_value(composition, settings, key, text)
        sources[key] = "user"
    for key, setting in settings.items():
        _check(composition, key, setting, values[key])
    return values, sources, paper


def _differing(
    entries: Sequence[MethodEntry], composition: Composition, paper: str, dataset: str
) -> dict[str, tuple[Any, str]]:
    """Values, with sources, that come before those of the settings; what a composition has comes last."""
    settings = settings_in(entries)
    fixed = {
        key
        for key, setting in settings.items()
        if dataset in setting.papers.get(paper, setting.default).datasets
    }
    differing = _finding_values(entries[0].findings.get(paper, {}), dataset, fixed)
    if composition.plugin is not None:
        combination = f"{composition.backbone}@{paper}"
        composed = entries[-1].composed.get(combination, {})
        differing |= {key: (setting.on(dataset), setting.source) for key, setting in composed.items()}
        fixed |= {key for key, setting in composed.items() if dataset in setting.datasets}
        differing |= _finding_values(entries[-1].findings.get(combination, {}), dataset, fixed)
    return differing


def _finding_values(
    findings: Mapping[str, Finding], dataset: str, stated: Collection[str]
) -> dict[str, tuple[Any, str]]:
    """The finding on a dataset; else on the common one, but for what is `stated` of the dataset."""
    if dataset in findings:
        finding = findings[dataset]
        return {
            key: (value, f"{SEARCHED}, {finding.trials} trials") for key, value in finding.settings.items()
        }
    if COMMON_DATASET not in findings:
        return {}
    common = findings[COMMON_DATASET]
    source = f"{SEARCHED} on {COMMON_DATASET}, {common.trials} trials"
    return {key: (value, source) for key, value in common.settings.items() if key not in stated}


def canonical(methods: Methods, name: str) -> str:
    """The one spelling of a composition: settings sorted, values as short as they read back equal.

    A change to what is the default anyway stays: the default may differ by paper and dataset.
    """
    return methods.memoised(("canonical", name), lambda: _canonical(methods, name))


def _canonical(methods: Methods, name: str) -> str:
    composition = parse(name)
    settings = settings_in(entries_of(methods, composition))
    changes = []
    for key, text in sorted(composition.changes):
        spelled = _spelled(composition, settings, key, text)
        if settings[key].type == "path":
            raise ConfigurationError(
                f"{name}: the value of '{key}' is a path, which cannot be part of a name. Give it as --set "
                f"{key}=..., or as the value of the entry."
            )
        changes.append((key, spelled))
    return str(replace(composition, changes=tuple(changes)))


def with_settings(methods: Methods, name: str, changes: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """The canonical name of a method with more settings changed, and the changes that no name may have.

    Those are of settings that name a file, as texts `name=value`. `ConfigurationError` refuses a change that
    contradicts the name.
    """
    composition = parse(canonical(methods, name))
    settings = settings_in(entries_of(methods, composition))
    changed = {key: _spelled(composition, settings, key, text) for key, text in changes.items()}
    stated = dict(composition.changes)
    for key, text in changed.items():
        if stated.get(key, text) != text:
            raise ConfigurationError(
                f"{name} sets {key}={stated[key]}, and {key}={text} is set again. Set it once."
            )
    files = {key: text for key, text in changed.items() if settings[key].type == "path"}
    named = {key: text for key, text in changed.items() if key not in files}
    spelling = canonical(methods, str(composition.with_changes(named)))
    return spelling, tuple(f"{key}={text}" for key, text in files.items())


def canonical_all(methods: Methods, names: Iterable[str]) -> list[str]:
    """The canonical spelling of each name; two names of one run are refused."""
    spelt: dict[str, str] = {}
    for name in names:
        spelling = canonical(methods, name)
        if spelling in spelt:
            raise ConfigurationError(f"'{spelt[spelling]}' and '{name}' are both {spelling}. Keep one.")
        spelt[spelling] = name
    return list(spelt)


def title(methods: Methods, name: str, leave_out: Sequence[str] = ()) -> str:
    """The name in tables: titles of the parts, then the settings changed, but for those to leave out."""
    composition = parse(canonical(methods, name))
    titles = (entry.title for entry in entries_of(methods, composition))
    changes = tuple(change for change in composition.changes if change[0] not in leave_out)
    return str(Composition("+".join(titles), changes=changes))


def entries_of(methods: Methods, composition: Composition) -> list[MethodEntry]:
    """The entries of the backbone and, if there is a plug-in that supports it, of the plug-in."""
    backbone, plugin = composition.backbone, composition.plugin
    known = [key for key in methods if not key.startswith("+")]
    if backbone not in known:
        if backbone in method_names():
            raise ConfigurationError(without_entry(backbone))
        hint = (
            f" It is a plug-in; write BACKBONE+{backbone}, for example fedmf+{backbone}."
            if f"+{backbone}" in methods
            else ""
        )
        raise ConfigurationError(
            f"unknown method '{backbone}'.{hint or did_you_mean(backbone, known)} Known methods: "
            f"{', '.join(known)}."
        )
    if plugin is None:
        return [methods[backbone]]
    plugins = [key.removeprefix("+") for key in methods if key.startswith("+")]
    if plugin not in plugins:
        if plugin in plugin_names():
            raise ConfigurationError(without_entry(f"+{plugin}"))
        raise ConfigurationError(
            f"unknown plug-in '{plugin}'.{did_you_mean(plugin, plugins)} Known plug-ins: "
            f"{', '.join(plugins) or 'none'}."
        )
    entry = methods[f"+{plugin}"]
    if backbone not in entry.backbones:
        reason = entry.refused.get(backbone, "its entry does not declare how it applies there")
        raise ConfigurationError(
            f"{plugin} does not support {backbone}: {reason}. It supports: {', '.join(entry.backbones)}."
        )
    return [methods[backbone], entry]


def without_entry(key: str) -> str:
    """Says that there is a file for a method, or for a plug-in (`+name`), but no entry."""
    package = "plugins" if key.startswith("+") else "methods"
    file = file_of(package, key.removeprefix("+"))
    return (
        f"'{key}' has a file, {file}, but no entry in config/methods.yaml. Add an entry there: `{key}:` "
        "with title and settings."
    )


def settings_in(entries: Sequence[MethodEntry]) -> dict[str, Setting]:
    """The settings of entries by name; those of a later one take the place of an earlier one's."""
    return {key: setting for entry in entries for key, setting in entry.settings.items()}


def setting_value(composition: Composition, settings: Mapping[str, Setting], key: str, text: str) -> object:
    """The value that a text stands for, by the type of the setting."""
    name = composition.name
    if key not in settings:
        raise ConfigurationError(
            f"{name} has no setting '{key}'.{setting_meant(key, settings)} It has: {', '.join(settings)}."
        )
    setting = settings[key]
    if setting.nullable and text in ("null", "none"):
        return None
    try:
        return _READERS[setting.type](text)
    except (ValueError, KeyError):
        raise ConfigurationError(
            f"{name}: {key}={text} is not of type {setting.type}: {setting.meaning}; "
            f"{setting.allowed_values}."
        ) from None


def setting_text(value: object) -> str:
    """The shortest text that `--set` and brackets read as `value`: `32x16`, `none`, `null`, `0.1`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "x".join(map(str, value)) or "none"
    if isinstance(value, float):
        # Adding zero makes -0.0 the 0.0 it equals. 1.0 is spelt 1, 1e-05 1e-5 and 1e+20 1e20.
        return re.sub(r"e\+?(-?)0*", r"e\1", repr(value + 0.0).removesuffix(".0"))
    return str(value)


def _spelled(composition: Composition, settings: Mapping[str, Setting], key: str, text: str) -> str:
    """The value of a setting as short as it reads back equal, once it is one that the setting may have."""
    value = setting_value(composition, settings, key, text)
    _check(composition, key, settings[key], value)
    return setting_text(value)


def _check(composition: Composition, key: str, setting: Setting, value: object) -> None:
    if not setting.allows(value):
        raise ConfigurationError(
            f"{composition.name}: {key}={value} is not allowed: {setting.meaning}; {setting.allowed_values}."
        )
