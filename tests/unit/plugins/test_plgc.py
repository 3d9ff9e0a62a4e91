"""PLGC: mixing by norms, redundancy of two views, and the tables C and G."""

import math

import numpy as np
import pytest
import torch

from fedrec.errors import ConfigurationError
from fedrec.federation.engines.batched.schedule import BlockBatch
from fedrec.federation.model.tables import PlainBatch, PlainTable, Values
from fedrec.plugins._losses import (
    alignment_and_uniformity,
    column_cosines,
    contrast,
    decorrelation,
)
from fedrec.plugins.plgc import repeated_columns
from tests.by_hand import ENGINES, asked_of_a_client, clients_with, everyone, federation_of, kept, near

pytestmark = pytest.mark.usefixtures("double_precision")
both_engines = pytest.mark.parametrize("engine", ENGINES, ids=["loop", "batched"])
ALL = torch.ones(3, 1, dtype=torch.float64)
POSITIVES = [[0], [1, 2], [3, 4, 5]]
SHARES = torch.tensor([1 / 6, 2 / 6, 3 / 6], dtype=torch.float64)[:, None, None]
GENTLE = ("item_factor=1", "item_scale=one", "rate=0.5", "head_rate=0.1")


def test_lambda_is_the_share_of_the_own_tables_squared_norm():
    method = federation_of("fedmf+plgc", clients_with([[0]], items=5), "d=2").method
    own, other = torch.tensor([[3.0, 0.0], [0.0, 4.0]]), torch.tensor([[5.0, 5.0], [5.0, 0.0]])
    w = Values(Q=PlainTable(own), G=PlainTable(other))
    # 25 / (25 + 75).
    w |= method.derived(w)
    assert float(w.lambda_c) == pytest.approx(0.25)
    assert method.view(w).Q[torch.tensor([0, 1])].tolist() == [[0.75 + 3.75, 3.75], [3.75, 1.0]]


def test_a_backbone_whose_own_table_is_left_out_is_refused():
    with pytest.raises(ConfigurationError, match="own table D"):
        federation_of("fedrap+plgc", clients_with([[0]], items=5), "d=2", "tables=shared")


@both_engines
def test_lambda_is_found_anew_in_every_epoch(engine):
    """The score of every mini-batch, as the method computes it, by the whole tables before its epoch."""
    clients = clients_with([[0, 1], [2]], items=8)
    federation = federation_of(
        "fedmf+plgc", clients, *GENTLE, "d=2", "batch_size=1000", "local_epochs=3", "redundancy=none",
        "optimiser=sgd", "batch_decay=1", "participation=1", "rate=2", "item_factor=3", engine=engine,
    )  # fmt: skip
    q, g, p = (federation.state.initial[name].clone() for name in ("G", "G", "p"))
    federation.train_round(1)
    samples = clients.samples(torch.tensor([0]), 4, 0, 1)
    lambdas = []
    for _ in range(3):
        lambdas.append(float(q.square().sum() / (q.square().sum() + g.square().sum())))
        q.requires_grad_()
        p.requires_grad_()
        mixed = lambdas[-1] * q[samples.item] + (1 - lambdas[-1]) * g[samples.item]
        loss = torch.nn.functional.binary_cross_entropy_with_logits((mixed * p).sum(-1), samples.label)
        loss.backward()
        q, p = (q - 6 * q.grad).detach(), (p - 2 * p.grad).detach()
    assert near(kept(federation, "Q")[0], q)
    assert near(kept(federation, "p")[0], p)
    assert lambdas[0] == 0.5
    assert len(set(lambdas)) == 3


