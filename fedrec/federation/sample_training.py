"""Sample trainings: trainings of a few clients in double precision, for comparing engines.

A sample training has its own copy of the method, state and server, so the federation stays unchanged. Its
clients have some of the interactions of real clients.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedrec.errors import DivergenceError
from fedrec.federation.clients import Clients
from fedrec.federation.comparison import learnt_values
from fedrec.federation.engines.engine import Engine
from fedrec.federation.federation import Federation
from fedrec.federation.loss_code import is_foreign
from fedrec.federation.model.client import Client, Fit
from fedrec.federation.model.method import Method
from fedrec.federation.model.plugin import Plugin
from fedrec.federation.model.server_rule import ServerRule
from fedrec.federation.program import trace, trace_after_aggregation
from fedrec.federation.value_snapshot import PLAIN

_EPOCHS = 2
"""Epochs of a fit: enough to show state between epochs. With an early stop, one more is needed."""
_BATCHES = 2.5
"""Mini-batches of the largest client: full ones and a short one."""
_FEWEST = 3
"""Least interactions of a client, except for the client with a single one."""
_STEP = 1e-12
"""Relative size of the perturbation of initial values that shows the effect of rounding."""


class UncopyableError(Exception):
    """A method cannot be copied, so a sample training of it would change it."""


@dataclass(frozen=True)
class SampleTraining:
    """Some clients of a federation in some rounds."""

    method: Method
    clients: Clients
    settings: Mapping[str, Any]
    seed: int
    rounds: tuple[int, ...]
    plain_server: bool = False
    """Whether a plain mean replaces the server rule, which may need more clients."""

    def train(self, engine: Engine, *, perturbed: bool = False) -> dict[str, Tensor] | str:
        """All numbers stored, reported and scored after the last round, or the error if training diverged.

        With `perturbed`, training starts from initial values that differ in their last digits.
        """
        device = self.clients.device
        with _in_double_precision(device), _copied_class_state(self.method):
            method = self._method()
            federation = Federation(method, self.clients, engine, self.settings, self.seed)
            if perturbed:
                _perturb(federation)
            try:
                reports = [federation.train_round(round_) for round_ in self.rounds]
            except DivergenceError as error:
                return str(error)
            finally:
                # Side effects of `local_round` on globals or classes are again those of the present round.
                trace(method, self.rounds[0])
                trace_after_aggregation(method, self.rounds[0])
            losses = torch.tensor([report.loss for report in reports])
            counts = torch.tensor([[report.clients, report.down, report.up] for report in reports])
            items = torch.arange(self.clients.items, device=device).expand(len(self.clients), -1)
            scores = federation.scores(torch.arange(len(self.clients), device=device), items)
            found = learnt_values(federation, device)
            found |= {"losses": losses, "counts": counts, "scores": scores}
            return {name: value.clone().cpu() for name, value in found.items()}

    def _method(self) -> Method:
        """A copy of the method that trains for fewer epochs."""
        try:
            method = deepcopy(self.method)
        # An object that cannot be copied may raise any error.
        except Exception as error:
            raise UncopyableError(f"one of its attributes cannot be copied ({error})") from error
        if self.plain_server:
            for each in _with_backbones(method):
                each.server = ServerRule(self.settings, self.clients.items)
        vars(method)["local_round"] = _with_fewer_epochs(method.local_round)
        vars(method)["after_aggregation"] = _with_fewer_epochs(method.after_aggregation)
        return method


def sample_trainings(
    method: Method, clients: Clients, settings: Mapping[str, Any], seed: int, round_: int
) -> Iterator[SampleTraining]:
    """Sample trainings of a round and the next one, the most informative first.

    A later one replaces an earlier one that a method cannot train.
    """
    last = settings.get("rounds", round_ + 1)
    rounds = tuple(each for each in (round_, round_ + 1) if each == round_ or each <= last)
    settings = {**settings, "participation": 1.0, "clients": None}
    most = int(_BATCHES * settings["batch_size"] / (1 + settings["negatives"]))
    with_single, without = (
        sample_clients(clients, most, single=True),
        sample_clients(clients, most, single=False),
    )
    yield SampleTraining(method, with_single, settings, seed, rounds)
    yield SampleTraining(method, without, settings, seed, rounds)
    yield SampleTraining(method, with_single, settings, seed, rounds, plain_server=True)
    yield SampleTraining(method, without, settings, seed, rounds, plain_server=True)


def sample_clients(clients: Clients, most: int, *, single: bool) -> Clients:
    """Clients with few to many interactions, cut to `most`; with `single`, one keeps a single interaction."""
    # Two copies from the device instead of two per client, since each waits for a busy GPU.
    sizes, order = clients.sizes.tolist(), clients.sizes.argsort(stable=True).tolist()
    by_size = [who for who in order if sizes[who] > 0]
    places = sorted({0, len(by_size) // 4, len(by_size) // 2, len(by_size) - 1})
    who = torch.tensor(sorted(by_size[place] for place in places), device=clients.device)
    chosen = clients.subset(who)
    kept = chosen.sizes.clamp(max=max(_FEWEST, most))
    if single:
        kept[kept.argmin()] = 1
    starts = [int(start) for start in chosen.start[:-1]]
    items = [chosen.train_item[start : start + int(n)] for start, n in zip(starts, kept, strict=True)]
    ends = torch.nn.functional.pad(kept.cumsum(0), (1, 0))
    parts = [slice(start, start + int(n)) for start, n in zip(starts, kept, strict=True)]
    return replace(
        chosen, start=ends, train_item=torch.cat(items), first_index=0, remote_clients=0,
        find_turns=lambda: torch.cat([_time_ranks(chosen.turn[part]) for part in parts]),
    )  # fmt: skip


def _time_ranks(turn: torch.Tensor) -> torch.Tensor:
    """The ranks in time of some of a client's items, given their ranks among all its items."""
    return turn.argsort().argsort()


