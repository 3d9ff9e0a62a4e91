"""FedEM and EM: how tables are merged, when, and how the server weighs uploads."""

import math

import numpy as np
import pytest
import torch

from fedrec.errors import ConfigurationError
from fedrec.federation.model.tables import PlainTable, Values
from fedrec.federation.program import shape_of, trace
from fedrec.federation.server.uploads import FlatUploads
from fedrec.methods.fedem import by_component, by_cosine, by_distance
from tests.by_hand import (
    ENGINES,
    Asked,
    asked_of_a_client,
    clients_with,
    everyone,
    federation_of,
    give,
    kept,
    near,
)
from tests.federations import server_side

pytestmark = pytest.mark.usefixtures("double_precision")
both_engines = pytest.mark.parametrize("engine", ENGINES, ids=["loop", "batched"])
PAPER = ("aggregated=1", "early_stop=null", "similarity=distance", "weights=closed", "merging=once")
ADAPTER = {"adapter.0", "adapter.0.bias", "adapter.1", "adapter.1.bias"}
POSITIVES = [[0], [1, 2], [3, 4, 5]]


def method_of(*changes, items=3):
    pool = [list(range(items))]
    return federation_of("fedem", clients_with([[0]], items, pool), "negatives=1", *PAPER, *changes).method


def merged(own, other, held=1.0, bias=0.0, items=None, **changes):
    """The merged rows of a table by an adapter that always says sigmoid(bias)."""
    own, other = torch.tensor(own), torch.tensor(other)
    method = method_of(
        f"d={own.shape[1]}",
        "adapter=1",
        *(f"{key}={value}" for key, value in changes.items()),
        items=len(own),
    )
    w = Values({"Q": PlainTable(own), "G": PlainTable(other), "held": torch.tensor([[held]])})
    w |= {name: torch.zeros(one.shape) for name, one in method.parameters().items() if name in ADAPTER}
    w["adapter.1.bias"] = torch.tensor([[bias]])
    w |= method.derived(w)
    return method.merged(w, torch.arange(len(own)) if items is None else items)


def test_the_merged_table_by_hand():
    own, other = [[0.0, 4.0], [1.0, 1.0]], [[4.0, 0.0], [5.0, -3.0]]
    # Half of the difference, and three quarters of it.
    assert merged(own, other).tolist() == [[2.0, 2.0], [3.0, -1.0]]
    assert near(merged(own, other, bias=math.log(3)), torch.tensor([[3.0, 1.0], [4.0, -2.0]]))
    # A client that was given no table goes on with its own.
    assert merged(own, other, held=0.0).tolist() == own


def test_static_merging_and_replacement_by_hand():
    own, other = [[0.0, 4.0], [1.0, 1.0]], [[4.0, 0.0], [5.0, -3.0]]
    assert merged(own, other, merge="static", weight=0.25).tolist() == [[1.0, 3.0], [2.0, 0.0]]
    assert merged(own, other, merge="replace").tolist() == other
    for merge in ("static", "replace"):
        assert merged(own, other, merge=merge, held=0.0).tolist() == own
        assert not any(name.startswith("adapter") for name in method_of(f"merge={merge}").parameters())


def random_weights(method, scale, seed=0):
    generator = torch.Generator().manual_seed(seed)
    tables = {"Q", "G"}
    values = {
        name: scale * torch.randn(one.shape, generator=generator) for name, one in method.parameters().items()
    }
    w = Values({name: PlainTable(value) if name in tables else value for name, value in values.items()})
    w["held"] = torch.ones(1, 1)
    return w | method.derived(w), values


@pytest.mark.parametrize("scale", [0.1, 0.7])
def test_rho_lies_between_0_and_1_and_each_item_has_its_own(scale):
    method = method_of("d=3", "adapter=4x2", items=30)
    w, values = random_weights(method, scale)
    own, other = values["Q"], values["G"]
    rho = method.weight(Values(w), own, other - own)
    assert rho.shape == (30, 1)
    assert ((rho > 0) & (rho < 1)).all()
    assert len(rho.unique()) == 30
    # The adapter: difference and own row side by side, two rectified layers, a sigmoid.
    x = np.hstack((other - own, own))
    for layer in (0, 1):
        x = np.maximum(x @ values[f"adapter.{layer}"].numpy() + values[f"adapter.{layer}.bias"].numpy(), 0)
    expected = 1 / (1 + np.exp(-(x @ values["adapter.2"].numpy() + values["adapter.2.bias"].numpy())))
    assert np.allclose(rho, expected)
    assert near(method.merged(Values(w), torch.arange(30)), own + rho * (other - own))


