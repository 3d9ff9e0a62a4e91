"""EM around a backbone: who merges where only some clients are aggregated."""

import pytest
import torch

from tests.by_hand import ENGINES, clients_with, everyone, federation_of, give, kept, near

pytestmark = pytest.mark.usefixtures("double_precision")
both_engines = pytest.mark.parametrize("engine", ENGINES, ids=["loop", "batched"])
SOME = ("d=2", "aggregated=0.4", "participation=1", "merge=static", "weight=0.25")


def five_clients():
    return clients_with([[0], [1, 2], [3, 4, 5], [6], [7, 8]], items=14)


def own_after(federation, rounds):
    for round_ in range(1, rounds + 1):
        federation.train_round(round_)
    return kept(federation, "Q")


@both_engines
@pytest.mark.parametrize("merging", ["once", "epoch", "batch"])
def test_of_merged_aggregated_clients_alone_the_others_train_as_if_alone(engine, merging):
    common = ("rate=0.1", "batch_size=1000", "local_epochs=1")
    settings = (*SOME, *common, f"merging={merging}")
    some, all_ = (
        federation_of("fedmf+em", five_clients(), *settings, f"merged={who}", engine=engine)
        for who in ("aggregated", "everyone")
    )
    alone = federation_of("local-only", five_clients(), "d=2", *common, engine=engine)
    give(alone, Q=some.state.initial["G"])
    some.train_round(1)
    held = some.state.held.clone()
    assert held.sum() == 2
    some.train_round(2)
    own, everybody, local = kept(some, "Q"), own_after(all_, 2), own_after(alone, 2)
    assert near(own[~held], local[~held])
    if merging != "batch":  # there everyone's gradients go through the merge, in the first round too
        assert near(own[held], everybody[held])
    assert not any(near(everybody[client], local[client], within=1e-3) for client in everyone(some))


@both_engines
@pytest.mark.parametrize("merged", ["aggregated", "everyone"])
def test_users_are_scored_with_the_table_they_would_merge(engine, merged):
    federation = federation_of("fedmf+em", five_clients(), *SOME, f"merged={merged}", engine=engine)
    federation.train_round(1)
    takes = federation.state.held if merged == "aggregated" else torch.ones(5)
    rho = 0.25 * takes.double()[:, None, None]
    own = kept(federation, "Q")
    table = own + rho * (federation.state.shared["G"] - own)
    items = torch.arange(14).expand(5, -1)
    expected = (table * kept(federation, "p")).sum(-1)
    assert near(federation.scores(everyone(federation), items), expected)
