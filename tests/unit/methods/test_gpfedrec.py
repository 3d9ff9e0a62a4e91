"""GPFedRec: who is whose neighbour, what neighbours agree on, and how it pulls a client's whole table."""

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from fedrec.errors import ConfigurationError, FederationError
from fedrec.federation.model.client import Upload
from fedrec.federation.server.server import Server
from fedrec.federation.server.uploads import FlatUploads
from fedrec.federation.state.dense import DenseClientTensor
from tests.by_hand import ENGINES, asked_of_a_client, clients_with, everyone, federation_of, give, kept, near
from tests.federations import server_side

pytestmark = pytest.mark.usefixtures("double_precision")
both_engines = pytest.mark.parametrize("engine", ENGINES, ids=["loop", "batched"])
every_merging = pytest.mark.parametrize("merging", ["once", "epoch", "batch"])
POSITIVES = [[0], [1, 2], [3, 4, 5]]
TOWER = {"mlp.0", "mlp.0.bias", "mlp.1", "mlp.1.bias"}
SMALL = ("d=2", "layers=3", "rate=0.1", "user_factor=1", "item_factor=4", "item_scale=one")

LIVELY = ("d=2", "layers=8", "rate=0.5", "user_factor=1", "item_factor=8", "item_scale=one")
"""Rates at which clients part within a round."""
FIVE = [[0], [1, 2], [3, 4, 5], [0, 6], [7]]


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def deaden(federation):
    """A tower whose hidden units never fire: no sample says anything about an item."""
    give(
        federation,
        **{"mlp.0": [0.0] * 12, "mlp.0.bias": [-1.0] * 3, "mlp.1": [0.5] * 3, "mlp.1.bias": [0.0]},
    )


TABLES = [[3.0, 4.0], [4.0, 3.0], [-4.0, 3.0]]
# Cosines 0.96 of the first two, 0 of first and third, -0.28 of second and third.


def mixing(*changes):
    """The weights of three tables of two items and one number."""
    clients = clients_with([[0]], 2, [[0, 1]])
    method = federation_of("gpfedrec", clients, "d=1", "negatives=1", *changes).method
    return method.server.mix(
        "R", FlatUploads(torch.tensor(TABLES)), server_side(torch.tensor([0.2, 0.3, 0.5]))
    )


def test_neighbours_by_distance_are_the_least_similar_and_never_oneself():
    # Distances 0.04, 1 and 1.28; their mean over nine pairs is 0.5156. Data sizes do not matter.
    weights = mixing("graph=distance")
    assert weights.tolist() == [[0, 0, 1], [0, 0, 1], [0.5, 0.5, 0]]
    assert near(weights @ torch.tensor(TABLES), torch.tensor([[-4.0, 3.0], [-4.0, 3.0], [3.5, 3.5]]))


def test_neighbours_by_similarity_are_alike_and_oneself_is_among_them():
    # The mean over nine pairs, three of them 1, is 0.4844.
    weights = mixing("graph=similarity")
    assert weights.tolist() == [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]]
    assert near(weights @ torch.tensor(TABLES), torch.tensor([[3.5, 3.5], [3.5, 3.5], [-4.0, 3.0]]))


def test_the_official_codes_graph_is_the_default():
    assert torch.equal(mixing(), mixing("graph=distance"))


def test_the_threshold_is_a_multiple_of_the_mean():
    # Distances above twice the mean, 1.031: second and third alone. The first is its own neighbour.
    assert mixing("threshold=2").tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]
    assert torch.equal(mixing("threshold=100"), torch.eye(3))
    assert torch.equal(mixing("threshold=100", "graph=similarity"), torch.eye(3))


def test_a_fixed_number_of_neighbours():
    assert mixing("neighbours=1").tolist() == [[0, 0, 1], [0, 0, 1], [0, 1, 0]]
    assert mixing("neighbours=2").tolist() == [[0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]]
    assert torch.equal(mixing("neighbours=1", "graph=similarity"), torch.eye(3))
    assert mixing("neighbours=2", "graph=similarity").tolist() == [
        [0.5, 0.5, 0],
        [0.5, 0.5, 0],
        [0.5, 0, 0.5],
    ]


