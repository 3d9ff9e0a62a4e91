"""Make the learner of a composition, from `METHOD` in its backbone's file and `PLUGIN` in its plug-in's.

It imports only the files of that composition, so that a run depends on no other method.
"""

import importlib
import os
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from fedrec.central.learner import CentralLearner
from fedrec.central.method import CentralMethod
from fedrec.config.modules import broken_source, modules_of, without_class
from fedrec.config.names import parse
from fedrec.errors import ConfigurationError, FedrecError, did_you_mean
from fedrec.federation.clients import Clients
from fedrec.federation.collectives import SINGLE, Communicator
from fedrec.federation.engines.engine import Engine
from fedrec.federation.federation import Federation
from fedrec.federation.learner import Learner
from fedrec.federation.model.method import Method
from fedrec.federation.observe.recorder import Recorder


def make_learner(
    name: str,
    clients: Clients,
    settings: Mapping[str, Any],
    seed: int,
    engine: Engine,
    recorder: Recorder | None = None,
    communicator: Communicator = SINGLE,
) -> Learner:
    """The learner of the composition `name` before its first round; `settings` include its changes."""
    made = make_method(name, settings, clients.items)
    if made is not None:
        return Federation(made, clients, engine, settings, seed, recorder=recorder, communicator=communicator)
    if communicator.size > 1:
        raise ConfigurationError(
            f"{name}: several processes cannot share its training, because it has no clients that train. "
            "Train it in one process."
        )
    if recorder is not None:
        raise ConfigurationError(
            f"{name}: --record has nothing to record, because this method has no clients that train. "
            "Omit --record."
        )
    central = make_central(name, settings, len(clients), clients.items)
    if central is not None:
        return CentralLearner(central, clients, settings, seed, plain=engine.name == "loop")
    learner: Learner = _class_of(modules_of(name)[0], "METHOD", settings)(clients, settings, seed)
    return learner


class _Settings(dict[str, Any]):
    """The settings of a method; a missing key raises an error with the method's name."""

    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self._name = name

    def __missing__(self, key: str) -> NoReturn:
        raise ConfigurationError(
            f"the code of {self._name} reads a setting '{key}', which its entry does not "
            f"have.{did_you_mean(key, self)} It has: {', '.join(self)}."
        )


def make_method(name: str, settings: Mapping[str, Any], items: int) -> Method | None:
    """The composition `name` as a federated method; None for one that has no clients that train."""
    settings = _Settings(name, settings)
    backbone, *plugins = modules_of(name)
    method = _class_of(backbone, "METHOD", settings)
    if not issubclass(method, Method):
        if plugins:
            raise ConfigurationError(
                f"{name}: {parse(name).backbone} has no clients that train, which a plug-in needs. Use "
                "another backbone."
            )
        return None
    made: Method = method(settings, items)
    for plugin in plugins:
        _refuse_alone(name, made)
        made = _class_of(plugin, "PLUGIN", settings)(made, settings, items)
    return made


def make_central(name: str, settings: Mapping[str, Any], users: int, items: int) -> CentralMethod | None:
    """The method `name` as a model of all users; None for one that is no such model."""
    method = _class_of(modules_of(name)[0], "METHOD", settings)
    return method(settings, users, items) if issubclass(method, CentralMethod) else None


def loaded(module: str, kind: str) -> ModuleType:
    """The file of a method or plug-in, with its `METHOD` or `PLUGIN`; errors name the line."""
    path = Path(*module.split(".")).with_suffix(".py")
    try:
        file = importlib.import_module(module)
    except FedrecError:
        raise
    except Exception as error:
        raise ConfigurationError(_broken(path, error)) from error
    if not hasattr(file, kind):
        raise ConfigurationError(without_class(path, kind))
    return file


def _broken(path: Path, error: Exception) -> str:
    if isinstance(error, SyntaxError):
        return broken_source(Path(os.path.relpath(error.filename or path)), error)
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(str(path))]
    line = f", line {own[-1].lineno}" if own else ""
    return f"{path}{line}: the file cannot be imported: {type(error).__name__}: {error}."


def _class_of(module: str, kind: str, settings: Mapping[str, Any]) -> type[Any]:
    """The class of a file: its `METHOD` or `PLUGIN`, or the variant that the settings select.

    `VARIANTS` maps (setting, value) to a subclass. If the settings select several, a new class inherits from
    all of them. An earlier variant overrides a later one.
    """
    file = loaded(module, kind)
    plain: type[Any] = getattr(file, kind)
    known: Mapping[tuple[str, Any], type[Any]] = getattr(file, "VARIANTS", {})
    variants = [variant for (key, value), variant in known.items() if settings[key] == value]
    if len(variants) < 2:
        return variants[0] if variants else plain
    try:
        return type("And".join(variant.__name__ for variant in variants), tuple(variants), {})
    except TypeError as error:
        names = ", ".join(f"{key}={value}" for (key, value), variant in known.items() if variant in variants)
        raise ConfigurationError(f"{module}: {names} cannot be combined ({error}).") from error


def _refuse_alone(name: str, backbone: Method) -> None:
    if all(
        parameter.location in ("private", "scratch", "given") for parameter in backbone.parameters().values()
    ):
        raise ConfigurationError(
            f"{name}: {parse(name).backbone} uploads nothing, but a plug-in needs uploads. Use another "
            "backbone."
        )