@both_engines
@pytest.mark.parametrize("name", ["fedmf+plgc", "fedrap+plgc"])
def test_a_kept_mix_takes_the_place_of_the_own_table_when_a_round_begins(name, engine):
    """Without a step after it, the mix is all a round does to C."""
    still = ("rate=0", "head_rate=0", "item_rate=0") if "fedrap" in name else ("rate=0", "head_rate=0")
    clients = clients_with([[0, 1], [2]], items=8)
    federations = [
        federation_of(name, clients, "d=2", f"kept={what}", *still, "participation=1", engine=engine)
        for what in ("own", "mixed")
    ]
    own, other = federations[0].method.tables
    c = torch.linspace(-1, 2, 32).reshape(2, 8, 2)
    for federation in federations:
        federation.state.joined[:] = True
        federation.state.client_tensors[own].put(everyone(federation), c)
    g = federations[0].state.shared[other].clone()
    for federation in federations:
        federation.train_round(1)
    squares = c.square().sum((1, 2))
    share = (squares / (squares + g.square().sum()))[:, None, None]
    assert near(kept(federations[0], own), c)
    assert near(kept(federations[1], own), share * c + (1 - share) * g)


def test_where_nothing_is_mixed_no_mix_is_kept():
    with pytest.raises(ConfigurationError, match="kept=own"):
        federation_of("fedmf+plgc", clients_with([[0]], items=5), "d=2", "mixing=off", "kept=mixed")


OWN = torch.tensor([[1.0, 0.0], [1.0, 3.0], [1.0, 4.0]], dtype=torch.float64)
OTHER = torch.tensor([[0.0, 5.0], [0.0, 0.0], [2.0, 0.0]], dtype=torch.float64)
# Columns of OWN have lengths sqrt(3) and 5, of OTHER 2 and 5. Products: 1 x 2, 1 x 5, 4 x 2 and 0.
H = [[2 / (2 * math.sqrt(3)), 5 / (5 * math.sqrt(3))], [8 / 10, 0.0]]


def test_cosines_of_columns_by_hand():
    assert near(column_cosines(OWN, OTHER, ALL), torch.tensor(H))


def test_redundancy_by_hand():
    agree = (1 - 1 / math.sqrt(3)) ** 2 + 1
    apart = 1 / 3 + 0.64
    assert float(repeated_columns(OWN, OTHER, ALL, 0.1)) == pytest.approx((agree + 0.1 * apart) / 2)


def test_only_chosen_samples_count():
    chosen = torch.tensor([[1.0], [1.0], [1.0], [0.0]])
    stray = torch.tensor([[7.0, -7.0]])
    own, other = torch.cat((OWN, stray)), torch.cat((OTHER, -2 * stray))
    for redundancy in (
        lambda a, b, mask: repeated_columns(a, b, mask, 0.1),
        alignment_and_uniformity,
        contrast,
        lambda a, _, mask: decorrelation(a, mask),
    ):
        one, other_one = redundancy(OWN, OTHER + 1, ALL), redundancy(own, other + 1, chosen)
        assert near(one, other_one)


def test_a_column_of_zeros_has_a_finite_gradient():
    own = torch.tensor([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]], requires_grad=True)
    repeated_columns(own, OTHER, ALL, 0.1).backward()
    assert own.grad.isfinite().all()


def test_alignment_and_uniformity_by_hand():
    # Two items at right angles in both views: squared distance 2, exp(-4), and its logarithm.
    views = torch.tensor([[3.0, 0.0], [0.0, 0.5]])
    chosen = torch.ones(2, 1)
    assert float(alignment_and_uniformity(views, views, chosen)) == pytest.approx(-4)
    # The other view turned round: squared distance 4 between the views of each item.
    assert float(alignment_and_uniformity(views, -views, chosen)) == pytest.approx(4 - 4)
    # One item alone has nothing to spread from.
    assert float(alignment_and_uniformity(views[:1], views[1:], torch.ones(1, 1))) == pytest.approx(2)


def test_contrast_by_hand():
    # Cosines 1 and 0, by a temperature of 0.1: each finds its own among 10 and 0.
    views = torch.tensor([[3.0, 0.0], [0.0, 0.5]])
    chosen = torch.ones(2, 1)
    assert float(contrast(views, views, chosen)) == pytest.approx(math.log(1 + math.exp(-10)))
    assert float(contrast(views, views.flip(0), chosen)) == pytest.approx(math.log(1 + math.exp(10)))