def test_two_steps_over_the_graph_reach_the_neighbours_of_neighbours():
    # The first two reach each other and themselves through the third, which comes back to itself.
    assert mixing("depth=2").tolist() == [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]]
    assert torch.equal(mixing("depth=3"), mixing("depth=1"))


def neighbours_means(tables, graph="distance"):
    """What every client's neighbours agree on, pair by pair."""
    flat = tables.flatten(1).numpy()
    similarity = np.array([[u @ v / np.linalg.norm(u) / np.linalg.norm(v) for v in flat] for u in flat])
    if graph == "distance":
        similarity = 1 - similarity
        np.fill_diagonal(similarity, 0)
    means = [
        flat[own > similarity.mean()].mean(0) if (own > similarity.mean()).any() else flat[client]
        for client, own in enumerate(similarity)
    ]
    assert np.abs(similarity - similarity.mean()).min() > 1e-6 * similarity.mean()
    return torch.from_numpy(np.array(means)).reshape(tables.shape)


@pytest.mark.parametrize(
    ("graph", "mean"), [("distance", [-4.5 / 3, 9.5 / 3]), ("similarity", [3.0 / 3, 10.0 / 3])]
)
def test_the_global_table_is_the_plain_mean_of_what_neighbours_agreed_on(graph, mean):
    clients = clients_with([[0]], 2, [[0, 1]])
    method = federation_of("gpfedrec", clients, "d=1", "negatives=1").method
    agreed = DenseClientTensor(torch.zeros(2, 1), 4)
    # The fourth client did not take part.
    agreed.put(torch.arange(3), (mixing(f"graph={graph}") @ torch.tensor(TABLES)).unsqueeze(-1))
    agreed.put(torch.tensor([3]), torch.full((1, 2, 1), 100.0))
    side = server_side(torch.tensor([0.2, 0.3, 0.5]), shared={"Q": torch.zeros(2, 1)}, personal={"R": agreed})
    method.server.finish(side)
    assert side.shared["Q"].squeeze(1).tolist() == pytest.approx(mean)


@pytest.mark.parametrize("graph", ["distance", "similarity"])
@both_engines
def test_everyone_gets_its_neighbours_mean_and_starts_from_the_mean_of_those(engine, graph):
    clients = clients_with(FIVE, items=12)
    federation = federation_of("gpfedrec", clients, *LIVELY, f"graph={graph}", "pull=0.1", engine=engine)
    for round_ in (1, 2):
        report = federation.train_round(round_)
        means = neighbours_means(kept(federation, "Q"), graph)
        assert near(kept(federation, "R"), means)
        # Not by data size, and not the mean of the uploads.
        assert near(federation.state.shared["Q"], means.mean(0))
        assert not near(means.mean(0), kept(federation, "Q").mean(0), within=1e-6)
        assert (report.up, report.down) == (12 * 2, 2 * 12 * 2)


def test_only_the_item_table_leaves_the_client():
    federation = federation_of("gpfedrec", clients_with([[0]], items=5), *SMALL)
    asked = asked_of_a_client(federation)
    assert asked.events == [("fit", {"Q", "p", *TOWER}), ("upload", "Q", "R")]
    server = Server(federation.state, torch.ones(1), 0, 1)
    for name in ("p", *TOWER):
        assert federation.state.parameters[name].location == "private"
        with pytest.raises(FederationError, match="stays on the client"):
            server.accept((Upload(name, "R"),))


def test_rates_are_those_of_the_official_code():
    # 0.1 for the tower, 7.9 for the user vector, 0.1 x 80 x 1682 for items (0.1 less there).
    federation = federation_of("gpfedrec", clients_with([[0]], items=1682))
    (step,) = asked_of_a_client(federation).steps[0]
    assert step.optimiser == "sgd"
    assert step.rates["mlp.0"] == step.rates["mlp.2.bias"] == 0.1
    assert step.rates["p"] == pytest.approx(7.9)
    assert step.rates["Q"] == pytest.approx(13456)
    # reg = 1 at the code's d=32: 2 x 13456 / (1682 x 32); for the d of other papers it was searched.
    official = federation_of("gpfedrec", clients_with([[0]], items=1682), paper="plgc").settings
    assert (official["d"], official["pull"]) == (32, pytest.approx(2 * 13456 / (1682 * 32)))


