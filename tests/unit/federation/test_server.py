"""How the server makes one table of many: by shares, over those that changed a row, or by how far it moved."""

import pytest
import torch
from torch.nn import functional

from fedrec.errors import FederationError
from fedrec.federation.privacy.noise import laplace
from fedrec.federation.server.server import Server
from tests.by_hand import ENGINES, clients_with, federation_of, near

pytestmark = pytest.mark.usefixtures("double_precision")
both_engines = pytest.mark.parametrize("engine", ENGINES, ids=["loop", "batched"])

CHANGES = [
    # Item 0 is moved by both, item 1 by the second client alone, item 2 by nobody.
    [[3.0, -1.0], [0.0, 0.0], [0.0, 0.0]],
    [[-1.0, 1.0], [2.0, 0.0], [0.0, 0.0]],
]
EXPECTED = {
    # Shares 3/4 and 1/4.
    "mean": [[2.0, -0.5], [0.5, 0.0], [0.0, 0.0]],
    "touched": [[2.0, -0.5], [2.0, 0.0], [0.0, 0.0]],
    # L1 norms 4 and 2, whatever the shares, and one weight for the whole row.
    "change": [[10 / 6, -2 / 6], [2.0, 0.0], [0.0, 0.0]],
}


def server_of(combine, share):
    clients = clients_with([[0]] * len(share), items=3)
    federation = federation_of("fedmf", clients, "d=2", "negatives=1", f"combine={combine}")
    federation.state.shared["Q"] = torch.full((3, 2), 10.0)
    return Server(federation.state, torch.tensor(share, dtype=torch.float64), seed=0, round_=1)


def answered(server):
    server.aggregate(lambda *_: None)
    return (server.state.shared["Q"] - 10).tolist()


@pytest.mark.parametrize("combine", EXPECTED)
def test_whole_tables_by_hand(combine):
    server = server_of(combine, [0.75, 0.25])
    server.receive("Q", torch.tensor([0, 1]), torch.tensor(CHANGES))
    assert answered(server) == [pytest.approx(row) for row in EXPECTED[combine]]


@pytest.mark.parametrize("combine", EXPECTED)
def test_one_client_after_another_by_hand(combine):
    server = server_of(combine, [0.75, 0.25])
    for client in (1, 0):
        server.receive("Q", torch.tensor([client]), torch.tensor(CHANGES[client : client + 1]))
    assert answered(server) == [pytest.approx(row) for row in EXPECTED[combine]]


@pytest.mark.parametrize("combine", EXPECTED)
def test_changed_rows_by_hand(combine):
    """A row that is sent unchanged (item 1 of the first client) counts as one that is not sent."""
    server = server_of(combine, [0.75, 0.25])
    who, item = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    server.receive_rows("Q", torch.arange(2), who, item, torch.tensor(CHANGES)[who, item])
    assert answered(server) == [pytest.approx(row) for row in EXPECTED[combine]]


@pytest.mark.parametrize("combine", EXPECTED)
def test_who_is_not_aggregated_does_not_count(combine):
    changes = torch.tensor([*CHANGES, [[100.0, 100.0], [100.0, 0.0], [0.0, 1.0]]])
    for whole in (True, False):
        server = server_of(combine, [0.75, 0.25, 0.0])
        if whole:
            server.receive("Q", torch.arange(3), changes)
        else:
            who, item = torch.arange(3).repeat_interleave(3), torch.arange(3).repeat(3)
            server.receive_rows("Q", torch.arange(3), who, item, changes[who, item])
        assert answered(server) == [pytest.approx(row) for row in EXPECTED[combine]]


@pytest.mark.parametrize("combine", EXPECTED)
@pytest.mark.parametrize("blocks", [[[0, 1, 2]], [[2, 0], [1]]])
def test_values_as_they_are_count_as_the_changes_they_make(combine, blocks):
    values = 10 + torch.tensor([*CHANGES, [[100.0, 100.0], [100.0, 0.0], [0.0, 1.0]]])
    server = server_of(combine, [0.75, 0.25, 0.0])
    for block in blocks:
        server.receive_values("Q", torch.tensor(block), values[block])
    assert answered(server) == [pytest.approx(row) for row in EXPECTED[combine]]


@pytest.mark.parametrize("share", [[0.5, 0.5, 0.0], [0.25, 0.5, 0.25]])
def test_personal_values_are_taken_as_they_are_from_those_who_are_aggregated(share):
    federation = federation_of("pfedgraph", clients_with([[0]] * 3, items=3), "d=2", "negatives=1")
    before = federation.state.client_tensors["G"].whole(torch.arange(3))
    server = Server(federation.state, torch.tensor(share, dtype=torch.float64), seed=0, round_=1)
    values = torch.arange(18.0).reshape(3, 3, 2)
    server.receive_values("G", torch.tensor([2, 0, 1]), values[[2, 0, 1]])
    sent = torch.tensor(share)[:, None, None] > 0
    assert torch.equal(
        federation.state.client_tensors["G"].whole(torch.arange(3)), torch.where(sent, values, before)
    )


@pytest.mark.parametrize("combine", ["touched", "change"])
def test_tables_that_shrink_as_a_whole_have_a_mean_alone(combine):
    server = server_of(combine, [0.75, 0.25])
    with pytest.raises(FederationError, match="every row of 'Q' decays"):
        server.receive_scaling("Q", torch.tensor([0]), torch.tensor([0.1]))


def own_change(federation, client):
    """What a client adds to Q in one step of SGD with rate 0.5."""
    samples = federation.clients.samples(torch.tensor([client]), 1, federation.seed, 1)
    table = federation.state.initial["Q"].clone().requires_grad_()
    scores = (table[samples.item] * federation.state.initial["p"]).sum(-1)
    (gradient,) = torch.autograd.grad(
        functional.binary_cross_entropy_with_logits(scores, samples.label), table
    )
    return -0.5 * gradient


@both_engines
@pytest.mark.parametrize("combine", EXPECTED)
@pytest.mark.parametrize("scale", [0.0, 0.3])
def test_noise_is_part_of_what_is_combined(engine, combine, scale):
    """And since it falls on every row, every client has then touched every row."""
    clients = clients_with([[0], [1, 2, 3]], items=6)
    federation = federation_of(
        "fedmf", clients, "d=2", "negatives=1", "participation=1", "optimiser=sgd", "local_epochs=1",
        "rate=0.5", f"ldp={scale}", f"combine={combine}", engine=engine, seed=5,
    )  # fmt: skip
    sent = torch.stack([own_change(federation, client) for client in (0, 1)])
    if scale:
        sent = sent + laplace(torch.arange(2), 12, scale, seed=5, round_=1).reshape(2, 6, 2)
    federation.train_round(1)
    far = sent.abs().sum(-1, keepdim=True)
    by_size = torch.tensor([0.25, 0.75])[:, None, None].expand(2, 6, 1)
    weight = {"mean": by_size, "touched": by_size * (far > 0), "change": far}[combine]
    expected = (weight * sent).sum(0) / weight.sum(0).clamp(min=1e-12)
    assert near(federation.state.shared["Q"] - federation.state.initial["Q"], expected)
