"""The kind of a method: whether its scores read the client's own item table, and whether clients train."""

from collections.abc import Mapping
from typing import Any, Literal, cast

import torch
from torch import Tensor

from fedrec.config.methods import Methods
from fedrec.config.names import parse
from fedrec.federation.model.history import History, Past
from fedrec.federation.model.method import Method
from fedrec.federation.model.parameters import Parameter
from fedrec.federation.model.tables import PlainTable, Values
from fedrec.federation.model.weights import Weights
from fedrec.runs.registry import make_method

MethodKind = Literal["personalised", "federated", "centralised", "reference"]
METHOD_KINDS: tuple[MethodKind, ...] = ("personalised", "federated", "centralised", "reference")
"""personalised: each client has its own item table; federated: all use the server's; centralised: no client
trains; reference: a baseline of this project."""
ITEMS, USERS = 8, 4
"""Size of the model to inspect; the result does not depend on it."""
_RATED = 2
"""Training items of the client to inspect."""
_CLIENT_LOCATIONS = ("personal", "local", "private")


def kind_of(methods: Methods, name: str, settings: Mapping[str, Any]) -> MethodKind:
    """The kind of a composition with all its settings; its entry in `methods` marks a reference."""
    entry = methods.get(parse(name).backbone)
    if entry is not None and entry.reference is not None:
        return "reference"
    method = make_method(name, settings, ITEMS)
    return "centralised" if method is None else kind_of_method(method)


def kind_of_method(method: Method) -> MethodKind:
    """The kind of a federated method: personalised if a client scores with its own item table."""
    parameters = method.parameters()
    has_own_table = any(
        parameters[name].table
        and (parameters[name].location in _CLIENT_LOCATIONS or name in method.scored_with_own_copy)
        for name in names_scores_read(method)
    )
    return "personalised" if has_own_table else "federated"


def names_scores_read(method: Method) -> set[str]:
    """The names of the parameters that scores read, directly or through derived values."""
    items = torch.arange(method.items)
    parts = {name: part for name, part in method.parameters().items() if part.location != "server"}
    client = _made_up(parts, items)
    with torch.no_grad():
        deriving = _Reading(client)
        derived = method.derived(cast(Weights, deriving))
        scoring = _Reading(client | derived)
        method.score(cast(Weights, scoring), items)
    derived_from = deriving.read if scoring.read & derived.keys() else set()
    return (scoring.read | derived_from) & parts.keys()


def _made_up(parts: Mapping[str, Parameter], items: Tensor) -> dict[str, Any]:
    """Synthetic values by name for a client with two training items."""
    rated = items[:_RATED]
    marks = (items < _RATED).to(torch.get_default_dtype()).unsqueeze(1)
    tables = {name: torch.full(part.shape, 0.5) for name, part in parts.items()}
    return {
        "interactions": torch.full((1, 1), float(_RATED)),
        "held": torch.ones(1, 1),
        "own": PlainTable(marks, rated),
        "history": lambda length: History(
            *Past(torch.tensor([_RATED]), torch.tensor([0]), rated).items(length)
        ),
        **{name: PlainTable(value, rated) if parts[name].table else value for name, value in tables.items()},
    }


class _Reading(Values):
    """Parameters that note which of their names are read."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.read = set[str]()

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - a table or a tensor
        self.read.add(name)
        return super().__getitem__(name)