def test_dynamic_merging_has_one_rho_from_the_mean_over_all_items():
    method = method_of("d=3", "adapter=4", "merge=dynamic", items=30)
    w, values = random_weights(method, 0.7)
    own, other = values["Q"], values["G"]
    rho = method.weight(Values(w), own, other - own)
    pooled = torch.cat(((other - own).mean(0), own.mean(0)))
    hidden = (pooled @ values["adapter.0"] + values["adapter.0.bias"]).relu()
    expected = torch.sigmoid(hidden @ values["adapter.1"] + values["adapter.1.bias"])
    assert rho.numel() == 1
    assert float(rho) == pytest.approx(float(expected))


def test_what_is_asked_of_a_client_in_which_order():
    clients = clients_with([[0]], items=5)
    changes = (*PAPER, "adapter=2", "local_epochs=2")
    once, epoch, batch = (
        asked_of_a_client(federation_of("fedem", clients, *changes, f"merging={merging}")).events
        for merging in ("once", "epoch", "batch")
    )
    assert once == [("fit", ADAPTER), ("rewrite", "Q"), ("fit", {"Q", "p"}), ("upload", "Q", "G")]
    each = [("fit", ADAPTER), ("rewrite", "M"), ("fit", {"M", "p"})]
    assert epoch == [*each, *each, ("rewrite", "Q"), ("upload", "Q", "G")]
    assert batch == [("rewrite", "Q"), ("fit", ADAPTER, {"Q", "p"}), ("upload", "Q", "G")]


@pytest.mark.parametrize("merge", ["elastic", "dynamic", "static", "replace"])
@pytest.mark.parametrize("merging", ["once", "epoch", "batch"])
def test_the_method_does_what_the_plug_in_makes_of_fedmf(merging, merge):
    clients, changes = clients_with([[0]], items=5), (f"merging={merging}", f"merge={merge}")
    settings = ("d=2", "adapter=2", "local_epochs=2", "early_stop=0.01", "round_decay=0.9")
    method, composed = (
        federation_of(name, clients, *changes, *settings).method for name in ("fedem", "fedmf+em")
    )
    assert shape_of(trace(method, 2)) == shape_of(trace(composed, 2))
    fits = (
        [(fit.epochs, fit.early_stop, [step.batch_decay for step in fit.steps]) for fit in asked.fits]
        for asked in (Asked(trace(made, 2)) for made in (method, composed))
    )
    assert next(fits) == next(fits)
    assert method.parameters().keys() == composed.parameters().keys()


def test_noise_on_gradients_is_refused():
    with pytest.raises(ConfigurationError, match="dp_noise"):
        method_of("dp_noise=1")


@both_engines
@pytest.mark.parametrize("merging", ["once", "batch"])
def test_the_first_round_is_local_training(engine, merging):
    """Nobody holds anything of the server's: as if there were none, and the adapter rests."""
    clients = clients_with(POSITIVES, items=10)
    common = ("d=2", "rate=0.1", "batch_size=1000", "local_epochs=3")
    together = federation_of("fedem", clients, *PAPER, *common, f"merging={merging}", engine=engine)
    alone = federation_of("local-only", clients, *common, engine=engine)
    before = kept(together, "adapter.0")
    report = together.train_round(1)
    alone.train_round(1)
    for name in ("Q", "p"):
        assert near(kept(together, name), kept(alone, name))
    assert torch.equal(kept(together, "adapter.0"), before)
    assert (report.up, report.down) == (10 * 2, 10 * 2)


@both_engines
def test_clients_that_are_not_aggregated_go_on_alone(engine):
    clients = clients_with([[0], [1, 2], [3, 4, 5], [6], [7, 8]], items=14)
    common = ("d=2", "rate=0.1", "batch_size=1000", "local_epochs=2")
    together = federation_of("fedem", clients, *PAPER, *common, "aggregated=0.4", engine=engine)
    alone = federation_of("local-only", clients, *common, engine=engine)
    together.train_round(1)
    alone.train_round(1)
    held = together.state.held.clone()
    assert held.sum() == 2
    together.train_round(2)
    alone.train_round(2)
    own, local = kept(together, "Q"), kept(alone, "Q")
    assert near(own[~held], local[~held])
    assert not any(near(own[client], local[client], within=1e-3) for client in held.nonzero())
    # Who held nothing has not trained its adapter.
    moved = (kept(together, "adapter.0") - together.state.initial["adapter.0"]).abs().flatten(1).sum(1) > 0
    assert torch.equal(moved, held)


