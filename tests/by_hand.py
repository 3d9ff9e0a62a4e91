"""Federations small enough to be worked out by hand, and a client that only listens."""

from typing import Any

import torch
from torch import Tensor

from fedrec.config.protocol_file import load_protocols
from fedrec.federation.clients import Clients
from fedrec.federation.engines.batched.engine import BatchedEngine
from fedrec.federation.engines.engine import Engine
from fedrec.federation.engines.loop import LoopEngine
from fedrec.federation.federation import Federation
from fedrec.federation.model.method import Half, Loss, RowsOf, Step
from fedrec.federation.pairs import PairSet
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
    return federation.state.kept[name].whole(everyone(federation)).clone()


def give(federation: Federation, **values: Any) -> None:
    """Let parameters have these values before the first round, the same for all clients."""
    state = federation.state
    for name, value in values.items():
        shape = state.parameters[name].shape
        wanted = torch.as_tensor(value, dtype=torch.get_default_dtype()).reshape(shape)
        state.initial[name] = wanted
        if name in state.shared:
            state.shared[name] = wanted
        if name in state.kept:
            state.kept[name].restart(everyone(federation), wanted)


def near(found: Tensor, expected: Tensor, within: float = 1e-12) -> bool:
    """Whether two tensors differ by rounding alone."""
    return torch.allclose(found, expected, rtol=0, atol=within)


class Recorder:
    """A client that trains nothing, and remembers what a method asks of it."""

    def __init__(self, round_: int = 1) -> None:
        self.round_ = round_
        self.events: list[tuple[Any, ...]] = []
        self.steps: list[tuple[Step, ...]] = []
        self.losses: list[Loss] = []
        self.halves: list[Half | None] = []

    def fit(
        self,
        *steps: Step,
        epochs: int,
        loss: Loss,
        early_stop: float | None = None,
        half: Half | None = None,
    ) -> None:
        self.events.append(("fit", *(set(step.rates) for step in steps)))
        self.steps.append(steps)
        self.losses.append(loss)
        self.asked = (epochs, early_stop)
        self.halves.append(half)

    def rewrite(self, name: str, rows: RowsOf) -> None:
        self.events.append(("rewrite", name))
        self.rows = rows

    def upload(self, *names: str, into: str | None = None) -> None:
        self.events += [("upload", name, into or name) for name in names]

    def upload_products(self, name: str, into: str) -> None:
        self.events.append(("products", name, into))

    def approach_products(self, name: str, goal: str, steps: int, rate: float, decay: float) -> None:
        self.events.append(("approach", name, goal, steps, rate, decay))


def asked_of_a_client(federation: Federation, round_: int = 1) -> Recorder:
    """What the method asks of a client in a round."""
    recorder = Recorder(round_)
    federation.method.local_round(recorder)
    return recorder
