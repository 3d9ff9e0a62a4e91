"""The parameters that a method holds on a client and on the server, as numbers and megabytes."""

from collections.abc import Mapping
from typing import Any

from fedrec.errors import ResultError
from fedrec.runs.registry import make_method

BYTES = 4
MB = 2**20
"""Bytes of a MB, as the papers use the word."""


def numbers_held(name: str, settings: Mapping[str, Any], users: int, items: int) -> tuple[int, int]:
    """The numbers of parameters that a client of the method `name` holds, and that its server holds.

    A client holds everything that it downloads, trains or stores. The server holds shared parameters, and
    those that it stores for each of the `users`. Uploads that only enter a mean do not count.
    """
    method = make_method(name, settings, items)
    if method is None:
        raise ResultError(f"{name} is not federated, so it has no space on clients and server.")
    counts: dict[str, int] = {}
    for parameter in method.parameters().values():
        counts[parameter.location] = counts.get(parameter.location, 0) + parameter.count
    client = sum(count for location, count in counts.items() if location != "server")
    server = counts.get("shared", 0) + counts.get("server", 0) + users * counts.get("personal", 0)
    return client, server


def megabytes(numbers: int) -> float:
    """The megabytes of `numbers` in single precision."""
    return numbers * BYTES / MB