def _with_fewer_epochs(work: Callable[[Client], Any]) -> Callable[[Client], Any]:
    """The same hook, with fewer epochs in each fit."""

    def recorded(client: Client) -> Any:  # noqa: ANN401 - what the work returns
        recorded = Client(client.round_)
        result = work(recorded)
        client.perform(
            replace(operation, epochs=min(operation.epochs, _EPOCHS + (operation.early_stop is not None)))
            if isinstance(operation, Fit)
            else operation
            for operation in recorded.program
        )
        return result

    return recorded


def _with_backbones(method: Method) -> Iterator[Method]:
    """A method and, if it is a plug-in, its backbones."""
    yield method
    if isinstance(method, Plugin):
        yield from _with_backbones(method.backbone)


def _perturb(federation: Federation) -> None:
    """Move all initial values by about one part in 10^12, each up or down."""
    state, everyone = federation.state, federation.clients.everyone
    for name, value in state.initial.items():
        numbers = torch.arange(value.numel(), device=value.device).reshape(value.shape)
        signs = 1.0 - 2.0 * ((numbers * 2654435761 >> 7) % 2).to(value.dtype)
        moved = value + _STEP * signs * value.abs().max().clamp(min=1e-3)
        state.initial[name] = moved
        if name in state.shared:
            state.shared[name] = moved.clone()
        if name in state.client_tensors:
            state.client_tensors[name].fill(everyone, moved)


@contextmanager
def _copied_class_state(method: Method) -> Iterator[None]:
    """Replace the state of a method's classes and modules by copies, and restore it at the end."""
    kinds = [
        kind for each in _with_backbones(method) for one in (each, each.server) for kind in type(one).__mro__
    ]
    classes = [kind for kind in dict.fromkeys(kinds) if not is_foreign(kind.__module__)]
    of_classes = [(kind, name, value) for kind in classes for name, value in _state_of(vars(kind))]
    modules = {
        id(part.__globals__): part.__globals__
        for kind in classes
        for part in vars(kind).values()
        if isinstance(part, FunctionType)
    }
    of_modules = [(held, name, value) for held in modules.values() for name, value in _state_of(held)]
    for kind, name, value in of_classes:
        setattr(kind, name, _copied(value))
    for held, name, value in of_modules:
        held[name] = _copied(value)
    try:
        yield
    finally:
        for kind, name, value in of_classes:
            setattr(kind, name, value)
        for held, name, value in of_modules:
            held[name] = value


def _state_of(held: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The attributes of a class or module that may change."""
    fixed = (type, ModuleType, FunctionType, BuiltinFunctionType, property, staticmethod, classmethod, *PLAIN)
    return [
        (name, value)
        for name, value in held.items()
        if not name.startswith("__") and not isinstance(value, fixed) and not hasattr(value, "__get__")
    ]


def _copied(value: Any) -> Any:  # noqa: ANN401 - whatever a class or a module holds
    """A copy of a value, or the value itself if it cannot be copied."""
    try:
        return deepcopy(value)
    # An object's class may raise any error.
    except Exception:
        return value


@contextmanager
def _in_double_precision(device: torch.device) -> Iterator[None]:
    """Set the default dtype to double precision; restore it and all random generators at the end."""
    before, drawn, numpy_drawn = torch.get_default_dtype(), random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(before)
            random.setstate(drawn)
            np.random.set_state(numpy_drawn)  # noqa: NPY002
