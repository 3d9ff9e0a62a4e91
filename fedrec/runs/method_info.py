"""Information on methods and plug-ins, read from their files and entries."""

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
    """The names of its parameters by location."""
    uploads: list[str]
    backbones: list[str]


def all_methods(methods: Methods) -> list[MethodInfo]:
    """Information on every method and plug-in of `config/methods.yaml`, or the error of a broken one."""
    entries = [key.removeprefix("+") for key in methods]
    names = dict.fromkeys((*method_names(), *(name for name in entries if name in methods)))
    plugins = dict.fromkeys((*plugin_names(), *(name for name in entries if f"+{name}" in methods)))
    return [_info_or_error(_method, methods, name, name) for name in names] + [
        _info_or_error(_plugin, methods, name, f"+{name}") for name in plugins
    ]


def format_methods(shown: Sequence[MethodInfo]) -> str:
    """Methods as text, a few lines each."""
    return "\n\n".join(map(_text, shown))


def format_method(methods: Methods, name: str) -> str:
    """One method or plug-in as text, with every setting of its entry: value, source, meaning."""
    known = [*method_names(), *(f"+{plugin}" for plugin in plugin_names())]
    name = f"+{name}" if f"+{name}" in known else name
    if name not in known:
        raise ConfigurationError(
            f"unknown method or plug-in '{name}'.{did_you_mean(name, known)} `fedrec methods` lists them."
        )
    info = _plugin(methods, name[1:]) if name.startswith("+") else _method(methods, name)
    composed = f"{info.backbones[0]}{name}" if info.backbones else name
    values, sources, paper = resolve(methods, composed, None, "any")
    entry = methods[name]
    lines = [line for key in entry.settings for line in _setting(entry, key, values[key], sources[key])]
    paper_text = "no paper" if paper == OWN else f"paper {paper}"
    for combination, specials in entry.composed.items():
        texts = (
            f"{key} = {setting_text(special.value)} ({special.source})" for key, special in specials.items()
        )
        lines.append(f"        with {combination.replace('@', ' under ')}: {', '.join(texts)}")
    lines += _found(entry)
    return "\n".join([_text(info), f"    settings, {paper_text}:", *lines])


def _found(entry: MethodEntry) -> Iterator[str]:
    """The findings of searches, a line each."""
    for owner, datasets in entry.findings.items():
        where = f"with {owner.replace('@', ' under ')}" if "@" in owner else f"under {owner}"
        for dataset, finding in datasets.items():
            text = ", ".join(f"{key} = {setting_text(value)}" for key, value in finding.settings.items())
            yield f"        found {where} on {dataset} ({finding.trials} trials): {text}"


def _setting(entry: MethodEntry, key: str, value: object, source: str) -> list[str]:
    """A setting as text: its value, source and meaning, and its values in other papers."""
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


def _text(info: MethodInfo) -> str:
    locations = "; ".join(f"{location} {', '.join(names)}" for location, names in info.locations.items())
    lines = [f"{info.name} ({info.kind})", f"    {info.line}", f"    {info.citation}"]
    if info.backbones:
        lines.append(f"    supports: {', '.join(info.backbones)}")
    if info.kind == _BROKEN:
        return "\n".join(lines)
    lines.append(f"    parameters: {locations or 'none'}")
    lines.append(f"    uploads: {', '.join(info.uploads) or 'nothing'}")
    return "\n".join(lines)


def _info_or_error(
    made: Callable[[Methods, str], MethodInfo], methods: Methods, name: str, key: str
) -> MethodInfo:
    """Information on a method or plug-in, or its error: one broken file must not hide the others."""
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
    citation = _REFERENCE if is_reference else _citation_text(module.METHOD.paper)
    method = _make(methods, name)
    if method is not None:
        kind, locations = (
            "reference" if is_reference else kind_of_method(method),
            _locations(method.parameters()),
        )
        return MethodInfo(name, line, citation, kind, locations, _uploads(method), [])
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
    method = _make(methods, composed)
    assert method is not None, "plug-ins support federated methods only"
    return MethodInfo(
        f"+{name}", _line(module.__doc__), _citation_text(module.PLUGIN.paper),
        f"plug-in; shown here as {composed}", _locations(method.parameters()), _uploads(method), backbones,
    )  # fmt: skip


def _make(methods: Methods, name: str) -> Method | None:
    return make_method(name, resolve(methods, name, None, "any")[0], ITEMS)


def _line(text: str | None) -> str:
    """The first paragraph of a docstring after the name and colon, on one line."""
    return " ".join((text or "").split("\n\n")[0].split()).partition(": ")[2]


def _citation_text(paper: Citation | None) -> str:
    return _NO_PAPER if paper is None else str(paper)


def _locations(parameters: Mapping[str, Parameter]) -> dict[str, list[str]]:
    locations: dict[str, list[str]] = {}
    for name, part in parameters.items():
        names = locations.setdefault(part.location, [])
        # Name the layers of a perceptron once.
        if (short := name.partition(".")[0]) not in names:
            names.append(short)
    return locations


def _uploads(method: Method) -> list[str]:
    """The uploads of a client in its first round."""
    uploads = [operation for operation in trace(method, 1) if isinstance(operation, Upload)]
    return list(dict.fromkeys(map(_named, uploads)))


def _named(upload: Upload) -> str:
    if upload.transform is not None:
        return f"{upload.transform.label} of {upload.name}"
    return upload.name.partition(".")[0]
