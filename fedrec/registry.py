"""Methods by name: `local-only` is `METHOD` of `fedrec/methods/local_only.py`.

Only the file of the method asked for is imported, so a run depends on no other.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any

from fedrec import methods
from fedrec.errors import ConfigurationError, did_you_mean
from fedrec.federation.central import CentralLearner, CentralMethod
from fedrec.federation.clients import Clients
from fedrec.federation.engine import Engine
from fedrec.federation.federation import Federation
from fedrec.federation.learner import Learner
from fedrec.federation.method import Method


def method_names() -> list[str]:
    """Every method there is a file for."""
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(methods.__path__))


def module_of(name: str) -> str:
    """The module that holds the method called `name`."""
    known = method_names()
    if name not in known:
        raise ConfigurationError(
            f"unknown method '{name}'.{did_you_mean(name, known)} There are: {', '.join(known)}."
        )
    return f"fedrec.methods.{name.replace('-', '_')}"


def make_learner(
    name: str, clients: Clients, settings: Mapping[str, Any], seed: int, engine: Engine
) -> Learner:
    """The method called `name`, ready for its first round."""
    method = importlib.import_module(module_of(name)).METHOD
    if issubclass(method, Method):
        return Federation(method(settings, clients.items), clients, engine, settings, seed)
    if issubclass(method, CentralMethod):
        return CentralLearner(method(settings, len(clients), clients.items), clients, settings, seed)
    learner: Learner = method(clients, settings, seed)
    return learner
