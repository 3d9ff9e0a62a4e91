"""pFedGraph: who weighs how much in whose table, who goes on from it, and the pull of the others' direction."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from fedrec.federation.model.tables import PlainTable, Values
from fedrec.federation.server.uploads import FlatUploads
from fedrec.federation.state.dense import DenseClientTensor
from tests.by_hand import ENGINES, asked_of_a_client, clients_with, everyone, federation_of, give, kept, near
from tests.federations import server_side

pytestmark = pytest.mark.usefixtures("double_precision")
both_engines = pytest.mark.parametrize("engine", ENGINES, ids=["loop", "batched"])
POSITIVES = [[0], [1, 2], [3, 4, 5]]
SHARES = torch.tensor([1 / 6, 2 / 6, 3 / 6], dtype=torch.float64)


def method_of(*changes, items=3, d=1):
    pool = [list(range(items))]
    return federation_of(
        "pfedgraph", clients_with([[0]], items, pool), f"d={d}", "negatives=1", *changes
    ).method


def mixing(uploads, share, *changes, start=None):
    """The weights of uploads of one number per item."""
    uploads = torch.as_tensor(uploads)
    items = uploads.shape[1]
    start = torch.zeros(items, 1) if start is None else torch.tensor(start).reshape(items, 1)
    side = server_side(torch.as_tensor(share), initial={"Q": start})
    return method_of(*changes, items=items).server.mix("G", FlatUploads(uploads), side)


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("alpha", [0.05, 0.8, 3.0])
def test_weights_solve_the_quadratic_programme_of_every_client(alpha):
    """alpha |x|^2 - (c_u + 2 alpha p) . x over the simplex, by a solver that knows nothing of projections."""
    uploads, share = drawn(6, 10), np.array([0.05, 0.1, 0.15, 0.2, 0.2, 0.3])
    uploads[1] = uploads[0] + 0.1 * uploads[1]
    start = drawn(10, seed=1)
    ways = (uploads - start).numpy()
    cosine = ways @ ways.T / np.outer(np.linalg.norm(ways, axis=1), np.linalg.norm(ways, axis=1))
    assert 0.9 < cosine[0, 1] < 1
    cosine[cosine > 0.9] = 1
    found = mixing(uploads, share, f"alpha={alpha}", start=start.tolist())
    for own, weights in zip(cosine, found.numpy(), strict=True):
        linear = -own - 2 * alpha * share
        solved = minimize(
            lambda x, linear=linear: alpha * x @ x + linear @ x,
            np.full(6, 1 / 6),
            jac=lambda x, linear=linear: 2 * alpha * x + linear,
            method="SLSQP",
            bounds=[(0, None)] * 6,
            constraints={"type": "eq", "fun": lambda x: x.sum() - 1, "jac": np.ones_like},
            options={"ftol": 1e-15, "maxiter": 1000},
        )
        assert solved.success
        assert np.allclose(weights, solved.x, atol=1e-5)


def test_weights_by_hand():
    # Cosines 0.6, 0 and 0.8; data sizes plus half of them: the first client's (0.7, 0.6, 0.5) is 0.8 too much.
    found = mixing([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]], [0.2, 0.3, 0.5], "alpha=1")
    wanted = torch.tensor([[0.7, 0.6, 0.5], [0.5, 0.8, 0.9], [0.2, 0.7, 1.0]])
    expected = wanted - torch.tensor([[0.8 / 3], [1.2 / 3], [0.9 / 3]])
    # The third client would give the first -0.1: it gives nothing, and the others 0.7 - 0.35 and 1 - 0.35.
    expected[2] = torch.tensor([0.0, 0.35, 0.65])
    assert near(found, expected)


def test_among_strangers_the_own_weight_is_the_data_size_and_most_of_the_similarity():
    """At right angles: p_u + (1 - 1/s) / (2 alpha) for oneself, p_v - 1 / (2 alpha s) for the others."""
    share = torch.tensor([0.15, 0.25, 0.35, 0.25])
    found = mixing(3 * torch.eye(4), share, "alpha=2")
    assert near(found, share.expand(4, -1) - 1 / 16 + torch.eye(4) / 4)
    assert near(found.diagonal(), share + (1 - 1 / 4) / (2 * 2))
    # At the official 0.8 and data sizes of a tenth or less nothing else has a place: 0.625 + p.
    many = mixing(torch.eye(100), torch.full((100,), 0.01), "alpha=0.8")
    assert near(many.diagonal(), torch.full((100,), 0.01 + 0.625 * 0.99))


def test_a_large_alpha_leaves_data_sizes_and_a_small_one_the_client_itself():
    share = torch.tensor([0.2, 0.3, 0.5])
    uploads = drawn(3, 10)
    assert near(mixing(uploads, share, "alpha=1000000"), share.expand(3, -1), within=1e-6)
    assert near(mixing(uploads, share, "alpha=0.001"), torch.eye(3))


def test_it_is_the_way_from_the_first_table_that_is_compared():
    start = [10.0, 10.0]
    uploads = [[11.0, 10.0], [10.0, 11.0], [12.0, 10.2]]
    share = [1 / 3] * 3
    # From the first table the first client went the third's way and at right angles to the second's.
    found = mixing(uploads, share, "alpha=1", start=start)
    assert near(found[0], torch.tensor([0.5, 0.0, 0.5]))
    # From zero all three point the same way.
    assert near(mixing(uploads, share, "alpha=1"), torch.full((3, 3), 1 / 3))


@both_engines
def test_every_client_gets_its_own_mixture_by_its_way_since_the_beginning(engine):
    """Also in the second round, when clients have started from other tables."""
    clients = clients_with(POSITIVES, items=10)
    federation = federation_of(
        "pfedgraph", clients, "d=2", "rate=0.1", "local_epochs=3", "aggregated=1", "alpha=2", engine=engine
    )
    first = federation.state.initial["Q"].flatten().clone()
    for round_ in (1, 2):
        report = federation.train_round(round_)
        sent = kept(federation, "Q").flatten(1)
        unit = torch.nn.functional.normalize(sent - first)
        cosine = torch.where(unit @ unit.T > 0.9, 1.0, unit @ unit.T)
        wanted = SHARES + cosine / 4
        weights = wanted - (wanted.sum(1, keepdim=True) - 1) / 3
        assert (weights > 0).all()
        assert near(kept(federation, "G").flatten(1), weights @ sent, within=1e-10)
        assert (report.up, report.down) == (20, 20)
    assert not federation.state.shared
    assert torch.equal(federation.state.initial["Q"].flatten(), first)


def test_what_is_asked_of_a_client():
    clients = clients_with([[0]], items=5)
    plain = asked_of_a_client(federation_of("pfedgraph", clients))
    assert plain.events == [("rewrite", "Q"), ("fit", {"Q", "p"}), ("upload", "Q", "G")]
    pulled = asked_of_a_client(federation_of("pfedgraph", clients, "penalty=0.5"))
    assert pulled.events == [("rewrite", "Q"), ("fit", {"Q"}, {"Q", "p"}), ("upload", "Q", "G")]


def test_the_penalty_is_plain_sgd_at_the_rate_of_the_round_and_the_task_is_adam():
    federation = federation_of(
        "pfedgraph",
        clients_with([[0]], items=5),
        "penalty=0.5",
        "rate=0.2",
        "round_decay=0.5",
        "batch_decay=0.9",
    )
    penalty, task = asked_of_a_client(federation, round_=3).steps[0]
    assert (penalty.optimiser, task.optimiser) == ("sgd", "adam")
    assert penalty.rates == {"Q": 0.2 / 4}
    assert task.rates == {"Q": 0.2 / 4, "p": 0.2 / 4}
    assert penalty.batch_decay == task.batch_decay == 0.9
    assert penalty.loss is not None
    # What a client reports, and stops by, is the loss of its last step: the task's.
    assert task.loss is None


@both_engines
def test_a_client_stops_early_by_its_task_and_not_by_its_penalty(engine):
    """In the first round the penalty is 0 and would stop everyone after the second epoch."""
    clients = clients_with(POSITIVES, items=10)
    common = ("d=2", "rate=0.1", "local_epochs=6", "early_stop=0.0001", "aggregated=1")
    with_it, without = (
        federation_of("pfedgraph", clients, *common, f"penalty={penalty}", engine=engine)
        for penalty in (0.5, 0)
    )
    assert with_it.train_round(1).loss == pytest.approx(without.train_round(1).loss)
    assert near(kept(with_it, "Q"), kept(without, "Q"))


@both_engines
def test_only_aggregated_clients_get_a_table_and_start_from_it(engine):
    """Nothing learns: who got a table has it for its own after the next round, the others keep theirs."""
    clients = clients_with([[0], [1, 2], [3, 4, 5], [6], [7, 8]], items=14)
    federation = federation_of("pfedgraph", clients, "d=2", "rate=0", "aggregated=0.4", engine=engine)
    federation.train_round(1)
    held = federation.state.held.clone()
    assert held.sum() == 2
    own, given = drawn(5, 14, 2), drawn(5, 14, 2, seed=1)
    federation.state.client_tensors["Q"].put(everyone(federation), own)
    federation.state.client_tensors["G"].put(everyone(federation), given)
    federation.train_round(2)
    assert near(kept(federation, "Q"), torch.where(held[:, None, None], given, own))


@both_engines
def test_clients_that_are_not_aggregated_train_alone(engine):
    clients = clients_with([[0], [1, 2], [3, 4, 5], [6], [7, 8]], items=14)
    common = ("d=2", "rate=0.1", "batch_size=1000", "local_epochs=2")
    together = federation_of("pfedgraph", clients, *common, "aggregated=0.4", "alpha=0.8", engine=engine)
    alone = federation_of("local-only", clients, *common, engine=engine)
    for one in (together, alone):
        one.train_round(1)
    for name in ("Q", "p"):
        assert near(kept(together, name), kept(alone, name))
    held = together.state.held.clone()
    assert held.sum() == 2
    for one in (together, alone):
        one.train_round(2)
    own, local = kept(together, "Q"), kept(alone, "Q")
    assert near(own[~held], local[~held])
    assert not any(near(own[client], local[client], within=1e-3) for client in held.nonzero())


@both_engines
def test_users_are_scored_with_the_aggregate_of_this_round_or_else_with_their_own_table(engine):
    clients = clients_with([[0], [1, 2], [3, 4, 5], [6]], items=12)
    federation = federation_of("pfedgraph", clients, "d=2", "rate=0.1", "aggregated=0.5", engine=engine)
    items = torch.arange(12).expand(4, -1)
    ever = torch.zeros(4, dtype=torch.bool)
    for round_ in range(1, 5):
        federation.train_round(round_)
        held = federation.state.held
        assert held.sum() == 2
        table = torch.where(held[:, None, None], kept(federation, "G"), kept(federation, "Q"))
        expected = (table * kept(federation, "p")).sum(-1)
        assert near(federation.scores(everyone(federation), items), expected)
        # A table of an earlier round is not scored with.
        lapsed = ever & ~held
        ever |= held
    assert lapsed.any()


@both_engines
def test_only_the_item_table_leaves_the_client_and_it_leaves_once(engine):
    clients = clients_with(POSITIVES, items=10)
    federation = federation_of("pfedgraph", clients, "d=2", "penalty=0.5", "aggregated=1", engine=engine)
    report = federation.train_round(1)
    # The server sends the aggregate and the direction of the others.
    assert (report.up, report.down) == (10 * 2, 2 * 10 * 2)
    assert federation.state.parameters["p"].location == "private"


PENALISED = ("d=1", "penalty=0.5", "rate=0.1", "optimiser=adam")


def penalty_of(own, others, held, *changes):
    """The value of the penalty on a table of one number per item, and its gradient."""
    table = torch.tensor(own).unsqueeze(1).requires_grad_()
    w = Values(
        Q=PlainTable(table), R=PlainTable(torch.tensor(others).unsqueeze(1)), held=torch.tensor([[held]])
    )
    found = method_of(*PENALISED, *changes, items=len(own)).penalty(w, None)
    found.backward()
    return float(found.detach()), table.grad.squeeze(1).tolist()


def test_the_penalty_and_its_gradient_by_hand():
    # Own (3, 4), others (1, 0): the cosine is 0.6, its slope ((1, 0) - 0.6 (0.6, 0.8)) / 5 = (0.128, -0.096).
    value, slope = penalty_of([3.0, 4.0], [1.0, 0.0], 1.0)
    assert value == pytest.approx(-0.5 * 0.6)
    assert slope == pytest.approx([-0.5 * 0.128, 0.5 * 0.096])
    value, slope = penalty_of([3.0, 4.0], [1.0, 0.0], 1.0, "sign=plus")
    assert value == pytest.approx(0.5 * 0.6)
    assert slope == pytest.approx([0.5 * 0.128, -0.5 * 0.096])


def test_who_got_nothing_has_no_penalty():
    assert penalty_of([3.0, 4.0], [1.0, 0.0], 0.0) == (0.0, [0.0, 0.0])


@pytest.mark.parametrize("sign", ["minus", "plus"])
@both_engines
def test_the_penalty_turns_rows_without_samples_too(engine, sign):
    """Untouched rows go rate x penalty along the slope, and not Adam's full step; who got nothing stays."""
    clients = clients_with([[0], [0]], items=4, allowed=[[1], [1]])
    federation = federation_of(
        "pfedgraph", clients, *PENALISED, f"sign={sign}", "negatives=1", "local_epochs=1", "aggregated=0.5",
        engine=engine,
    )  # fmt: skip
    # p = 0 and nothing to be learnt for Q in its first step: the samples' rows move by the penalty alone.
    give(federation, p=[0.0])
    own = torch.tensor([1.0, 1.0, 1.0, 1.0]).reshape(4, 1)
    federation.state.held[0] = True
    for name, value in (("Q", own), ("G", own), ("R", torch.tensor([[0.0], [0.0], [1.0], [0.0]]))):
        federation.state.client_tensors[name].fill(everyone(federation), value)
    federation.train_round(1)
    # The cosine is 1/2; its slope (0, 0, 1, 0) / 2 - (1, 1, 1, 1) / 8.
    slope = torch.tensor([-1 / 8, -1 / 8, 3 / 8, -1 / 8]).reshape(4, 1)
    towards = 1 if sign == "minus" else -1
    assert near(kept(federation, "Q")[0], own + towards * 0.1 * 0.5 * slope)
    assert torch.equal(kept(federation, "Q")[1], own)


