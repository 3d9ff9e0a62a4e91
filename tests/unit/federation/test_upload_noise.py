"""Noise on uploads: what reaches the server, what stays clean, and what is promised."""

import pytest
import torch

from fedrec.federation.privacy.noise import laplace
from fedrec.federation.privacy.uploads import UploadNoise
from tests.by_hand import ENGINES, clients_with, federation_of, kept, near

pytestmark = pytest.mark.usefixtures("double_precision")
both_engines = pytest.mark.parametrize("engine", ENGINES, ids=["loop", "batched"])
SMALL = ("d=2", "participation=1", "local_epochs=2", "rate=0.1")


@pytest.fixture
def clients():
    """1, 2 and 3 training rows: shares 1/6, 2/6 and 3/6."""
    return clients_with([[0], [1, 2], [3, 4, 5]], items=7)


SHARES = torch.tensor([1 / 6, 2 / 6, 3 / 6], dtype=torch.float64)


def trained(name, clients, *changes, engine, rounds=1, seed=5):
    federation = federation_of(name, clients, *SMALL, *changes, engine=engine, seed=seed)
    for round_ in range(1, rounds + 1):
        federation.train_round(round_)
    return federation


def noise_of(count, scale, first=0, round_=1):
    """The mean, by shares, of what the three clients draw."""
    drawn = laplace(torch.arange(3), count, scale, seed=5, round_=round_, first=first)
    return (SHARES.unsqueeze(1) * drawn).sum(0)


@both_engines
def test_the_mean_table_is_off_by_the_mean_of_the_draws(clients, engine):
    plain, noisy = (
        trained("fedmf", clients, change, "weighting=size", engine=engine) for change in ("ldp=0", "ldp=0.3")
    )
    added = noisy.state.shared["Q"] - plain.state.shared["Q"]
    assert near(added, noise_of(14, 0.3).reshape(7, 2))


@both_engines
def test_what_a_client_keeps_stays_clean(clients, engine):
    plain, noisy = (
        trained("pfedclr", clients, change, "weighting=size", engine=engine)
        for change in ("ldp=0", "ldp=0.3")
    )
    for name in ("Q", "p", "A", "B"):
        assert torch.equal(kept(plain, name), kept(noisy, name)), name
    added = noisy.state.shared["Q"] - plain.state.shared["Q"]
    assert near(added, noise_of(14, 0.3).reshape(7, 2))


@both_engines
def test_every_parameter_sent_has_draws_of_its_own(clients, engine):
    plain, noisy = (
        trained("fedncf", clients, change, "weighting=size", "layers=3", "spread=1", engine=engine)
        for change in ("ldp=0", "ldp=0.2")
    )
    # In this order: Q has 14 numbers, p 2, which never leave, then 12, 3, 3 and 1 of the tower.
    places = {"Q": (0, 14), "mlp.0": (16, 12), "mlp.0.bias": (28, 3), "mlp.1": (31, 3), "mlp.1.bias": (34, 1)}
    for name, (first, count) in places.items():
        added = (noisy.state.shared[name] - plain.state.shared[name]).flatten()
        assert near(added, noise_of(count, 0.2, first)), name


@both_engines
def test_every_round_has_draws_of_its_own(clients, engine):
    """With a rate of 0 the table collects the noise of all rounds."""
    noisy = trained("fedmf", clients, "rate=0", "ldp=0.1", "weighting=size", engine=engine, rounds=2)
    added = (noisy.state.shared["Q"] - noisy.state.initial["Q"]).flatten()
    assert near(added, noise_of(14, 0.1) + noise_of(14, 0.1, round_=2))


@both_engines
def test_the_server_sees_no_clean_table_of_a_client(clients, engine):
    """FedEM's server holds one table per client: each comes with the noise of its own client."""
    changes = ("aggregated=1", "similarity=distance", "weights=simplex", "alpha=1000", "early_stop=null")
    plain, noisy = (
        trained("fedem", clients, change, *changes, engine=engine) for change in ("ldp=0", "ldp=0.3")
    )
    # So large an alpha gives everyone its own upload back.
    drawn = laplace(torch.arange(3), 14, 0.3, seed=5, round_=1, first=_first(noisy, "G"))
    assert near(kept(plain, "G"), kept(plain, "Q"))
    assert near(kept(noisy, "G") - kept(plain, "G"), drawn.reshape(3, 7, 2))
    assert torch.equal(kept(plain, "Q"), kept(noisy, "Q"))