@pytest.mark.parametrize("setting", ["rate", "item_factor"])
def test_items_must_learn_for_a_pull_to_be_a_share_of_the_way(setting):
    with pytest.raises(ConfigurationError, match=setting):
        federation_of("gpfedrec", clients_with([[0]], items=5), f"{setting}=0")


@pytest.mark.parametrize("pull", [0.0, 0.3, 1.0, 1.5])
@both_engines
def test_a_row_that_nobody_samples_goes_its_share_of_the_way_in_every_step(engine, pull):
    """From g to r + (1 - c)^S (g - r) in S steps: every client has its own number of them."""
    clients = clients_with([[0], [0, 1], [0, 1, 2]], items=8, allowed=[[3, 4]] * 3)
    federation = federation_of(
        "gpfedrec", clients, *SMALL, "negatives=1", "batch_size=2", "local_epochs=2", f"pull={pull}",
        engine=engine,
    )  # fmt: skip
    start, goals = federation.state.shared["Q"].clone(), drawn(3, 8, 2)
    federation.state.joined[:] = True
    federation.state.client_tensors["R"].put(everyone(federation), goals)
    federation.train_round(1)
    steps = torch.tensor([2, 4, 6])[:, None, None]
    expected = goals + (1 - pull) ** steps * (start - goals)
    found = kept(federation, "Q")
    assert near(found[:, 5:], expected[:, 5:])
    # Sampled rows go elsewhere.
    assert (found[:, :5] - expected[:, :5]).abs().amax((1, 2)).min() > 1e-4


@both_engines
def test_a_sampled_row_is_pulled_in_steps_without_a_sample_of_it_too(engine):
    """Samples come one at a time and say nothing: all rows go the same share of the way in every step."""
    clients = clients_with([[0], [0, 1], [0, 1, 2]], items=8, allowed=[[3, 4]] * 3)
    federation = federation_of(
        "gpfedrec", clients, *SMALL, "negatives=1", "batch_size=1", "pull=0.3", engine=engine
    )
    deaden(federation)
    start, goals = federation.state.shared["Q"].clone(), drawn(3, 8, 2)
    federation.state.joined[:] = True
    federation.state.client_tensors["R"].put(everyone(federation), goals)
    federation.train_round(1)
    steps = torch.tensor([2, 4, 6])[:, None, None]
    assert near(kept(federation, "Q"), goals + 0.7**steps * (start - goals))


@both_engines
def test_a_round_by_hand(engine):
    """Mean entropy + reg x the mean of (Q - r)^2 over the whole table, one step of SGD on everything."""
    clients = clients_with([[0, 1], [2]], items=8)
    federation = federation_of(
        "gpfedrec", clients, *SMALL, "batch_size=1000", "local_epochs=3", "pull=0.4", engine=engine
    )
    goal = drawn(8, 2)
    federation.state.joined[:] = True
    federation.state.client_tensors["R"].fill(everyone(federation), goal)
    names = ("Q", "p", "mlp.0", "mlp.0.bias", "mlp.1", "mlp.1.bias")
    rates = (0.4, 0.1, 0.1, 0.1, 0.1, 0.1)
    values = [federation.state.initial[name].clone() for name in names]
    federation.train_round(1)
    samples = clients.samples(torch.tensor([0]), 4, 0, 1)
    reg = 0.4 * 8 * 2 / (2 * 0.4)
    for _ in range(3):
        q, p, first, first_bias, second, second_bias = (value.requires_grad_() for value in values)
        rows = q[samples.item]
        hidden = (torch.cat((p.expand(len(rows), -1), rows), 1) @ first + first_bias).relu()
        score = (hidden @ second + second_bias).squeeze(1)
        loss = binary_cross_entropy_with_logits(score, samples.label) + reg * (q - goal).square().mean()
        loss.backward()
        values = [(value - rate * value.grad).detach() for value, rate in zip(values, rates, strict=True)]
    for name, value in zip(names, values, strict=True):
        assert near(kept(federation, name)[0], value)


