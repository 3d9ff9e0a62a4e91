"""The settings of a run: what `config/methods.yaml` gives for the method, the paper and the dataset,
and what the user sets. Unknown, misspelt and impossible settings are refused.

A method is named by its composition (see `fedrec.config.names`). In the file a key with `+` describes a
plug-in: its settings join those of the backbone, or take their place, and `composed` holds what differs with
one backbone under one paper (`fedmf@plgc`). What differs under a paper stands with the setting, or in the
entry's own `papers`, which come first: the setting may be another entry's. A value given as text is a number,
a choice, `null`, or integers joined by `x` (`layers=32x16x8`, `layers=none`).

The source of a value speaks of the papers that its entry names. What an entry takes over from another by a
YAML anchor keeps its source in runs that follow one of those papers, since papers state common settings for
all they compare; in any other run the source reads `taken from fedmf`, unless it was `ours` anyway.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from fedrec.config.document import read
from fedrec.config.method_entries import allowed_values, check_entries, is_allowed
from fedrec.config.modules import file_of, method_names, plugin_names
from fedrec.config.names import Composition, parse, parse_change
from fedrec.config.protocol import OWN
from fedrec.errors import ConfigurationError, did_you_mean

Settings = dict[str, Any]
OURS = "ours"
"""The source of a value that no paper and no code states."""
_READERS: Mapping[str, Callable[[str], object]] = {
    "integer": int,
    "number": float,
    "choice": str,
    "integers": lambda text: [] if text == "none" else [int(part) for part in text.split("x")],
}


Answer = TypeVar("Answer")


class Methods(dict[str, Any]):
    """The content of `config/methods.yaml`, never changed once it is read.

    `answers` caches what is worked out from it: a plan asks thousands of times for a few hundred answers.
    """

    def __init__(self, content: Mapping[str, Any]) -> None:
        super().__init__(content)
        self.answers: dict[Hashable, Any] = {}


def remembered(methods: Mapping[str, Any], question: Hashable, ask: Callable[[], Answer]) -> Answer:
    """Cached result of `ask`, which is called once for each question about the same `Methods`."""
    if not isinstance(methods, Methods):
        return ask()
    if question not in methods.answers:
        methods.answers[question] = ask()
    answer: Answer = methods.answers[question]
    return answer


def load_methods(path: Path) -> Methods:
    """Read and check `config/methods.yaml`; the workflow checks its schema too, which training has not."""
    status = path.stat() if path.is_file() else None
    return _loaded(path, status and (status.st_mtime_ns, status.st_ino, status.st_size))


@lru_cache(maxsize=1)
def _loaded(path: Path, _state: Hashable) -> Methods:
    """Read once by a process that trains run after run."""
    document = read(path)
    check_entries(document)
    return Methods(document.content)


def resolve(
    methods: Mapping[str, Any], name: str, paper: str | None, dataset: str, changes: Sequence[str] = ()
) -> tuple[Settings, dict[str, str], str]:
    """The value of every setting, the source of each, and the paper the run follows (`OWN` for none).

    The name's own changes win over the file, and `changes`, texts `name=value`, over both.
    """
    question = ("resolve", name, paper, dataset, *changes)
    values, sources, paper = remembered(
        methods, question, lambda: _resolve(methods, name, paper, dataset, changes)
    )
    return dict(values), dict(sources), paper


def _resolve(
    methods: Mapping[str, Any], name: str, paper: str | None, dataset: str, changes: Sequence[str]
) -> tuple[Settings, dict[str, str], str]:
    composition = parse(name)
    entries = entries_of(methods, composition)
    paper = paper or next((entry["paper"] for entry in reversed(entries) if "paper" in entry), OWN)
    settings = settings_in(entries)
    specials = _specials(entries, composition, paper)
    origins = remembered(methods, "origins", lambda: _origins(methods))
    values: Settings = {}
    sources: dict[str, str] = {}
    for key, setting in settings.items():
        special = specials.get(key) or setting.get("papers", {}).get(paper, setting)
        values[key] = special.get("datasets", {}).get(dataset, special["value"])
        origin = origins[id(setting)]
        written_here = key in specials or any(methods[origin] is entry for entry in entries)
        own = special["source"] == OURS or written_here
        stated = own or paper in _papers_of(methods, origin)
        sources[key] = source_text(special) if stated else f"taken from {origin}"
    for key, text in (*composition.changes, *map(parse_change, changes)):
        values[key] = _read(composition, settings, key, text)
        sources[key] = "user"
    for key, setting in settings.items():
        _check(composition, key, setting, values[key])
    return values, sources, paper


def _specials(
    entries: Sequence[Mapping[str, Any]], composition: Composition, paper: str
) -> dict[str, Mapping[str, Any]]:
    """What the entries say of settings under a paper; what they say of both together comes first."""
    apart = (entry.get("papers", {}).get(paper, {}) for entry in entries)
    together = entries[-1].get("composed", {}).get(f"{composition.backbone}@{paper}", {})
    return {key: special for part in (*apart, together) for key, special in part.items()}


def source_text(special: Mapping[str, Any]) -> str:
    """Where a value comes from, in words; of one that was searched, in how many trials."""
    trials = special.get("trials")
    return special["source"] if trials is None else f"{special['source']}, {trials} trials"


def _papers_of(methods: Mapping[str, Any], name: str) -> list[str]:
    return remembered(methods, ("papers", name), lambda: papers_named(methods[name]))


def papers_named(entry: Mapping[str, Any]) -> list[str]:
    """The papers that an entry speaks of: its own, and those in which a setting differs."""
    own = [entry["paper"]] if "paper" in entry else []
    differing = (paper for setting in entry["settings"].values() for paper in setting.get("papers", ()))
    return list(dict.fromkeys((*own, *differing, *entry.get("papers", ()))))


def _origins(methods: Mapping[str, Any]) -> dict[int, str]:
    """The entry that each setting is written in, by the setting's identity: an anchor copies nothing."""
    origins: dict[int, str] = {}
    for name, entry in methods.items():
        for setting in entry["settings"].values():
            origins.setdefault(id(setting), name)
    return origins


