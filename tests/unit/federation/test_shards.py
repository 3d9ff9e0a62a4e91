"""The clients of one process of several, and what all of them store together."""

import pytest
import torch

from fedrec.errors import ConfigurationError
from fedrec.federation import clients as module
from fedrec.federation.clients import Clients
from fedrec.federation.collectives import SINGLE, Communicator
from fedrec.federation.shards import merge_state, split_state
from fedrec.runs.registry import make_learner
from tests.engines import LOOP
from tests.federations import CPU, clients_of, planted_blocks, settings_of


class Member(Communicator):
    """One of several processes, which nobody answers."""

    def __init__(self, rank, size):
        self.rank, self.size = rank, size


def shares(split, size):
    return [Clients.of_split(split, CPU, Member(rank, size)) for rank in range(size)]


def test_neighbours_are_shared_out_evenly():
    assert Member(1, 3).spans(8) == [slice(0, 2), slice(2, 5), slice(5, 8)]
    assert Member(1, 3).span(8) == slice(2, 5)
    assert SINGLE.span(8) == slice(0, 8)


@pytest.mark.parametrize("kernels", [True, False])
def test_shares_hold_what_the_whole_holds_and_draw_what_it_draws(monkeypatch, kernels):
    if not kernels:
        monkeypatch.setattr(module, "kernel_or_none", lambda *_: None)
    split = planted_blocks(users=7)
    whole, parts = clients_of(split), shares(split, 3)
    assert [len(part) for part in parts] == [2, 2, 3]
    assert {part.total_clients for part in parts} == {7}
    assert torch.equal(torch.cat([part.user for part in parts]), whole.user)
    for held in ("validation", "test"):
        for of in (
            lambda clients, held=held: clients.held_out[held],
            lambda clients, held=held: clients.candidates[held],
        ):
            assert torch.equal(torch.cat([of(part) for part in parts]), of(whole))
    expected = whole.samples(whole.everyone, 4, seed=3, round_=2)
    drawn = [part.samples(part.everyone, 4, seed=3, round_=2) for part in parts]
    assert torch.equal(torch.cat([one.item for one in drawn]), expected.item)
    assert torch.equal(torch.cat([one.size for one in drawn]), expected.size)


def test_clients_are_told_from_those_of_others_by_their_places_among_all():
    _, second, _ = shares(planted_blocks(users=7), 3)
    assert second.global_index(second.everyone).tolist() == [2, 3]
    assert second.local_index(torch.tensor([0, 3, 4])).tolist() == [1]
    whole = clients_of(planted_blocks(users=7))
    assert whole.global_index(whole.everyone) is whole.everyone
    assert whole.local_index(whole.everyone) is whole.everyone


def test_there_are_no_more_processes_than_clients():
    with pytest.raises(ConfigurationError, match="8 processes cannot share 7 clients"):
        shares(planted_blocks(users=7), 8)


@pytest.mark.parametrize("name", ["popularity", "lightgcn"])
def test_what_has_no_clients_that_train_is_not_shared(name):
    share = shares(planted_blocks(users=7), 2)[0]
    with pytest.raises(
        ConfigurationError,
        match=f"{name}: several processes cannot share its training, because it has no clients that train.",
    ):
        make_learner(name, share, settings_of(name), 0, LOOP.make(), communicator=Member(0, 2))


def test_tensors_are_dealt_out_by_clients_and_put_together_again():
    whole = {
        "shared/Q": torch.arange(6.0), "kept/p": torch.arange(10.0).reshape(5, 2), "optimiser/p/steps": torch.arange(5.0),
        "clients/joined": torch.tensor([True, False, True, True, False]), "rounds": torch.tensor(2),
        "clients/took_part": torch.arange(10).reshape(2, 5), "extra/abundance/Q/after": torch.arange(5.0).double(),
    }  # fmt: skip
    parts = split_state(whole, Member(0, 2))
    assert parts[0]["kept/p"].tolist() == [[0, 1], [2, 3]]
    assert parts[1]["clients/took_part"].tolist() == [[2, 3, 4], [7, 8, 9]]
    assert torch.equal(parts[1]["shared/Q"], whole["shared/Q"])
    again = merge_state(parts)
    assert again.keys() == whole.keys()
    assert all(torch.equal(again[name], value) for name, value in whole.items())


def test_what_the_clients_of_a_process_never_came_to_have_is_filled_in():
    """Moments of clients that never trained are zero; what was not recorded of them is unknown."""
    first = {
        "clients/joined": torch.ones(2),
        "optimiser/p/steps": torch.ones(2),
        "extra/abundance/Q/after": torch.ones(2).double(),
    }
    again = merge_state([first, {"clients/joined": torch.ones(3)}])
    assert again["optimiser/p/steps"].tolist() == [1, 1, 0, 0, 0]
    assert again["extra/abundance/Q/after"].isnan().tolist() == [False, False, True, True, True]


def test_one_process_stores_what_it_has():
    tensors = {"kept/p": torch.ones(1)}
    assert merge_state([tensors]) is tensors
    assert split_state(tensors, SINGLE) == [tensors]
