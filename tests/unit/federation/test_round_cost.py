"""How many pieces of work torch is given in a round: on a GPU each takes its time, however small it is."""

from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fedrec.evaluation.scoring import HELD_OUT_PARTS, candidate_ranks
from fedrec.federation.engines.engine import engine_named
from fedrec.federation.federation import Federation
from tests.compiled import assert_compiled, skip_without_compiler
from tests.federations import clients_of, method_of, planted_blocks, settings_of

FREE = (
    "view", "expand", "slice", "select", "unsqueeze", "squeeze", "split", "unbind", "transpose", "detach",
    "_reshape_alias", "_unsafe_view", "lift_fresh", "empty", "new_empty",
)  # fmt: skip
"""What no device has work with."""


class Counted(TorchDispatchMode):
    """Counts what torch is asked to compute, and how often the result is waited for."""

    def __init__(self):
        super().__init__()
        self.asked = Counter()

    @classmethod
    def _should_skip_dynamo(cls):
        return False

    def __torch_dispatch__(self, func, _types, args=(), kwargs=None):
        name = func.__name__.partition(".")[0]
        if not name.startswith(FREE):
            self.asked[name] += 1
        return func(*args, **(kwargs or {}))


def third_round(name, *changes):
    """A federation of everyone, and what its third round asks of torch."""
    skip_without_compiler()
    clients = clients_of(planted_blocks(users=20))
    settings = settings_of(name, "participation=1", "local_epochs=1", *changes)
    engine = engine_named("fused", 2**31)
    federation = Federation(method_of(name), clients, engine, settings, seed=0)
    federation.train_round(1)
    federation.train_round(2)
    assert_compiled(name, engine.notes()["training"])
    with Counted() as counted:
        federation.train_round(3)
    return federation, counted.asked


@pytest.mark.parametrize(("name", "most"), [("fedmf", 22), ("pfedrec", 29), ("pfedclr", 39)])
def test_a_round_of_everyone_asks_for_few_pieces_of_work(name, most):
    asked = third_round(name)[1]
    assert asked.total() <= most, asked
    # How many rows are held decides what is asked for; everything else is read at the end, which needs no
    # operation of its own.
    assert asked["_local_scalar_dense"] == 1
    assert not asked["nonzero"]


def test_ranks_among_candidates_ask_for_few_pieces_of_work():
    federation = third_round("fedmf")[0]
    with Counted() as counted:
        for part in HELD_OUT_PARTS:
            candidate_ranks(federation, federation.clients, part)
    assert counted.asked.total() <= 12, counted.asked


def test_an_engine_keeps_federations_apart():
    """What it knows of all clients of one does not serve those of another."""
    engine, reached = engine_named("fused", 2**31), []
    settings = settings_of("fedmf", "participation=1", "local_epochs=1")
    for users in (20, 13, 20):
        clients = clients_of(planted_blocks(users=users))
        shared, own = (
            Federation(method_of("fedmf"), clients, each, settings, seed=0)
            for each in (engine, engine_named("fused", 2**31))
        )
        for federation in (shared, own):
            federation.train_round(1)
        assert torch.equal(shared.state.shared["Q"], own.state.shared["Q"])
        reached.append(shared.state.shared["Q"])
    assert torch.equal(reached[0], reached[2])
    assert not torch.equal(reached[0], reached[1])
