"""How many parameters, and megabytes of them, a method holds on a client and on the server."""

from collections.abc import Mapping
from typing import Any

from fedrec.errors import ResultError
from fedrec.runs.registry import make_method

BYTES = 4
MB = 2**20
"""Bytes of what the papers call a MB."""


def numbers_held(name: str, settings: Mapping[str, Any], users: int, items: int) -> tuple[int, int]:
    """Numbers of the parameters that a client of the composition `name` holds, and that its server does.

    A client has everything it downloads, trains or keeps; the server what is one for all, and what it
    keeps for each of the `users`. Uploads on their way into a mean are not counted.
    """
    method = make_method(name, settings, items)
    if method is None:
        raise ResultError(f"{name} has no clients that train: it has no space on clients and server.")
    counts: dict[str, int] = {}
    for parameter in method.parameters().values():
        counts[parameter.location] = counts.get(parameter.location, 0) + parameter.count
    client = sum(count for location, count in counts.items() if location != "server")
    server = counts.get("shared", 0) + counts.get("server", 0) + users * counts.get("personal", 0)
    return client, server


def megabytes(numbers: int) -> float:
    """The space of `numbers` in single precision."""
    return numbers * BYTES / MB