def test_decorrelation_by_hand():
    # Two columns on one line: a matrix of ones. Two that know nothing of each other: the identity.
    line = torch.tensor([[1.0, 5.0], [2.0, 3.0], [3.0, 1.0]])
    assert float(decorrelation(line, ALL)) == pytest.approx(4 / 4)
    cross = torch.tensor([[1.0, 7.0], [-1.0, 7.0], [0.0, 8.0], [0.0, 6.0]])
    assert float(decorrelation(cross, torch.ones(4, 1))) == pytest.approx(2 / 4)


def test_every_distinct_item_of_a_mini_batch_counts_once():
    items = [4, 1, 4, 4, 2, 1]
    assert PlainBatch(torch.tensor(items), torch.zeros(6)).distinct().tolist() == [1, 1, 0, 0, 1, 0]
    # Two clients; the second has two samples, filled up with its first one.
    batch = BlockBatch(
        torch.tensor([items, [9, 8, 9, 9, 9, 9]]),
        torch.zeros(2, 6),
        torch.tensor([[1 / 6] * 6, [0.5, 0.5, 0, 0, 0, 0]]),
        0,
        lambda: None,
    )
    assert batch.distinct().tolist() == [[1, 1, 0, 0, 1, 0], [1, 1, 0, 0, 0, 0]]


def loss_of_a_batch(items, own, other, *changes):
    """The loss with a head that leaves positive rows as they are, and with p = 0: the entropy is log 2."""
    d = len(own[0])
    federation = federation_of("fedmf+plgc", clients_with([[0]], items=5), f"d={d}", f"head={d}", *changes)
    w = Values(Q=PlainTable(torch.tensor(own)), G=PlainTable(torch.tensor(other)), p=torch.zeros(1, d))
    w |= {f"head.{layer}": torch.eye(d) for layer in (0, 1)}
    w |= {f"head.{layer}.bias": torch.zeros(1, d) for layer in (0, 1)}
    w |= federation.method.derived(w)
    labels = torch.zeros(len(items))
    labels[0] = 1
    return float(asked_of_a_client(federation).losses[0](w, PlainBatch(torch.tensor(items), labels)))


@pytest.mark.parametrize("items", [[0, 1, 2], [0, 1, 2, 1, 1, 0]])
def test_the_loss_of_a_batch_by_hand(items):
    found = loss_of_a_batch(items, OWN.tolist(), OTHER.tolist(), "beta=0.3", "gamma=0.1")
    agree, apart = (1 - 1 / math.sqrt(3)) ** 2 + 1, 1 / 3 + 0.64
    assert found == pytest.approx(math.log(2) + 0.3 * (agree + 0.1 * apart) / 2)


def test_columns_can_be_centred_first():
    own, other = np.array([[1.0, 0.0], [1.5, 3.0], [1.0, 4.0]]), OTHER.numpy()
    found = loss_of_a_batch([0, 1, 2, 2], own.tolist(), other.tolist(), "beta=1", "gamma=1", "centred=yes")
    h = np.corrcoef(own.T, other.T)[:2, 2:]
    expected = ((1 - h.diagonal()) ** 2).sum() + (h**2).sum() - (h.diagonal() ** 2).sum()
    assert found == pytest.approx(math.log(2) + expected / 2, rel=1e-9)


@pytest.mark.parametrize(
    ("redundancy", "value"),
    [("none", 0.0), ("au", -4.0), ("duorec", math.log(1 + math.exp(-10))), ("feddecorr", 1.0)],
)
def test_other_redundancies_take_its_place(redundancy, value):
    # Columns (3, 0) and (0, 0.5) centred are opposite: a correlation of -1.
    views = [[3.0, 0.0], [0.0, 0.5]]
    found = loss_of_a_batch([0, 1, 0], views, views, "beta=0.5", f"redundancy={redundancy}")
    assert found == pytest.approx(math.log(2) + 0.5 * value)


