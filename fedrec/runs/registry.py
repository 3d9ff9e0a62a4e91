"""From the name of a composition to what trains: `METHOD` of its backbone's file, `PLUGIN` of its plug-in's.

Only the files of the composition asked for are imported, so a run depends on no other.
"""

import importlib
from collections.abc import Mapping
from typing import Any

from fedrec.central.learner import CentralLearner, CentralMethod
from fedrec.config.modules import modules_of
from fedrec.config.names import parse
from fedrec.errors import ConfigurationError
from fedrec.federation.clients import Clients
from fedrec.federation.engines.engine import Engine
from fedrec.federation.federation import Federation
from fedrec.federation.learner import Learner
from fedrec.federation.model.method import Method
from fedrec.federation.observe.recorder import Watch


def make_learner(
    name: str,
    clients: Clients,
    settings: Mapping[str, Any],
    seed: int,
    engine: Engine,
    watch: Watch | None = None,
) -> Learner:
    """The composition `name`, ready for its first round. What it changes is in `settings` already."""
    made = make_method(name, settings, clients.items)
    if made is not None:
        return Federation(made, clients, engine, settings, seed, watch=watch)
    if watch is not None:
        raise ConfigurationError(
            f"{name} has no clients that train: there is nothing --record could look at."
        )
    method = importlib.import_module(modules_of(name)[0]).METHOD
    if issubclass(method, CentralMethod):
        return CentralLearner(method(settings, len(clients), clients.items), clients, settings, seed)
    learner: Learner = method(clients, settings, seed)
    return learner


def make_method(name: str, settings: Mapping[str, Any], items: int) -> Method | None:
    """The composition `name` as a federated method; None for one that has no clients that train."""
    backbone, *plugins = map(importlib.import_module, modules_of(name))
    if not issubclass(backbone.METHOD, Method):
        if plugins:
            raise ConfigurationError(
                f"{name}: {parse(name).backbone} has no clients that train; a plug-in needs them."
            )
        return None
    made: Method = backbone.METHOD(settings, items)
    for plugin in plugins:
        _refuse_alone(name, made)
        made = plugin.PLUGIN(made, settings, items)
    return made


def _refuse_alone(name: str, backbone: Method) -> None:
    if all(parameter.place in ("private", "scratch") for parameter in backbone.parameters().values()):
        raise ConfigurationError(
            f"{name}: nothing of {parse(name).backbone} leaves the client; a plug-in needs what is shared."
        )