@both_engines
def test_users_are_scored_with_their_table_merged_with_the_newest(engine):
    clients = clients_with([[0], [1, 2], [3, 4, 5], [6]], items=12)
    federation = federation_of(
        "fedem", clients, *PAPER, "d=2", "merge=static", "weight=0.25", "aggregated=0.5", engine=engine
    )
    federation.train_round(1)
    held = federation.state.held
    assert held.sum() == 2
    rho = 0.25 * held.double()[:, None, None]
    table = kept(federation, "Q") + rho * (kept(federation, "G") - kept(federation, "Q"))
    expected = (table * kept(federation, "p")).sum(-1)
    items = torch.arange(12).expand(4, -1)
    assert near(federation.scores(everyone(federation), items), expected)


def mixing(uploads, share, *changes, items=1):
    method = method_of(*changes, items=items)
    return method.server.mix("G", FlatUploads(torch.tensor(uploads)), server_side(torch.tensor(share)))


def test_weights_in_closed_form_by_hand():
    # Tables (of one number) 0, 1 and 3: squared distances 1, 9 and 4, likenesses 1/2, 1/10 and 1/5.
    found = mixing([[0.0], [1.0], [3.0]], [0.2, 0.3, 0.5], "alpha=2")
    wanted = torch.tensor(
        [
            [0.2 + 2 * 1.0, 0.3 + 2 * 0.5, 0.5 + 2 * 0.1],
            [0.2 + 2 * 0.5, 0.3 + 2 * 1.0, 0.5 + 2 * 0.2],
            [0.2 + 2 * 0.1, 0.3 + 2 * 0.2, 0.5 + 2 * 1.0],
        ]
    )
    assert near(found, wanted / torch.tensor([[4.2], [4.4], [3.6]]))
    # Without likeness it is the plain mean.
    assert near(mixing([[0.0], [1.0], [3.0]], [0.2, 0.3, 0.5], "alpha=0")[1], torch.tensor([0.2, 0.3, 0.5]))


def test_closed_weights_minimise_both_distances_up_to_their_sum():
    share, likeness, alpha = torch.tensor([0.2, 0.3, 0.5]), torch.tensor([1.0, 0.5, 0.1]), 0.9
    weights = torch.zeros(3, requires_grad=True)
    ((weights - share).square() + alpha * (weights - likeness).square()).sum().backward()
    # The gradient at 0 is -2 (p + alpha s), its slope 2 (1 + alpha).
    minimiser = -weights.grad / (2 * (1 + alpha))
    found = mixing([[0.0], [1.0], [3.0]], share.tolist(), f"alpha={alpha}")[0]
    assert near(found, minimiser / minimiser.sum())


def test_weights_on_the_simplex_by_hand():
    # p + alpha s of the first client is (1.2, 0.8, 0.6): minus 0.5333 each they add up to 1.
    found = mixing([[0.0], [1.0], [3.0]], [0.2, 0.3, 0.5], "alpha=1", "weights=simplex")
    assert found[0].tolist() == pytest.approx([1.2 - 1.6 / 3, 0.8 - 1.6 / 3, 0.6 - 1.6 / 3])
    assert near(found.sum(1), torch.ones(3))


def test_distant_clients_keep_to_themselves():
    """At alpha 1.1 the projection leaves a client nothing but its own upload, at 0.9 almost nothing."""
    far = (1000 * torch.eye(5)).tolist()
    alone = mixing(far, [0.2] * 5, "alpha=1.1", "weights=simplex", items=5)
    assert near(alone, torch.eye(5))
    # p + alpha s is 1.1 for the own upload and 0.2 for the others; minus 0.18 each they add up to 1.
    most = mixing(far, [0.2] * 5, "alpha=0.9", "weights=simplex", items=5)
    assert near(most, 0.9 * torch.eye(5) + 0.02, within=1e-5)
    # The same by the components of the official code.
    tables = torch.randn(5, 40 * 2, generator=torch.Generator().manual_seed(0)) * 100
    method = method_of("d=2", "alpha=1.1", "weights=simplex", "similarity=component", items=40)
    assert near(method.server.mix("G", FlatUploads(tables), server_side(torch.full((5,), 0.2))), torch.eye(5))


