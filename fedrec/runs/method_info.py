"""Information on every method and plug-in, read from its own file."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fedrec.config.method_entries import MethodEntry
from fedrec.config.methods import Methods, resolve, setting_text, without_entry
from fedrec.config.modules import method_names, modules_of, plugin_names
from fedrec.config.names import Composition
from fedrec.config.protocol import OWN
from fedrec.errors import ConfigurationError, did_you_mean
from fedrec.federation.model.citation import Citation
from fedrec.federation.model.client import Upload
from fedrec.federation.model.method import Method
from fedrec.federation.model.parameters import Parameter
from fedrec.federation.program import trace
from fedrec.runs.method_kinds import ITEMS, kind_of_method
from fedrec.runs.registry import loaded, make_method

_REFERENCE = "reference method of this project"
_NO_PAPER = "no paper"
_BROKEN = "broken"


@dataclass(frozen=True)
class MethodInfo:
    """A method or plug-in in a few words."""

    name: str
    line: str
    citation: str
    kind: str
    """reference, centralised, federated, personalised or plug-in."""
    locations: dict[str, list[str]]
    """Where its parameters live: their names by location."""
    uploads: list[str]
    backbones: list[str]


def all_methods(methods: Methods) -> list[MethodInfo]:
    """Every method and plug-in, given `config/methods.yaml`; a broken one has a card that says why."""
    entries = [key.removeprefix("+") for key in methods]
    own = dict.fromkeys((*method_names(), *(name for name in entries if name in methods)))
    plugins = dict.fromkeys((*plugin_names(), *(name for name in entries if f"+{name}" in methods)))
    return [_card(_method, methods, name, name) for name in own] + [
        _card(_plugin, methods, name, f"+{name}") for name in plugins
    ]


def format_methods(shown: Sequence[MethodInfo]) -> str:
    """The cards as text, a few lines each."""
    return "\n\n".join(map(_text, shown))


def format_method(methods: Methods, name: str) -> str:
    """The card of one method or plug-in as text, and every setting of its entry: value, source, meaning."""
    known = [*method_names(), *(f"+{plugin}" for plugin in plugin_names())]
    name = f"+{name}" if f"+{name}" in known else name
    if name not in known:
        raise ConfigurationError(
            f"unknown method or plug-in '{name}'.{did_you_mean(name, known)} `fedrec methods` lists them."
        )
    card = _plugin(methods, name[1:]) if name.startswith("+") else _method(methods, name)
    composed = f"{card.backbones[0]}{name}" if card.backbones else name
    values, sources, paper = resolve(methods, composed, None, "any")
    entry = methods[name]
    lines = [line for key in entry.settings for line in _setting(entry, key, values[key], sources[key])]
    whose = "no paper" if paper == OWN else f"paper {paper}"
    for place, specials in entry.composed.items():
        told = (f"{key} = {setting_text(one.value)} ({one.source})" for key, one in specials.items())
        lines.append(f"        with {place.replace('@', ' under ')}: {', '.join(told)}")
    lines += _found(entry)
    return "\n".join([_text(card), f"    settings, {whose}:", *lines])


def _found(entry: MethodEntry) -> Iterator[str]:
    """The findings of searches, a line each."""
    for place, datasets in entry.found.items():
        where = f"with {place.replace('@', ' under ')}" if "@" in place else f"under {place}"
        for dataset, one in datasets.items():
            told = ", ".join(f"{key} = {setting_text(value)}" for key, value in one.settings.items())
            yield f"        found {where} on {dataset} ({one.trials} trials): {told}"


def _setting(entry: MethodEntry, key: str, value: object, source: str) -> list[str]:
    """What a setting of an entry is, and what it is in papers in which it differs."""
    setting = entry.settings[key]
    others = {**setting.papers, "in others": setting.default}
    differing = [
        f"{paper} {setting_text(other.value)} ({other.source})"
        for paper, other in others.items()
        if other.value != value
    ]
    return [
        f"        {key} = {setting_text(value)} ({source}): {setting.meaning}; {setting.allowed_values}",
        *([f"            elsewhere: {', '.join(differing)}"] if differing else []),
    ]


def _text(card: MethodInfo) -> str:
    where = "; ".join(f"{location} {', '.join(names)}" for location, names in card.locations.items())
    lines = [f"{card.name} ({card.kind})", f"    {card.line}", f"    {card.citation}"]
    if card.backbones:
        lines.append(f"    supports: {', '.join(card.backbones)}")
    if card.kind == _BROKEN:
        return "\n".join(lines)
    lines.append(f"    parameters: {where or 'none'}")
    lines.append(f"    uploads: {', '.join(card.uploads) or 'nothing'}")
    return "\n".join(lines)


def _card(made: Callable[[Methods, str], MethodInfo], methods: Methods, name: str, key: str) -> MethodInfo:
    """The card of a method or plug-in, or of what is wrong with it: the others can be used all the same."""
    try:
        return made(methods, name)
    except ConfigurationError as error:
        return MethodInfo(
            key, str(error), "broken: it cannot be used until its file is corrected", _BROKEN, {}, [], []
        )


def _method(methods: Methods, name: str) -> MethodInfo:
    module = loaded(modules_of(name)[0], "METHOD")
    entry = methods.get(name)
    line, is_reference = _line(module.__doc__), entry is not None and entry.reference is not None
    citation = _REFERENCE if is_reference else _cited(module.METHOD.paper)
    method = _made(methods, name)
    if method is not None:
        kind, locations = (
            "reference" if is_reference else kind_of_method(method),
            _locations(method.parameters()),
        )
        return MethodInfo(name, line, citation, kind, locations, _sent(method), [])
    if is_reference:
        return MethodInfo(
            name, line, citation, "reference", {}, list(getattr(module.METHOD, "sends", ())), []
        )
    return MethodInfo(name, line, citation, "centralised", {"server": ["everything"]}, ["training rows"], [])


def _plugin(methods: Methods, name: str) -> MethodInfo:
    entry = methods.get(f"+{name}")
    if entry is None:
        raise ConfigurationError(without_entry(f"+{name}"))
    backbones = list(entry.backbones)
    composed = str(Composition(backbones[0], name))
    module = loaded(modules_of(composed)[1], "PLUGIN")
    method = _made(methods, composed)
    assert method is not None, "plug-ins support federated methods only"
    return MethodInfo(
        f"+{name}", _line(module.__doc__), _cited(module.PLUGIN.paper), f"plug-in; shown here as {composed}",
        _locations(method.parameters()), _sent(method), backbones,
    )  # fmt: skip


def _made(methods: Methods, name: str) -> Method | None:
    return make_method(name, resolve(methods, name, None, "any")[0], ITEMS)


def _line(text: str | None) -> str:
    """What the first paragraph of a docstring says behind the name, on one line."""
    return " ".join((text or "").split("\n\n")[0].split()).partition(": ")[2]


def _cited(paper: Citation | None) -> str:
    return _NO_PAPER if paper is None else str(paper)


def _locations(parameters: Mapping[str, Parameter]) -> dict[str, list[str]]:
    locations: dict[str, list[str]] = {}
    for name, part in parameters.items():
        names = locations.setdefault(part.location, [])
        # The layers of a perceptron are one thing.
        if (short := name.partition(".")[0]) not in names:
            names.append(short)
    return locations


def _sent(method: Method) -> list[str]:
    """What a client uploads in its first round."""
    uploads = [operation for operation in trace(method, 1) if isinstance(operation, Upload)]
    return list(dict.fromkeys(map(_named, uploads)))


def _named(upload: Upload) -> str:
    if upload.transform is not None:
        return f"{upload.transform.label} of {upload.name}"
    return upload.name.partition(".")[0]