def canonical(methods: Mapping[str, Any], name: str) -> str:
    """The one spelling of a composition: settings sorted, values as short as they read back equal.

    A change to what is the default anyway stays: the default may differ by paper and dataset.
    """
    return remembered(methods, ("canonical", name), lambda: _canonical(methods, name))


def _canonical(methods: Mapping[str, Any], name: str) -> str:
    composition = parse(name)
    settings = settings_in(entries_of(methods, composition))
    changes = []
    for key, text in sorted(composition.changes):
        value = _read(composition, settings, key, text)
        _check(composition, key, settings[key], value)
        changes.append((key, setting_text(value)))
    return str(replace(composition, changes=tuple(changes)))


def canonical_all(methods: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """The canonical spelling of each name; two names of one run are refused."""
    spelt: dict[str, str] = {}
    for name in names:
        spelling = canonical(methods, name)
        if spelling in spelt:
            raise ConfigurationError(f"'{spelt[spelling]}' and '{name}' are both {spelling}. Keep one.")
        spelt[spelling] = name
    return list(spelt)


def title(methods: Mapping[str, Any], name: str, leave_out: Sequence[str] = ()) -> str:
    """The name in tables: titles of the parts, then the settings changed, but for those to leave out."""
    composition = parse(canonical(methods, name))
    titles = (entry["title"] for entry in entries_of(methods, composition))
    changes = tuple(change for change in composition.changes if change[0] not in leave_out)
    return str(Composition("+".join(titles), changes=changes))


def entries_of(methods: Mapping[str, Any], composition: Composition) -> list[Mapping[str, Any]]:
    """The file's entry of the backbone and, where there is a plug-in that goes with it, the plug-in's."""
    backbone, plugin = composition.backbone, composition.plugin
    known = [key for key in methods if not key.startswith("+")]
    if backbone not in known:
        if backbone in method_names():
            raise ConfigurationError(without_entry(backbone))
        hint = f" It is a plug-in; write backbone+{backbone}." if f"+{backbone}" in methods else ""
        raise ConfigurationError(
            f"unknown method '{backbone}'.{hint or did_you_mean(backbone, known)} Known: {', '.join(known)}."
        )
    if plugin is None:
        return [methods[backbone]]
    plugins = [key.removeprefix("+") for key in methods if key.startswith("+")]
    if plugin not in plugins:
        if plugin in plugin_names():
            raise ConfigurationError(without_entry(f"+{plugin}"))
        raise ConfigurationError(
            f"unknown plug-in '{plugin}'.{did_you_mean(plugin, plugins)} "
            f"Known: {', '.join(plugins) or 'none'}."
        )
    entry = methods[f"+{plugin}"]
    if backbone not in entry["backbones"]:
        reason = entry.get("refused", {}).get(backbone, "its entry does not say how it would apply there")
        raise ConfigurationError(
            f"{plugin} does not go with {backbone}: {reason}. It goes with: {', '.join(entry['backbones'])}."
        )
    return [methods[backbone], entry]


def without_entry(key: str) -> str:
    """Says that there is a file for a method, or for a plug-in (`+name`), but no entry."""
    package = "plugins" if key.startswith("+") else "methods"
    file = file_of(package, key.removeprefix("+"))
    return (
        f"'{key}' has a file, {file}, but no entry in config/methods.yaml. Add one there: `{key}:` with "
        "title and settings."
    )


def settings_in(entries: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The settings of entries by name; those of a later one take the place of an earlier one's."""
    return {key: setting for entry in entries for key, setting in entry["settings"].items()}


def _read(composition: Composition, settings: Mapping[str, Any], key: str, text: str) -> object:
    name = composition.name
    if key not in settings:
        raise ConfigurationError(
            f"{name} has no setting '{key}'.{did_you_mean(key, settings)} It has: {', '.join(settings)}."
        )
    setting = settings[key]
    if setting.get("nullable") and text in ("null", "none"):
        return None
    try:
        return _READERS[setting["type"]](text)
    except ValueError:
        raise ConfigurationError(
            f"{name}: {key}={text} is no {setting['type']}: {setting['meaning']}; {allowed_values(setting)}."
        ) from None


def setting_text(value: object) -> str:
    """The shortest text that `--set` and brackets read as `value`: `32x16`, `none`, `null`, `0.1`."""
    if value is None:
        return "null"
    if isinstance(value, list | tuple):
        return "x".join(map(str, value)) or "none"
    if isinstance(value, float):
        # Adding zero makes -0.0 the 0.0 it equals. 1.0 is spelt 1, 1e-05 1e-5 and 1e+20 1e20.
        return re.sub(r"e\+?(-?)0*", r"e\1", repr(value + 0.0).removesuffix(".0"))
    return str(value)


def _check(composition: Composition, key: str, setting: Mapping[str, Any], value: object) -> None:
    if not is_allowed(setting, value):
        raise ConfigurationError(
            f"{composition.name}: {key}={value} is not allowed: {setting['meaning']}; "
            f"{allowed_values(setting)}."
        )