@both_engines
def test_users_are_scored_with_the_table_they_trained(engine):
    clients = clients_with(POSITIVES, items=10)
    federation = federation_of("gpfedrec", clients, *SMALL, engine=engine)
    federation.train_round(1)
    first, first_bias, second, second_bias = (
        kept(federation, name) for name in ("mlp.0", "mlp.0.bias", "mlp.1", "mlp.1.bias")
    )

    def expected(tables):
        both = torch.cat((kept(federation, "p").expand_as(tables), tables), dim=-1)
        return ((both @ first + first_bias).relu() @ second + second_bias).squeeze(-1)

    found = federation.scores(everyone(federation), torch.arange(10).expand(3, -1))
    assert near(found, expected(kept(federation, "Q")))
    for other in (kept(federation, "R"), federation.state.shared["Q"].expand(3, -1, -1)):
        assert not near(found, expected(other), within=1e-3)


@both_engines
def test_a_newcomer_is_pulled_to_the_global_table_and_the_others_to_their_last_neighbours_mean(engine):
    """The server has another number in every round: who comes for the first time stays there."""
    clients = clients_with([[0], [1, 2], [3, 4, 5], [6], [7]], items=14)
    federation = federation_of(
        "gpfedrec",
        clients,
        *SMALL,
        "pull=0.25",
        "batch_size=1000",
        "participation=0.6",
        engine=engine,
        seed=1,
    )
    deaden(federation)
    came_back = late = 0
    for round_ in (1, 2, 3):
        begins = torch.full((14, 2), float(round_))
        begins[:, 1] = -1
        federation.state.shared["Q"] = begins
        joined, goals, own = federation.state.joined.clone(), kept(federation, "R"), kept(federation, "Q")
        federation.train_round(round_)
        took_part = federation.state.held
        assert took_part.sum() == 3
        goals[~joined] = begins
        expected = torch.where(took_part[:, None, None], goals + 0.75 * (begins - goals), own)
        assert near(kept(federation, "Q"), expected)
        # Who stayed away has no part in what the next round begins with...
        assert near(federation.state.shared["Q"], kept(federation, "R")[took_part].mean(0))
        # ... and keeps what its neighbours once agreed on.
        rest = joined & ~took_part
        assert torch.equal(kept(federation, "R")[rest], goals[rest])
        came_back += int((took_part & joined).sum())
        late += int((took_part & ~joined).sum()) if round_ > 1 else 0
    assert came_back
    assert late


def test_every_row_moves_so_tables_are_stored_whole():
    """Also where others would keep changed rows alone: here those are all rows."""
    clients = clients_with(POSITIVES, items=10)
    federation = federation_of("gpfedrec", clients, *SMALL, dense_bytes=0)
    assert federation.state.client_tensors["Q"].tensors()[""].shape == (3, 10, 2)


@every_merging
@both_engines
def test_with_elastic_merging_g_is_the_mean_of_the_neighbours_tables(engine, merging):
    """Of the tables as they are after the round, in every order of merging and training."""
    clients = clients_with(FIVE, items=12)
    federation = federation_of(
        "gpfedrec+em", clients, *LIVELY, "aggregated=1", "pull=0.1", "adapter=2", "local_epochs=2",
        f"merging={merging}",
        engine=engine,
    )  # fmt: skip
    for round_ in (1, 2):
        before = kept(federation, "Q")
        report = federation.train_round(round_)
        own = kept(federation, "Q")
        assert not near(own, before, within=1e-3)
        means = neighbours_means(own)
        assert near(kept(federation, "R"), means)
        assert near(federation.state.shared["G"], means.mean(0))
        assert federation.state.shared.keys() == {"G"}
        assert (report.up, report.down) == (12 * 2, 2 * 12 * 2)


