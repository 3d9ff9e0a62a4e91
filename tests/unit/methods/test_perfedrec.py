"""PerFedRec: propagation over a client's star, clusters of users, and three models in one score."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from fedrec.federation.model.tables import PlainTable, Values
from fedrec.federation.state.dense import DenseClientTensor
from fedrec.methods._math.clustering import clusters
from tests.by_hand import (
    ENGINES,
    asked_of_a_client,
    clients_with,
    everyone,
    federation_of,
    kept,
    near,
)
from tests.federations import server_side

pytestmark = pytest.mark.usefixtures("double_precision")
both_engines = pytest.mark.parametrize("engine", ENGINES, ids=["loop", "batched"])
POSITIVES = [[0], [1, 2], [3, 4, 5]]
ITEMS = 10
GENTLE = ("item_factor=1", "item_scale=one", "optimiser=sgd", "batch_decay=1", "rate=0.5", "batch_size=1000")
HEAD = {"head.0", "head.0.bias", "head.1", "head.1.bias"}


def federation_on(*changes, name="perfedrec", positives=POSITIVES, **others):
    return federation_of(name, clients_with(positives, ITEMS), *GENTLE, "d=2", *changes, **others)


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def propagated(table, p, own):
    """User and items after three layers over the star, as any graph: the mean of layers 0 to 3.

    An item outside the star has no edge, and nothing but its layer 0.
    """
    adjacency = torch.zeros(1 + len(table), 1 + len(table))
    adjacency[0, 1 + torch.tensor(own)] = 1
    adjacency[1 + torch.tensor(own), 0] = 1
    root = adjacency.sum(1).clamp(min=1).sqrt()
    adjacency = adjacency / (root.unsqueeze(1) * root)
    layers = [torch.cat((p, table))]
    for _ in range(3):
        layers.append(adjacency @ layers[-1])
    mean = torch.stack(layers).mean(0)
    return mean[0], mean[1:]


def official(table, p, own):
    """The same as the official code does it: means with oneself, three times of layer 0."""
    user = (p[0] + 3 * (p[0] + table[own].sum(0)) / (len(own) + 1)) / 4
    inside = torch.zeros(len(table), 1)
    inside[own] = 1
    return user, torch.where(inside == 1, (table + 3 * (table + p) / 2) / 4, table / 4)


def plain(table, p, own):  # noqa: ARG001 - as the others
    return p[0], table


FORWARD = {"star3": propagated, "official": official, "none": plain}


def weights_of(own, **tables):
    return Values(
        {name: PlainTable(table, torch.tensor(own)) for name, table in tables.items()},
        p=drawn(1, 2, seed=9),
        interactions=torch.full((1, 1), float(len(own))),
    )


@pytest.mark.parametrize("own", [[4], [0, 7], [1, 2, 3, 8, 9]])
def test_the_closed_form_is_propagation_over_the_star(own):
    table = drawn(ITEMS, 2)
    w = weights_of(own, L=table)
    user, items = propagated(table, w.p, own)
    inside = torch.zeros(ITEMS)
    inside[own] = 1
    found = federation_on().method.propagated(w, w.L, torch.arange(ITEMS), inside.unsqueeze(-1))
    assert near(found, items @ user)


def test_the_closed_form_by_hand():
    # Four items, each (1, 0) but the last, (1, 4); the user is (0, 2). The sum is (4, 4).
    w = weights_of([0, 1, 2, 3], L=torch.tensor([[1.0, 0.0]] * 3 + [[1.0, 4.0]] + [[8.0, 4.0]]))
    w["p"] = torch.tensor([[0.0, 2.0]])
    # User ((0, 2) + (2, 2)) / 2 = (1, 2); item 0 ((1, 0) + (0, 2) + (1, 1)) / 4; item 4 outside (2, 1).
    labels = torch.tensor([[1.0], [0.0]])
    found = federation_on().method.propagated(w, w.L, torch.tensor([0, 4]), labels)
    assert found.tolist() == pytest.approx([0.5 + 1.5, 2 + 2])
    # Official: user ((0, 2) + 3 x (4, 6) / 5) / 4 = (0.6, 1.4); item 0 ((1, 0) + 3 x (1, 2) / 2) / 4.
    method = federation_on("forward=official").method
    found = method.propagated(w, w.L, torch.tensor([0, 4]), labels)
    assert found.tolist() == pytest.approx([0.6 * 0.625 + 1.4 * 0.75, 0.6 * 2 + 1.4])


@both_engines
@pytest.mark.parametrize("forward", FORWARD)
def test_a_client_trains_what_is_propagated(engine, forward):
    """Gradients flow through the sum over training items too, whether or not it is the turn of the item."""
    federation = federation_on(f"forward={forward}", "local_epochs=3", engine=engine)
    start, vector = federation.state.shared["Q"].clone(), federation.state.initial["p"].clone()
    federation.train_round(1)
    for client, own in enumerate(POSITIVES):
        samples = federation.clients.samples(torch.tensor([client]), 4, 0, 1)
        q, p = start.clone().requires_grad_(), vector.clone().requires_grad_()
        sgd = torch.optim.SGD([q, p], lr=0.5)
        for _ in range(3):
            sgd.zero_grad()
            user, items = FORWARD[forward](q, p, own)
            score = items[samples.item] @ user
            functional.binary_cross_entropy_with_logits(score, samples.label).backward()
            sgd.step()
        assert near(kept(federation, "L")[client], q.detach())
        assert near(kept(federation, "p")[client], p.detach())


@both_engines
@pytest.mark.parametrize("forward", FORWARD)
@pytest.mark.parametrize("adaptation", ["all", "global", "cluster", "local"])
def test_the_score_is_the_mean_of_what_three_models_say(engine, forward, adaptation):
    """Of items nobody trained on, propagated as in training; the official code does not propagate here."""
    federation = federation_on(f"forward={forward}", f"adaptation={adaptation}", "clusters=2", engine=engine)
    for round_ in (1, 2, 3):
        federation.train_round(round_)
    rest = torch.arange(6, ITEMS)
    found = federation.scores(everyone(federation), rest.expand(3, -1))
    forward = plain if forward == "official" else FORWARD[forward]
    for client, own in enumerate(POSITIVES):
        tables = {
            "global": federation.state.shared["Q"],
            "cluster": kept(federation, "K")[client],
            "local": kept(federation, "L")[client],
        }
        said = {}
        for name, table in tables.items():
            user, items = forward(table, kept(federation, "p")[client], own)
            said[name] = items[rest] @ user
        expected = sum(said.values()) / 3 if adaptation == "all" else said[adaptation]
        assert near(found[client], expected)
        assert not near(said["global"], said["local"], within=1e-4)


def test_what_is_asked_of_a_client_and_what_it_starts_from():
    federation = federation_on()
    tables = {"Q": PlainTable(torch.zeros(ITEMS, 2)), "K": PlainTable(torch.ones(ITEMS, 2))}
    for round_, start in ((1, 0.0), (2, 0.0), (3, 1.0), (50, 1.0)):
        asked = asked_of_a_client(federation, round_)
        uploads = [("upload", "L", "K"), ("upload", "p", "p")]
        assert asked.events == [("rewrite", "L"), ("fit", {"L", "p"}), *uploads]
        assert (asked.rewrites[0].rows(Values(tables), torch.arange(ITEMS)) == start).all()


@both_engines
@pytest.mark.parametrize("forward", FORWARD)
def test_clients_start_from_the_global_table_twice_and_then_from_their_clusters(engine, forward):
    """Nothing learns: the own table tells what a client started from, row by row, sampled or not."""
    federation = federation_on("rate=0", f"forward={forward}", engine=engine)
    for round_ in (1, 2, 3, 4):
        given, own = drawn(ITEMS, 2, seed=round_), drawn(3, ITEMS, 2, seed=-round_)
        if round_ > 1:
            federation.state.shared["Q"] = given
            federation.state.client_tensors["K"].put(everyone(federation), own)
        given = federation.state.shared["Q"]
        federation.train_round(round_)
        expected = given.expand(3, -1, -1) if round_ < 3 else own
        assert torch.equal(kept(federation, "L"), expected)
        assert near(federation.state.shared["Q"], expected.mean(0))


@both_engines
@pytest.mark.parametrize("participation", [1, 0.5])
def test_tables_are_the_means_of_all_and_of_clusters(engine, participation):
    positives = [[0], [1, 2], [3, 4, 5], [6], [7, 8], [0, 9]]
    federation = federation_on(
        "clusters=3", f"participation={participation}", "forward=none", positives=positives, engine=engine
    )
    seen = set()
    for round_ in (1, 2, 3, 4):
        before = kept(federation, "L")
        federation.train_round(round_)
        own = kept(federation, "L")
        part = (own != before).flatten(1).any(1)
        assert part.sum() == 6 * participation
        assert near(federation.state.shared["Q"], own[part].mean(0))
        cluster = clusters(kept(federation, "p").squeeze(1), 3, 0, round_)
        for number in cluster.unique():
            members = cluster == number
            trained = members & part
            mean = own[trained].mean(0) if trained.any() else federation.state.shared["Q"]
            assert near(kept(federation, "K")[members], mean.expand(int(members.sum()), -1, -1))
            seen.add((int(members.sum()) > 1, bool(trained.all()), bool((members & ~part).any())))
    assert any(several for several, *_ in seen)
    assert any(absent for *_, absent in seen) == (participation < 1)


@both_engines
def test_the_global_table_may_be_weighted_by_data_size(engine):
    federation = federation_on("weighting=size", engine=engine)
    federation.train_round(1)
    shares = torch.tensor([1 / 6, 2 / 6, 3 / 6])[:, None, None]
    assert near(federation.state.shared["Q"], (shares * kept(federation, "L")).sum(0))


def test_a_cluster_nobody_of_which_took_part_gets_the_global_table():
    method = federation_on("clusters=3").method
    tables, vectors = DenseClientTensor(torch.zeros(2, 1), 6), DenseClientTensor(torch.zeros(1, 1), 6)
    tables.put(
        torch.arange(6), torch.tensor([1.0, 3.0, 20.0, 100.0, 7.0, 9.0])[:, None, None].expand(-1, 2, 1)
    )
    # Three heaps: clients 0, 1 and 4; client 2 alone; clients 3 and 5.
    vectors.put(torch.arange(6), torch.tensor([0.0, 0.1, 5.0, -5.0, 0.2, -5.1])[:, None, None])
    server = server_side(
        torch.tensor([0.25, 0.25, 0.5]), shared={"Q": torch.zeros(2, 1)}, personal={"K": tables, "p": vectors}
    )
    method.server.finish(replace(server, clients=6))
    # 1 and 3 by a quarter each, 20 by a half; in the first heap the plain mean of 1 and 3.
    assert (server.shared["Q"] == 11).all()
    assert tables.whole(torch.arange(6))[:, 0, 0].tolist() == [2, 2, 20, 11, 2, 11]


@both_engines
@pytest.mark.parametrize("name", ["perfedrec", "perfedrec+plgc"])
def test_a_table_and_a_user_vector_are_sent_once_and_the_server_knows_both(name, engine):
    federation = federation_on(name=name, engine=engine)
    report = federation.train_round(1)
    assert report.up == ITEMS * 2 + 2
    # The global table, the cluster's, and the own vector.
    assert report.down == 2 * ITEMS * 2 + 2
    assert federation.state.parameters["p"].location == "personal"
    assert len(kept(federation, "p").unique(dim=0)) == 3


def test_noise_falls_on_the_one_table_that_is_sent():
    """Two noisy copies of one table would tell more of it than one: the mean must be made of the same one."""
    federation = federation_on("ldp=0.5", "clusters=3", "rate=0")
    federation.train_round(1)
    # Vectors are noisy too, so that every client is a cluster of its own.
    assert len(clusters(kept(federation, "p").squeeze(1), 3, 0, 1).unique()) == 3
    assert near(federation.state.shared["Q"], kept(federation, "K").mean(0))
    assert not near(federation.state.shared["Q"], kept(federation, "L").mean(0), within=0.1)


@pytest.mark.parametrize("round_", [1, 3])
def test_with_plgc_the_own_table_is_never_restarted(round_):
    asked = asked_of_a_client(federation_on(name="perfedrec+plgc"), round_)
    assert asked.events == [("fit", {"L", "p", *HEAD}), ("upload", "L", "K"), ("upload", "p", "p")]


@both_engines
def test_with_plgc_the_own_table_goes_on_where_it_was_and_the_mean_is_the_other(engine):
    """Nothing learns: after two rounds, and in the third with a cluster's table, everyone has its first."""
    federation = federation_on("rate=0", "head_rate=0", name="perfedrec+plgc", engine=engine)
    first = federation.state.shared["Q"].clone()
    for round_ in (1, 2, 3):
        federation.train_round(round_)
        assert torch.equal(kept(federation, "L"), first.expand(3, -1, -1))
        assert near(federation.state.shared["Q"], first)
        federation.state.shared["Q"] = drawn(ITEMS, 2, seed=round_)
        federation.state.client_tensors["K"].put(everyone(federation), drawn(3, ITEMS, 2, seed=-round_))


@both_engines
def test_with_plgc_the_own_model_is_mixed_with_the_global_one(engine):
    federation = federation_on("head_rate=0.1", name="perfedrec+plgc", engine=engine)
    for round_ in (1, 2, 3):
        federation.train_round(round_)
    own, mean, p = kept(federation, "L"), federation.state.shared["Q"], kept(federation, "p")
    assert near(mean, own.mean(0))
    square = own.square().sum((1, 2), keepdim=True)
    weight = square / (square + mean.square().sum())
    assert not near(weight, torch.full_like(weight, 0.5), within=1e-4)
    rest = torch.arange(6, ITEMS)
    found = federation.scores(everyone(federation), rest.expand(3, -1))
    for client, trained in enumerate(POSITIVES):
        mixed = weight[client] * own[client] + (1 - weight[client]) * mean
        said = []
        for table in (mean, kept(federation, "K")[client], mixed):
            user, items = propagated(table, p[client], trained)
            said.append(items[rest] @ user)
        assert near(found[client], sum(said) / 3)
