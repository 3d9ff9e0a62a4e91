"""Whole tables after a round: made of what clients started from, events, and the rows that were trained."""

import pytest
import torch

from fedrec.errors import DivergenceError, FederationError
from fedrec.federation.engines.batched.replay import EveryRow
from fedrec.federation.model.tables import LazyValues, sampled
from fedrec.federation.state.dense import DenseClientTensor
from tests.by_hand import clients_with, federation_of

pytestmark = pytest.mark.usefixtures("double_precision")


def test_a_table_is_looked_up_when_it_is_first_asked_for():
    asked = []
    tables = LazyValues(lambda name: asked.append(name) or torch.zeros(2, 3, 1))
    every = torch.arange(3).expand(2, -1)
    seen = EveryRow({"p": torch.ones(2, 1, 1)}, tables, every)
    assert asked == []
    assert seen.p.tolist() == [[[1.0]], [[1.0]]]
    assert seen.Q[every] is tables["Q"]
    assert asked == ["Q"]
    assert seen.Q[sampled(every)] is tables["Q"]
    with pytest.raises(FederationError, match="look up rows of a table only by the items of the argument"):
        seen.Q[torch.tensor([[0], [1]])]


@pytest.mark.parametrize("clients", [1, 3])
def test_the_server_s_table_is_not_written_into(clients):
    """PerFedRec's clients take over the server's table, train some of its rows and send all."""
    federation = federation_of("perfedrec", clients_with([[0]] * clients, items=6), "d=2", "local_epochs=1")
    before = federation.state.shared["Q"]
    copy = before.clone()
    federation.train_round(1)
    assert torch.equal(before, copy)
    assert not torch.equal(federation.state.shared["Q"], copy)


def test_a_table_that_no_round_rewrites_is_stored_by_its_rows(monkeypatch):
    """PFedGraph rewrites Q, whose every row is stored once; FedMF's clients store nothing but p."""
    stored = []
    for name in ("put", "put_rows"):
        plain = getattr(DenseClientTensor, name)

        def heard(self, *arguments, name=name, plain=plain):
            if self.value.dim() == 3 and self.value.shape[1] == 6:
                stored.append(name)
            return plain(self, *arguments)

        monkeypatch.setattr(DenseClientTensor, name, heard)
    clients = clients_with([[0], [1]], items=6)
    federation_of("pfedgraph", clients, "d=2", "local_epochs=1", "aggregated=1").train_round(1)
    # Once what is sent into G, once Q.
    assert stored == ["put", "put"]
    stored.clear()
    federation_of("pfedclr", clients, "d=2", "local_epochs=1", "participation=1").train_round(1)
    assert stored == ["put_rows", "put_rows"]


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), float("-inf")])
def test_one_broken_number_is_found_and_named(broken):
    federation = federation_of("fedmf", clients_with([[0], [1], [2]], items=6), "d=2", "participation=1")
    federation.state.client_tensors["p"].value[1, 0, 1] = broken
    with pytest.raises(DivergenceError, match="client 1: training diverged"):
        federation.train_round(1)


def test_large_numbers_whose_sum_has_no_room_are_not_broken():
    federation = federation_of("fedmf", clients_with([[0], [1], [2]], items=6), "d=2", "participation=1")
    federation.state.client_tensors["p"].value[:] = 1e308
    federation.state.shared["Q"].zero_()
    assert torch.isfinite(torch.tensor(federation.train_round(1).loss))
