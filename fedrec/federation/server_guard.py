"""Guard that hides the server rule from losses, scores and derived numbers."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from fedrec.errors import FederationError
from fedrec.federation.model.method import Method
from fedrec.federation.model.plugin import Plugin


@contextmanager
def hidden_server(method: Method) -> Iterator[None]:
    """Raise `FederationError` if a loss, a score or `derived` reads `self.server`."""
    hidden = list(_methods(method))
    servers = [each.server for each in hidden]
    for each in hidden:
        vars(each)["server"] = _HiddenServer(type(each).__name__)
    try:
        yield
    finally:
        for each, server in zip(hidden, servers, strict=True):
            each.server = server


def _methods(method: Method) -> Iterator[Method]:
    """A method and, if it is a plug-in, its backbones."""
    yield method
    if isinstance(method, Plugin):
        yield from _methods(method.backbone)


class _HiddenServer:
    """Replacement of the server while the rules check a loss."""

    def __init__(self, method: str) -> None:
        self._method = method

    def __getattr__(self, name: str) -> NoReturn:
        place: Any = sys._getframe(1)
        raise FederationError(
            f"{place.f_code.co_filename}:{place.f_lineno}: {self._method} reads self.server.{name} in a "
            "loss, a score or `derived`. A client does not know what the server's object holds: let the "
            "server keep it as a parameter at 'shared', which clients download and read as w.name."
        )