def test_the_head_trains_with_the_own_table_and_the_servers_rests():
    clients = clients_with([[0]], items=5)
    head = {"head.0", "head.0.bias", "head.1", "head.1.bias"}
    for name, events in (
        ("fedmf+plgc", [("fit", {"Q", "p", *head}), ("upload", "Q", "G")]),
        ("pfedrec+plgc", [("fit", {"theta", "b"}, {"Q", *head}), ("upload", "Q", "G")]),
        ("fedrap+plgc", [("fit", {"C", "D", "u", "b", *head}), ("upload", "C", "C")]),
    ):
        assert asked_of_a_client(federation_of(name, clients)).events == events


@both_engines
@pytest.mark.parametrize("name", ["fedmf+plgc", "pfedrec+plgc"])
def test_the_servers_table_is_the_mean_of_the_own_ones_by_data_size(name, engine):
    clients = clients_with(POSITIVES, items=10)
    federation = federation_of(
        name, clients, *GENTLE, "d=2", "participation=1", "weighting=size", "local_epochs=2", engine=engine
    )
    for round_ in (1, 2):
        report = federation.train_round(round_)
        assert near(federation.state.shared["G"], (SHARES * kept(federation, "Q")).sum(0))
        assert report.up == 10 * 2
    assert not near(kept(federation, "Q")[0], kept(federation, "Q")[1])
    assert {"head.0", "head.1"} <= federation.state.client_tensors.keys()


@both_engines
def test_a_client_starts_from_the_servers_table_when_it_first_takes_part_and_never_again(engine):
    """Nothing learns, and the server has another number in every round: it tells when a client began."""
    clients = clients_with([[0], [1, 2], [3, 4, 5], [6], [7]], items=14)
    federation = federation_of(
        "fedmf+plgc", clients, "d=2", "rate=0", "redundancy=none", "participation=0.4", engine=engine, seed=1
    )
    before = kept(federation, "Q")
    joined = torch.zeros(5)
    took_part = 0
    for round_ in (1, 2, 3):
        federation.state.shared["G"] = torch.full((14, 2), float(round_))
        took_part += federation.train_round(round_).clients
        joined[federation.state.joined & (joined == 0)] = round_
    # Two by two: some join late, some come back, and one never comes.
    assert joined.max() == 3
    assert (joined == 0).any()
    assert took_part > int((joined > 0).sum())
    expected = torch.where(joined[:, None, None] > 0, joined[:, None, None], before)
    assert torch.equal(kept(federation, "Q"), expected)


@both_engines
def test_mixing_off_scores_with_the_own_table(engine):
    clients = clients_with(POSITIVES, items=10)
    on, off = (
        federation_of("fedmf+plgc", clients, *GENTLE, "d=2", f"mixing={mixing}", engine=engine)
        for mixing in ("on", "off")
    )
    items = torch.arange(10).expand(3, -1)
    for one in (on, off):
        one.train_round(1)
        q, g = kept(one, "Q"), one.state.shared["G"]
        own = q.square().sum((1, 2), keepdim=True)
        weight = own / (own + g.square().sum()) if one is on else 1.0
        expected = ((weight * q + (1 - weight) * g) * kept(one, "p")).sum(-1)
        assert near(one.scores(everyone(one), items), expected)


@both_engines
def test_a_backbone_with_two_tables_mixes_them(engine):
    clients = clients_with(POSITIVES, items=10)
    federation = federation_of(
        "fedrap+plgc", clients, "d=2", "item_rate=1", "head_rate=0.1", "participation=1", engine=engine
    )
    report = federation.train_round(1)
    assert report.up == 10 * 2
    assert "G" not in federation.state.parameters
    d, c = kept(federation, "D"), federation.state.shared["C"]
    own = d.square().sum((1, 2), keepdim=True)
    weight = own / (own + c.square().sum())
    expected = ((weight * d + (1 - weight) * c) * kept(federation, "u")).sum(-1) + kept(federation, "b")[:, 0]
    items = torch.arange(10).expand(3, -1)
    assert near(federation.scores(everyone(federation), items), expected)
