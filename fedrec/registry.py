"""Methods and plug-ins by name: `local-only` is `METHOD` of `fedrec/methods/local_only.py`, and the
plug-in of `fedmf+plgc` is `PLUGIN` of `fedrec/plugins/plgc.py`.

Only the files of the composition asked for are imported, so a run depends on no other.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from fedrec import methods as method_files
from fedrec import plugins as plugin_files
from fedrec.composition import Composition, parse
from fedrec.errors import ConfigurationError, did_you_mean
from fedrec.federation.central import CentralLearner, CentralMethod
from fedrec.federation.clients import Clients
from fedrec.federation.engine import Engine
from fedrec.federation.federation import Federation
from fedrec.federation.learner import Learner
from fedrec.federation.method import Method
from fedrec.federation.watch import Watch


def method_names() -> list[str]:
    """Every method there is a file for."""
    return _names(method_files)


def plugin_names() -> list[str]:
    """Every plug-in there is a file for."""
    return _names(plugin_files)


def compositions(methods: Mapping[str, Any]) -> list[str]:
    """Every `backbone+plugin` that `methods`, as `config/methods.yaml` holds them, allows and there are
    files for.
    """
    known = method_names()
    return [
        str(Composition(backbone, plugin))
        for plugin in plugin_names()
        for backbone in methods.get(f"+{plugin}", {}).get("backbones", {})
        if backbone in methods and backbone in known
    ]


def modules_of(name: str) -> list[str]:
    """The module that holds the backbone of the composition `name`, and the plug-in's if there is one."""
    composition = parse(name)
    modules = [_module(method_files, "method", composition.backbone)]
    if composition.plugin is not None:
        modules.append(_module(plugin_files, "plug-in", composition.plugin))
    return modules


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
        raise ConfigurationError(f"{name} has no clients that train: there is nothing --keep could look at.")
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


def _names(package: ModuleType) -> list[str]:
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(package.__path__))


def _module(package: ModuleType, kind: str, name: str) -> str:
    known = _names(package)
    if name not in known:
        raise ConfigurationError(
            f"unknown {kind} '{name}'.{did_you_mean(name, known)} There are: {', '.join(known) or 'none'}."
        )
    return f"{package.__name__}.{name.replace('-', '_')}"