def test_likeness_by_distance_and_cosine():
    distance = by_distance(FlatUploads(torch.tensor([[0.0], [2.0]])), 1)
    assert near(distance, torch.tensor([[1.0, 0.2], [0.2, 1.0]]))
    tables = torch.tensor([[3.0, 4.0], [4.0, 3.0], [-3.0, -4.0]])
    cosine = by_cosine(FlatUploads(tables), 1)
    assert near(cosine, torch.tensor([[1.0, 0.96, 0.0], [0.96, 1.0, 0.0], [0.0, 0.0, 1.0]]))


def test_likeness_by_first_components():
    # Tables of two items and one number: components -a and a for items at distance 2 a.
    tables = torch.tensor([[0.0, 2.0], [5.0, 7.1], [0.0, 4.0]])
    found = by_component(FlatUploads(tables), 2)
    # Components (-1, 1), (-1.05, 1.05) and (-2, 2): distances 0.05 and 1 and 0.95 times the root of 2.
    assert found[0, 1] == 1.0
    assert float(found[0, 2]) == pytest.approx(1 / (1 + math.sqrt(2)))
    assert float(found[1, 2]) == pytest.approx(1 / (1 + 0.95 * math.sqrt(2)))
    assert near(found, found.T)


@both_engines
def test_every_client_gets_its_own_mean_of_the_uploads(engine):
    clients = clients_with(POSITIVES, items=10)
    federation = federation_of("fedem", clients, *PAPER, "d=2", "alpha=0.9", "weighting=size", engine=engine)
    federation.train_round(1)
    sent = kept(federation, "Q").flatten(1)
    distance = torch.cdist(sent, sent).square()
    wanted = torch.tensor([1 / 6, 2 / 6, 3 / 6]) + 0.9 / (1 + distance)
    expected = (wanted / wanted.sum(1, keepdim=True)) @ sent
    assert near(kept(federation, "G").flatten(1), expected, within=1e-10)
    assert federation.state.held.all()
    assert not federation.state.shared


@both_engines
@pytest.mark.parametrize("merging", ["once", "epoch", "batch"])
def test_a_table_that_is_neither_trained_nor_sampled_is_merged_all_the_same(engine, merging):
    """The mean table is twice the own one, and nothing learns: half of the way is one and a half."""
    clients = clients_with([[0], [1]], items=6, allowed=[[2], [2]])
    federation = federation_of(
        "fedmf+em", clients, "participation=1", "d=2", "negatives=1", "rate=0", "merge=static", "weight=0.5",
        f"merging={merging}", "merged=everyone", engine=engine,
    )  # fmt: skip
    start = torch.arange(12.0).reshape(6, 2)
    give(federation, Q=start, G=2 * start)
    federation.state.joined.fill_(True)  # not their first round, in which Q is G
    federation.train_round(1)
    assert near(kept(federation, "Q"), 1.5 * start.expand(2, -1, -1))
    assert near(federation.state.shared["G"], 1.5 * start)


@both_engines
def test_a_backbones_tower_is_averaged_as_before_and_only_items_are_merged(engine):
    clients = clients_with(POSITIVES, items=10)
    federation = federation_of(
        "fedncf+em", clients, "aggregated=1", "participation=1", "d=2", "layers=3", "weighting=size",
        engine=engine,
    )  # fmt: skip
    report = federation.train_round(1)
    tower = {"mlp.0", "mlp.0.bias", "mlp.1", "mlp.1.bias"}
    assert federation.state.shared.keys() == {"G", *tower}
    assert not tower & federation.state.client_tensors.keys()
    # 10 x 2 items; the tower has 4 x 3 + 3 + 3 + 1 numbers. The adapter stays.
    assert report.up == 20 + 19
    shares = torch.tensor([1 / 6, 2 / 6, 3 / 6])[:, None, None]
    assert near(federation.state.shared["G"], (shares * kept(federation, "Q")).sum(0))


@both_engines
def test_a_plugged_in_table_starts_as_the_servers(engine):
    """In a client's first round there is nothing of its own to be merged."""
    clients = clients_with([[0, 1], [2]], items=6)
    changes = ("participation=1", "d=2", "merge=static", "weight=0.5", "rate=1e-9", "local_epochs=1")
    federation = federation_of("fedmf+em", clients, *changes, engine=engine)
    before = federation.state.shared["G"].clone()
    federation.train_round(1)
    assert near(kept(federation, "Q"), before.expand(2, -1, -1), within=1e-6)