@every_merging
@both_engines
def test_with_elastic_merging_the_own_table_is_kept_and_merged(engine, merging):
    """No sample says anything and nothing pulls: half of the way to twice the own table is one and a half."""
    clients = clients_with([[0], [1]], items=6, allowed=[[2], [2]])
    federation = federation_of(
        "gpfedrec+em", clients, *SMALL, "negatives=1", "pull=0", "merge=static", "weight=0.5",
        f"merging={merging}", engine=engine,
    )  # fmt: skip
    deaden(federation)
    start = torch.arange(12.0).reshape(6, 2)
    give(federation, Q=start, G=2 * start)
    federation.state.joined.fill_(True)  # not their first round, in which Q is G
    federation.train_round(1)
    assert near(kept(federation, "Q"), 1.5 * start.expand(2, -1, -1))
    # Both uploaded the same: nobody is above a mean distance of 0.
    assert near(federation.state.shared["G"], 1.5 * start)
    federation.state.shared["G"] = torch.zeros(6, 2)
    federation.train_round(2)
    assert near(kept(federation, "Q"), 0.75 * start.expand(2, -1, -1))


def test_with_elastic_merging_the_item_table_is_sent_last_and_to_the_neighbours_alone():
    clients = clients_with([[0]], items=5)
    adapter = {"adapter.0", "adapter.0.bias", "adapter.1", "adapter.1.bias"}
    once, epoch, batch = (
        asked_of_a_client(
            federation_of("gpfedrec+em", clients, *SMALL, "adapter=2", f"merging={merging}")
        ).events
        for merging in ("once", "epoch", "batch")
    )
    rest = {"p", *TOWER}
    sent = ("upload", "Q", "R")
    assert once == [("fit", adapter), ("rewrite", "Q"), ("fit", {"Q", *rest}), sent]
    assert epoch == [("fit", adapter), ("rewrite", "M"), ("fit", {"M", *rest}), ("rewrite", "Q"), sent]
    assert batch == [("rewrite", "Q"), ("fit", adapter, {"Q", *rest}), sent]


PLGC = ("redundancy=none", "batch_decay=1", "round_decay=1", "optimiser=sgd")


@both_engines
def test_with_plgc_the_own_table_is_kept_and_g_is_the_mean_of_the_neighbours_tables(engine):
    clients = clients_with(FIVE, items=12)
    federation = federation_of("gpfedrec+plgc", clients, *LIVELY, "pull=0.1", "head_rate=0.1", engine=engine)
    for round_ in (1, 2):
        report = federation.train_round(round_)
        means = neighbours_means(kept(federation, "Q"))
        assert near(kept(federation, "R"), means)
        assert near(federation.state.shared["G"], means.mean(0))
        assert federation.state.shared.keys() == {"G"}
        assert (report.up, report.down) == (12 * 2, 2 * 12 * 2)


@both_engines
def test_with_plgc_it_is_the_mixed_table_that_is_pulled(engine):
    """No sample says anything: c goes -lambda x pull x (lambda c + (1 - lambda) g - r) in a step."""
    clients = clients_with(POSITIVES, items=10)
    federation = federation_of(
        "gpfedrec+plgc",
        clients,
        *SMALL,
        *PLGC,
        "pull=0.5",
        "batch_size=1000",
        "local_epochs=1",
        engine=engine,
    )
    deaden(federation)
    own, goals = drawn(3, 10, 2), drawn(3, 10, 2, seed=1)
    federation.state.joined[:] = True
    federation.state.client_tensors["Q"].put(everyone(federation), own)
    federation.state.client_tensors["R"].put(everyone(federation), goals)
    other = federation.state.shared["G"].clone()
    federation.train_round(1)
    square = own.square().sum((1, 2), keepdim=True)
    weight = square / (square + other.square().sum())
    mixed = weight * own + (1 - weight) * other
    assert near(kept(federation, "Q"), own - weight * 0.5 * (mixed - goals))
