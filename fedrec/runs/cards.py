"""What there is to train: every method and plug-in, as its own file describes it."""

import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedrec.config.methods import resolve
from fedrec.config.modules import method_names, modules_of, plugin_names
from fedrec.config.names import Composition
from fedrec.federation.model.method import Client, Half, Loss, Method, RowsOf, Step
from fedrec.federation.model.parameters import Parameter
from fedrec.runs.registry import make_method

_ITEMS = 8
"""Items of the model that is looked at; where its parts live does not depend on them."""
_CITATION = re.compile(r"^(?P<cited>.+?: .+? (?:19|20)\d\d)[.;]", re.DOTALL)


@dataclass(frozen=True)
class Card:
    """A method or plug-in in a few words."""

    name: str
    line: str
    citation: str
    kind: str
    """reference, centralised, federated, personalised or plug-in."""
    places: dict[str, list[str]]
    """Where its parameters live: their names by place."""
    uploads: list[str]
    backbones: list[str]


def cards(methods: Mapping[str, Any]) -> list[Card]:
    """Every method and plug-in, given `config/methods.yaml`."""
    return [_method(methods, name) for name in method_names()] + [
        _plugin(methods, name) for name in plugin_names()
    ]


def listed(found: Sequence[Card]) -> str:
    """The cards as text, a few lines each."""
    return "\n\n".join(map(_text, found))


def _text(card: Card) -> str:
    where = "; ".join(f"{place} {', '.join(names)}" for place, names in card.places.items())
    lines = [f"{card.name} ({card.kind})", f"    {card.line}", f"    {card.citation}"]
    if card.backbones:
        lines.append(f"    goes with: {', '.join(card.backbones)}")
    lines.append(f"    parameters: {where or 'none'}")
    lines.append(f"    uploads: {', '.join(card.uploads) or 'nothing'}")
    return "\n".join(lines)


def _method(methods: Mapping[str, Any], name: str) -> Card:
    module = importlib.import_module(modules_of(name)[0])
    line, second = _described(module.__doc__)
    citation = _citation(name, second)
    method = _made(methods, name)
    if method is not None:
        kind, places = _kind(method, citation), _places(method.parameters())
        return Card(name, line, citation, kind, places, _sent(method), [])
    if citation == _OURS:
        return Card(name, line, citation, "reference", {}, list(getattr(module.METHOD, "sends", ())), [])
    return Card(name, line, citation, "centralised", {"server": ["everything"]}, ["its training rows"], [])


def _plugin(methods: Mapping[str, Any], name: str) -> Card:
    backbones = list(methods[f"+{name}"]["backbones"])
    composed = str(Composition(backbones[0], name))
    module = importlib.import_module(modules_of(composed)[1])
    line, second = _described(module.__doc__)
    method = _made(methods, composed)
    assert method is not None, "plug-ins go with federated methods"
    return Card(
        f"+{name}", line, _citation(name, second), f"plug-in; here as {composed}",
        _places(method.parameters()), _sent(method), backbones,
    )  # fmt: skip


def _made(methods: Mapping[str, Any], name: str) -> Method | None:
    return make_method(name, resolve(methods, name, None, "any")[0], _ITEMS)


def _described(text: str | None) -> tuple[str, str]:
    """The first and the second paragraph of a docstring, each on one line."""
    first, second, *_ = [" ".join(part.split()) for part in (text or "").split("\n\n")] + ["", ""]
    return first.partition(": ")[2], second


_OURS = "a reference of this project"


def _citation(name: str, paragraph: str) -> str:
    if paragraph.startswith("A reference"):
        return _OURS
    found = _CITATION.match(paragraph)
    if found is None:
        raise ValueError(f"{name}: the second paragraph of its docstring must cite its paper, with the year.")
    return found["cited"] + "."


def _kind(method: Method, citation: str) -> str:
    """Personalised is what scores users with an item table of their own."""
    if citation == _OURS:
        return "reference"
    own = any(
        one.table and (one.place in ("personal", "local", "private") or method.evaluated.get(name) == "own")
        for name, one in method.parameters().items()
    )
    return "personalised" if own else "federated"


def _places(parameters: Mapping[str, Parameter]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, one in parameters.items():
        names = found.setdefault(one.place, [])
        # The layers of a perceptron are one thing.
        if (short := name.partition(".")[0]) not in names:
            names.append(short)
    return found


def _sent(method: Method) -> list[str]:
    """What a client uploads, seen by letting one do its round without training."""
    client = _Onlooker()
    method.local_round(client)
    return list(dict.fromkeys(client.sent))


class _Onlooker(Client):
    """A client that trains nothing and writes down what it is asked to send."""

    round_ = 1

    def __init__(self) -> None:
        self.sent: list[str] = []

    def fit(
        self,
        *steps: Step,
        epochs: int,
        loss: Loss,
        early_stop: float | None = None,
        half: Half | None = None,
    ) -> None:
        """See `method.Client.fit`."""

    def rewrite(self, name: str, rows: RowsOf) -> None:
        """See `method.Client.rewrite`."""

    def upload(self, *names: str, into: str | None = None) -> None:  # noqa: ARG002 - what, not where to
        """See `method.Client.upload`."""
        self.sent += [name.partition(".")[0] for name in names]

    def upload_products(self, name: str, into: str) -> None:  # noqa: ARG002 - what, not where to
        """See `method.Client.upload_products`."""
        self.sent.append(f"products of rows of {name}")

    def approach_products(self, name: str, goal: str, steps: int, rate: float, decay: float) -> None:
        """See `method.Client.approach_products`."""
