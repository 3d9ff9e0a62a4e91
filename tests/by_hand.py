"""Federations small enough to be worked out by hand, and programs in short."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedrec.config.protocol_file import load_protocols
from fedrec.federation.clients import Clients
from fedrec.federation.engines.batched.engine import BatchedEngine
from fedrec.federation.engines.engine import Engine
from fedrec.federation.engines.loop import LoopEngine
from fedrec.federation.federation import Federation
from fedrec.federation.model.client import Fit, Operation, Program, Rewrite, Step
from fedrec.federation.model.weights import Loss
from fedrec.federation.pairs import PairSet
from fedrec.federation.program import trace
from fedrec.federation.state.state import DENSE_BYTES
from fedrec.runs.registry import make_learner
from tests.conftest import ROOT
from tests.federations import settings_of

ENGINES = [LoopEngine(), BatchedEngine(2**30)]


def clients_with(positives: list[list[int]], items: int, allowed: list[list[int]] | None = None) -> Clients:
    """Clients with exactly these training items; each may draw all others, or what `allowed` lists."""
    forbidden = torch.zeros(len(positives), items, dtype=torch.bool)
    for client, own in enumerate(positives):
        listed = own if allowed is None else [item for item in range(items) if item not in allowed[client]]
        forbidden[client, listed] = True
    return Clients(
        protocol=load_protocols(ROOT / "config/protocols.yaml")["clean"],
        items=items,
        user=torch.arange(len(positives)),
        start=torch.tensor([0, *map(len, positives)]).cumsum(0),
        train_item=torch.tensor([item for own in positives for item in own]),
        held_out={},
        candidates={},
        forbidden=PairSet.of(*forbidden.nonzero().T, len(positives), items),
    )


def federation_of(
    name: str,
    clients: Clients,
    *changes: str,
    engine: Engine = ENGINES[1],
    seed: int = 0,
    paper: str | None = None,
    dense_bytes: int = DENSE_BYTES,
) -> Federation:
    """A composition on some clients, with settings changed."""
    settings = settings_of(name, *changes, paper=paper)
    made = make_learner(name, clients, settings, seed, engine)
    assert isinstance(made, Federation)
    return Federation(made.method, clients, engine, settings, seed, dense_bytes)


def everyone(federation: Federation) -> Tensor:
    return torch.arange(len(federation.clients))


def kept(federation: Federation, name: str) -> Tensor:
    """What each client keeps of a parameter, on a leading client axis."""
    return federation.state.client_tensors[name].whole(everyone(federation)).clone()


def give(federation: Federation, **values: Any) -> None:
    """Let parameters have these values before the first round, the same for all clients."""
    state = federation.state
    for name, value in values.items():
        shape = state.parameters[name].shape
        wanted = torch.as_tensor(value, dtype=torch.get_default_dtype()).reshape(shape)
        state.initial[name] = wanted
        if name in state.shared:
            state.shared[name] = wanted
        if name in state.client_tensors:
            state.client_tensors[name].fill(everyone(federation), wanted)


def near(found: Tensor, expected: Tensor, within: float = 1e-12) -> bool:
    """Whether two tensors differ by rounding alone."""
    return torch.allclose(found, expected, rtol=0, atol=within)


@dataclass(frozen=True)
class Asked:
    """A program in short: what a method asks of a client."""

    program: Program

    @property
    def fits(self) -> list[Fit]:
        return [operation for operation in self.program if isinstance(operation, Fit)]

    @property
    def steps(self) -> list[tuple[Step, ...]]:
        return [fit.steps for fit in self.fits]

    @property
    def losses(self) -> list[Loss]:
        return [fit.loss for fit in self.fits]

    @property
    def halves(self) -> list[str | None]:
        return [fit.samples for fit in self.fits]

    @property
    def asked(self) -> tuple[int, float | None]:
        """Epochs and early stop of the last fit."""
        return self.fits[-1].epochs, self.fits[-1].early_stop

    @property
    def rewrites(self) -> list[Rewrite]:
        return [operation for operation in self.program if isinstance(operation, Rewrite)]

    @property
    def events(self) -> list[tuple[Any, ...]]:
        return [_event(operation) for operation in self.program]


def _event(operation: Operation) -> tuple[Any, ...]:
    if isinstance(operation, Fit):
        return ("fit", *(set(step.rates) for step in operation.steps))
    if isinstance(operation, Rewrite):
        return ("rewrite", operation.name)
    return ("upload", operation.name, operation.into)


def asked_of_a_client(federation: Federation, round_: int = 1) -> Asked:
    """What the method asks of a client in a round."""
    return Asked(trace(federation.method, round_))