def _first(federation, name):
    """The numbers of all parameters before `name`."""
    names = list(federation.state.parameters)
    return sum(federation.state.parameters[one].count for one in names[: names.index(name)])


@both_engines
@pytest.mark.parametrize("name", ["fedmf", "fedrap"])
def test_clipping_bounds_the_change_of_an_upload(name, engine):
    """One client: the server's table moves by its change, scaled down to the bound, plus noise."""
    clients = clients_with([[0, 1]], items=7)
    extra = ("item_rate=1", "weight_decay=0.1") if name == "fedrap" else ()
    free, clipped = (
        trained(name, clients, "ldp=0.01", change, *extra, engine=engine)
        for change in ("ldp_clip=null", "ldp_clip=0.25")
    )
    table = free.method.item_table
    first = _first(free, table)
    noise = laplace(torch.tensor([0]), 14, 0.01, seed=5, round_=1, first=first).reshape(7, 2)
    whole = free.state.shared[table] - free.state.initial[table] - noise
    small = clipped.state.shared[table] - clipped.state.initial[table] - noise
    assert float(whole.abs().sum()) > 0.3
    assert float(small.abs().sum()) == pytest.approx(0.25)
    assert near(small, whole * 0.25 / whole.abs().sum())


@both_engines
def test_a_change_within_the_bound_is_sent_as_it_is(clients, engine):
    free, bounded = (
        trained("fedmf", clients, "ldp=0.1", change, engine=engine)
        for change in ("ldp_clip=null", "ldp_clip=1000")
    )
    assert near(free.state.shared["Q"], bounded.state.shared["Q"])


def test_shrinkage_by_hand():
    noise = UploadNoise(1.0, 2.0, 0)
    assert noise.shrinkage(torch.tensor([0.0, 1.0, 2.0, 8.0])).tolist() == [1.0, 1.0, 1.0, 0.25]
    assert UploadNoise(1.0, None, 0).shrinkage(torch.tensor([0.0, 8.0])).tolist() == [1.0, 1.0]


def test_no_epsilon_without_a_bound_and_the_reason_is_said(clients):
    report = federation_of("fedmf", clients, "ldp=0.5").notes(100)["privacy"]["uploads"]
    assert report["epsilon"] is None
    assert "not clipped" in report["why_undefined"]
    assert (report["scale"], report["clip"], report["rounds"]) == (0.5, None, 100)


def test_epsilon_with_a_bound(clients):
    # Two uploads differ by at most twice the bound: 2 x 0.1 / 0.5 a round.
    report = federation_of("fedmf", clients, "ldp=0.5", "ldp_clip=0.1").notes(100)["privacy"]["uploads"]
    assert report["epsilon_per_round"] == pytest.approx(0.4)
    assert report["epsilon"] == pytest.approx(40)
    assert "why_undefined" not in report


def test_nothing_is_said_where_there_is_no_noise(clients):
    assert "privacy" not in federation_of("fedmf", clients).notes(100)


def test_both_kinds_of_noise_are_reported_side_by_side(clients):
    note = federation_of("fedrap", clients, "ldp=0.5", "ldp_clip=0.1", "dp_noise=1").notes(3)["privacy"]
    assert note.keys() == {"uploads", "gradients"}


def test_what_several_parameters_reveal_adds_up():
    clients = clients_with([[0, 1], [2]], items=6)
    federation = federation_of("fedncf", clients, "d=2", "layers=2", "ldp=0.5", "ldp_clip=0.1")
    federation.train_round(1)
    report = federation.notes(10)["privacy"]["uploads"]
    # The item table, and weights and biases of two layers.
    assert report["parameters_per_round"] == 5
    assert report["epsilon_per_round"] == pytest.approx(5 * 2 * 0.1 / 0.5)
    assert report["epsilon"] == pytest.approx(10 * report["epsilon_per_round"])
