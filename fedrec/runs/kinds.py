"""What kind a method is, by its own declarations: where its item tables live, and whether clients train."""

from collections.abc import Mapping
from typing import Any, Literal

from fedrec.config.methods import Methods
from fedrec.config.names import parse
from fedrec.federation.model.method import Method
from fedrec.runs.registry import make_method

Kind = Literal["personalised", "federated", "centralised", "reference"]
METHOD_KINDS: tuple[Kind, ...] = ("personalised", "federated", "centralised", "reference")
"""Clients have an item table of their own; all use the server's; no clients train; a reference of ours."""
ITEMS, USERS = 8, 4
"""Items and users of the model that is looked at; where its parts live does not depend on them."""
_WITH_THE_CLIENT = ("personal", "local", "private")


def kind_of(methods: Methods, name: str, settings: Mapping[str, Any]) -> Kind:
    """The kind of a composition with all its settings; its entry in `methods` says what is a reference."""
    entry = methods.get(parse(name).backbone)
    if entry is not None and entry.reference is not None:
        return "reference"
    method = make_method(name, settings, ITEMS)
    return "centralised" if method is None else kind_of_method(method)


def kind_of_method(method: Method) -> Kind:
    """The kind of a federated method: personalised is what scores users with an item table of their own."""
    own = any(
        part.table and (part.location in _WITH_THE_CLIENT or name in method.own_copies)
        for name, part in method.parameters().items()
    )
    return "personalised" if own else "federated"