def test_the_direction_of_the_others_is_the_mixture_at_unit_length():
    """Two clients at right angles with tables of length 5 and 2, weights 3/4 and 1/4 each way."""
    share = torch.tensor([0.5, 0.5])
    method = method_of("penalty=0.5", "alpha=1", items=2)
    reference = DenseClientTensor(torch.zeros(2, 1), 2)
    side = server_side(share, initial={"Q": torch.zeros(2, 1)}, personal={"R": reference})
    weights = method.server.mix("G", FlatUploads(torch.tensor([[3.0, 4.0], [-1.6, 1.2]])), side)
    assert near(weights, torch.tensor([[0.75, 0.25], [0.25, 0.75]]))
    expected = torch.tensor([[0.75 * 0.6 - 0.25 * 0.8, 0.75 * 0.8 + 0.25 * 0.6], [-0.45, 0.65]])
    assert near(reference.whole(torch.arange(2)).squeeze(-1), expected)


@both_engines
def test_the_direction_is_made_of_what_was_uploaded(engine):
    """Noise on uploads: the aggregate and the direction come from the same noised tables."""
    clients = clients_with(POSITIVES, items=10)
    federation = federation_of(
        "pfedgraph", clients, "d=2", "penalty=0.5", "aggregated=1", "alpha=0.001", "ldp=0.1", engine=engine
    )
    federation.train_round(1)
    # With this alpha everyone's mixture is its own upload.
    sent = kept(federation, "G")
    assert not near(sent, kept(federation, "Q"), within=0.1)
    length = sent.flatten(1).norm(dim=1)[:, None, None]
    assert near(kept(federation, "R"), sent / length)


@both_engines
def test_the_penalty_brings_clients_together_or_drives_them_apart(engine):
    """The cosine with the others' direction: larger after a round with it subtracted, smaller with it added."""
    clients = clients_with(POSITIVES, items=10)
    cosines = []
    for changes in (("penalty=20", "sign=minus"), ("penalty=0.000001",), ("penalty=20", "sign=plus")):
        federation = federation_of(
            "pfedgraph",
            clients,
            "d=2",
            "rate=0.01",
            "aggregated=1",
            "local_epochs=3",
            *changes,
            engine=engine,
        )
        federation.train_round(1)
        others = kept(federation, "R").flatten(1)
        federation.train_round(2)
        own = kept(federation, "Q").flatten(1)
        cosines.append(torch.nn.functional.cosine_similarity(own, others).mean())
    assert cosines[0] > cosines[1] > cosines[2]
    assert math.isfinite(float(cosines[0]))
