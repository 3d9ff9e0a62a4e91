"""What there is to train: every method and plug-in, as its own file describes it."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedrec.config.methods import resolve
from fedrec.config.modules import method_names, modules_of, plugin_names
from fedrec.config.names import Composition
from fedrec.federation.model.citation import Citation
from fedrec.federation.model.method import Method
from fedrec.federation.model.parameters import Parameter
from fedrec.federation.program import Upload, trace
from fedrec.runs.kinds import ITEMS, kind_of_method
from fedrec.runs.registry import make_method

_OURS = "a reference of this project"


@dataclass(frozen=True)
class Card:
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


def cards(methods: Mapping[str, Any]) -> list[Card]:
    """Every method and plug-in, given `config/methods.yaml`."""
    return [_method(methods, name) for name in method_names()] + [
        _plugin(methods, name) for name in plugin_names()
    ]


def listed(shown: Sequence[Card]) -> str:
    """The cards as text, a few lines each."""
    return "\n\n".join(map(_text, shown))


def _text(card: Card) -> str:
    where = "; ".join(f"{location} {', '.join(names)}" for location, names in card.locations.items())
    lines = [f"{card.name} ({card.kind})", f"    {card.line}", f"    {card.citation}"]
    if card.backbones:
        lines.append(f"    goes with: {', '.join(card.backbones)}")
    lines.append(f"    parameters: {where or 'none'}")
    lines.append(f"    uploads: {', '.join(card.uploads) or 'nothing'}")
    return "\n".join(lines)


def _method(methods: Mapping[str, Any], name: str) -> Card:
    module = importlib.import_module(modules_of(name)[0])
    line, paper = _line(module.__doc__), module.METHOD.paper
    citation = _cited(paper)
    method = _made(methods, name)
    if method is not None:
        kind, locations = kind_of_method(method), _locations(method.parameters())
        return Card(name, line, citation, kind, locations, _sent(method), [])
    if paper is None:
        return Card(name, line, citation, "reference", {}, list(getattr(module.METHOD, "sends", ())), [])
    return Card(name, line, citation, "centralised", {"server": ["everything"]}, ["its training rows"], [])


def _plugin(methods: Mapping[str, Any], name: str) -> Card:
    backbones = list(methods[f"+{name}"]["backbones"])
    composed = str(Composition(backbones[0], name))
    module = importlib.import_module(modules_of(composed)[1])
    method = _made(methods, composed)
    assert method is not None, "plug-ins go with federated methods"
    return Card(
        f"+{name}", _line(module.__doc__), _cited(module.PLUGIN.paper), f"plug-in; here as {composed}",
        _locations(method.parameters()), _sent(method), backbones,
    )  # fmt: skip


def _made(methods: Mapping[str, Any], name: str) -> Method | None:
    return make_method(name, resolve(methods, name, None, "any")[0], ITEMS)


def _line(text: str | None) -> str:
    """What the first paragraph of a docstring says behind the name, on one line."""
    return " ".join((text or "").split("\n\n")[0].split()).partition(": ")[2]


def _cited(paper: Citation | None) -> str:
    return _OURS if paper is None else str(paper)


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
    if upload.through is not None:
        return f"{upload.through.label} of {upload.name}"
    return upload.name.partition(".")[0]
