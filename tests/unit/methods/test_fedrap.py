"""FedRAP: the curriculum, the loss, decay of rows without a sample, variants, and noise on gradients."""

import math

import pytest
import torch

from fedrec.federation.model.tables import PlainBatch, PlainTable, Values
from fedrec.federation.privacy.accountant import gaussian_epsilon
from fedrec.federation.privacy.noise import gaussian
from tests.by_hand import ENGINES, asked_of_a_client, clients_with, everyone, federation_of, give, kept, near

pytestmark = pytest.mark.usefixtures("double_precision")
both_engines = pytest.mark.parametrize("engine", ENGINES, ids=["loop", "batched"])
PURE = ("v1=0", "v2=0", "weight_decay=0", "batch_decay=1", "round_decay=1", "early_stop=null")
ONE_STEP = ("optimiser=sgd", "local_epochs=1", "negatives=1", "participation=1")


def strengths(round_, *changes):
    federation = federation_of("fedrap", clients_with([[0]], items=5), "v1=0.2", "v2=0.3", *changes)
    return federation.method.strengths(round_)


@pytest.mark.parametrize(
    ("changes", "round_", "factor"),
    [
        (("curriculum=fixed",), 1, 1.0),
        (("curriculum=fixed",), 77, 1.0),
        (("curriculum=tanh",), 1, math.tanh(0.1)),
        (("curriculum=tanh",), 30, math.tanh(3)),
        (("curriculum=sin",), 1, math.sin(0.1)),
        # By the paper's letter the second half-wave is negative.
        (("curriculum=sin",), 40, math.sin(4)),
        (("curriculum=square",), 1, 0.0),
        (("curriculum=square",), 10, 0.0),
        (("curriculum=square",), 11, 1.0),
        (("curriculum=square",), 20, 1.0),
        (("curriculum=square",), 21, 0.0),
        (("curriculum=frac",), 1, 1 / 2),
        (("curriculum=frac",), 9, 1 / 10),
        # The code counts rounds from 0, and uses in a round what the one before computed.
        (("curriculum=tanh", "schedule=code"), 1, 1.0),
        (("curriculum=tanh", "schedule=code"), 2, 0.0),
        (("curriculum=tanh", "schedule=code"), 12, math.tanh(1)),
        (("curriculum=sin", "schedule=code"), 2, 1 / 2),
        (("curriculum=sin", "schedule=code"), 12, (math.sin(1) + 1) / 2),
        (("curriculum=square", "schedule=code"), 5, 0.0),
        (("curriculum=square", "schedule=code"), 6, 1.0),
        (("curriculum=square", "schedule=code"), 11, 0.0),
        (("curriculum=frac", "schedule=code"), 2, 1.0),
        (("curriculum=frac", "schedule=code"), 11, 1 / 10),
    ],
)
def test_both_strengths_follow_the_curriculum(changes, round_, factor):
    assert strengths(round_, *changes) == pytest.approx((0.2 * factor, 0.3 * factor), abs=1e-15)


def loss_of_a_batch(*changes, round_=1, **tables):
    """Items 0, 1 and once more 0, liked, drawn and liked; u = (1, 2), b = 1/2."""
    federation = federation_of("fedrap", clients_with([[0]], items=5), "d=2", *changes)
    w = Values({name: PlainTable(torch.tensor(table)) for name, table in tables.items()})
    w |= {"u": torch.tensor([[1.0, 2.0]]), "b": torch.tensor([[0.5]])}
    batch = PlainBatch(torch.tensor([0, 1, 0]), torch.tensor([1.0, 0.0, 1.0]))
    return float(asked_of_a_client(federation, round_).losses[0](w, batch))


def entropy(*scores):
    """The mean over liked, drawn and liked again."""
    return (
        sum(math.log(1 + math.exp(sign * score)) for sign, score in zip((-1, 1, -1), scores, strict=True)) / 3
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_entropy_of_probabilities_is_that_of_torch_in_value_and_slope(dtype):
    """At scores where both are smooth, and at those where the sigmoid is 0 or 1."""
    scores = torch.tensor([-200.0, -40.0, -20.0, -1.0, 0.0, 0.5, 16.0, 18.0, 40.0, 200.0], dtype=dtype)
    federation = federation_of("fedrap", clients_with([[0]], items=5), "d=1", *PURE, "entropy=probability")
    for label in (0.0, 1.0):
        given, expected = (scores.clone().requires_grad_() for _ in range(2))
        # With u = 1, C = 0 and b = 0 a score is the row of D.
        nothing = torch.zeros(len(scores), 1, dtype=dtype)
        w = Values(C=PlainTable(nothing), D=PlainTable(given.unsqueeze(1)))
        w |= {"u": torch.ones(1, 1, dtype=dtype), "b": torch.zeros(1, 1, dtype=dtype)}
        batch = PlainBatch(torch.arange(len(scores)), torch.full_like(scores, label))
        loss = federation.method.loss(w, batch)
        official = torch.nn.functional.binary_cross_entropy(torch.sigmoid(expected), batch.labels)
        loss.backward()
        official.backward()
        assert float(loss.detach()) == pytest.approx(float(official.detach()), rel=1e-5)
        assert torch.allclose(given.grad, expected.grad, rtol=1e-5, atol=0)
        assert given.grad[-1] == 0  # a score of 200 is past saturation, for a negative too


def test_entropies_of_scores_and_of_probabilities_part_where_a_sigmoid_is_1():
    c, d = [[0.0, 0.0], [40.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]
    both = [loss_of_a_batch(*PURE, f"entropy={kind}", C=c, D=d) for kind in ("logit", "probability")]
    # A negative of score 40.5: its sigmoid is 1 in double precision too, and the logarithm is cut at -100.
    assert both[1] - both[0] == pytest.approx((100 - 40.5) / 3)


C, D = [[1.0, 0.0], [0.0, -1.0]], [[0.5, 0.5], [1.0, 1.0]]
# Rows 0 and 1 of C + D are (1.5, 0.5) and (1, 0): with u = (1, 2) and b = 1/2 scores are 3 and 1.5.
# D - C is (-0.5, 0.5) and (1, 2): mean squares 0.25 and 2.5. Mean sizes of C: 1/2 and 1/2.
APART = (0.25 + 2.5 + 0.25) / 3
SPARSE = (0.5 + 0.5 + 0.5) / 3


def test_the_loss_of_a_batch_by_hand():
    found = loss_of_a_batch("v1=0.2", "v2=0.3", "curriculum=fixed", C=C, D=D)
    assert found == pytest.approx(entropy(3, 1.5, 3) - 0.2 * APART + 0.3 * SPARSE)


def test_the_curriculum_is_in_the_loss():
    found = loss_of_a_batch("v1=0.2", "v2=0.3", "curriculum=tanh", round_=5, C=C, D=D)
    assert found == pytest.approx(entropy(3, 1.5, 3) + math.tanh(0.5) * (-0.2 * APART + 0.3 * SPARSE))


@pytest.mark.parametrize(
    ("penalty", "size"), [("l1", (1 + 0.5 + 1) / 3), ("l2", (2 + 0.5 + 2) / 3), ("none", 0.0)]
)
def test_what_pulls_the_shared_table_to_zero(penalty, size):
    # Rows of C: (2, 0) and (0, -1): mean sizes 1 and 1/2, mean squares 2 and 1/2; scores 2.5 and -1.5.
    tables = {"C": [[2.0, 0.0], [0.0, -1.0]], "D": [[0.0, 0.0], [0.0, 0.0]]}
    found = loss_of_a_batch("v1=0", "v2=0.3", "curriculum=fixed", f"penalty={penalty}", **tables)
    assert found == pytest.approx(entropy(2.5, -1.5, 2.5) + 0.3 * size)


def test_without_personal_tables_the_pull_stays_and_without_the_shared_one_nothing_does():
    changes = ("v1=0.2", "v2=0.3", "curriculum=fixed")
    # u . c + b is 1.5 and -1.5; u . d + b is 2 and 3.5.
    shared = loss_of_a_batch(*changes, "tables=shared", C=C)
    assert shared == pytest.approx(entropy(1.5, -1.5, 1.5) + 0.3 * SPARSE)
    assert loss_of_a_batch(*changes, "tables=personal", D=D) == pytest.approx(entropy(2, 3.5, 2))


@both_engines
def test_one_step_by_hand(engine):
    # Item 0 liked, item 1 drawn; C and D are (1, 2) and (3, 4), u = 0.1, b = 0: scores 0.4 and 0.6.
    federation = federation_of(
        "fedrap", clients_with([[0]], items=2), "d=1", *PURE, *ONE_STEP, "weight_decay=0.01", "v1=0.5",
        "v2=0.25", "curriculum=fixed", "rate=0.3", "item_rate=2", engine=engine,
    )  # fmt: skip
    give(federation, C=[1.0, 2.0], D=[3.0, 4.0], u=0.1, b=0.0)
    federation.train_round(1)
    liked, drawn = 1 / (1 + math.exp(-0.4)) - 1, 1 / (1 + math.exp(-0.6))
    # d/dc of -0.5 mean (d - c)^2 + 0.25 mean |c| over two rows: 0.5 (d - c) + 0.125; d/dd: -0.5 (d - c).
    c = [
        1 - 2 * (liked * 0.1 / 2 + 0.5 * 2 + 0.125 + 0.01 * 1),
        2 - 2 * (drawn * 0.1 / 2 + 0.5 * 2 + 0.125 + 0.02),
    ]
    d = [3 - 2 * (liked * 0.1 / 2 - 0.5 * 2 + 0.03), 4 - 2 * (drawn * 0.1 / 2 - 0.5 * 2 + 0.04)]
    assert federation.state.shared["C"].flatten().tolist() == pytest.approx(c)
    assert kept(federation, "D").flatten().tolist() == pytest.approx(d)
    assert float(kept(federation, "u")) == pytest.approx(0.1 - 0.3 * ((liked * 4 + drawn * 6) / 2 + 0.001))
    assert float(kept(federation, "b")) == pytest.approx(-0.3 * (liked + drawn) / 2)


@both_engines
def test_rows_without_a_sample_shrink_with_every_step(engine):
    """Two clients with 1 and 2 mini-batches an epoch; item 5 is never liked nor drawn."""
    clients = clients_with([[0], [1, 2, 3]], items=6, allowed=[[4], [4]])
    federation = federation_of(
        "fedrap", clients, "d=2", "optimiser=sgd", "negatives=1", "batch_size=4", "local_epochs=2",
        "item_rate=20", "rate=0.1", "weight_decay=0.01", "batch_decay=0.95", "round_decay=0.97",
        "early_stop=null", engine=engine,
    )  # fmt: skip
    start = {name: federation.state.initial[name][5].clone() for name in ("C", "D")}
    shared, own = torch.ones(()), torch.ones(2)
    for round_ in (1, 2, 3):
        federation.train_round(round_)
        rate = 20 * 0.97 ** (round_ - 1)
        by = [math.prod(1 - rate * 0.95**step * 0.01 for step in range(steps)) for steps in (2, 4)]
        # The server's row is the plain mean of two copies, each shrunk by its own factor.
        shared, own = shared * sum(by) / 2, own * torch.tensor(by)
        assert near(federation.state.shared["C"][5], shared * start["C"])
        assert near(kept(federation, "D")[:, 5], own.unsqueeze(1) * start["D"])


def test_rates_shrink_from_round_to_round():
    federation = federation_of(
        "fedrap", clients_with([[0]], items=5), "item_rate=200", "rate=0.5", "round_decay=0.97"
    )
    for round_, shrunk in ((1, 1.0), (2, 0.97), (4, 0.97**3)):
        (step,) = asked_of_a_client(federation, round_).steps[0]
        assert step.rates == pytest.approx(
            dict.fromkeys("CD", 200 * shrunk) | dict.fromkeys("ub", 0.5 * shrunk)
        )


def test_users_are_scored_with_their_own_parts_and_the_newest_shared_table():
    clients = clients_with([[0], [1, 2, 3]], items=8)
    federation = federation_of("fedrap", clients, "d=2", "weighting=equal", "item_rate=1", *ONE_STEP)
    report = federation.train_round(1)
    assert report.up == 8 * 2
    assert federation.state.client_tensors.keys() == {"D", "u", "b"}
    q = federation.state.shared["C"] + kept(federation, "D")
    expected = (q * kept(federation, "u")).sum(-1) + kept(federation, "b")[:, 0]
    items = torch.arange(8).expand(2, -1)
    assert near(federation.scores(everyone(federation), items), expected)


@both_engines
def test_the_plain_mean_by_hand(engine):
    """SGD without penalties: what clients send differs from the start by one gradient each."""
    clients = clients_with([[0], [1, 2, 3]], items=5, allowed=[[4], [4]])
    federation = federation_of(
        "fedrap", clients, "d=1", *PURE, *ONE_STEP, "rate=0", "item_rate=3", "weighting=equal", engine=engine
    )
    give(federation, C=torch.zeros(5), D=torch.zeros(5), u=2.0, b=0.0)
    federation.train_round(1)
    # All scores 0: residual -1/2 for liked and 1/2 for drawn samples; gradients by 2 and by 6 samples.
    expected = [3 * 0.5 * 2 / 2 / 2, *[3 * 0.5 * 2 / 6 / 2] * 3, -3 * (0.5 * 2 / 2 + 3 * 0.5 * 2 / 6) / 2]
    assert federation.state.shared["C"].flatten().tolist() == pytest.approx(expected)


@both_engines
@pytest.mark.parametrize(
    ("tables", "sent", "own"), [("shared", 12, {"u", "b"}), ("personal", 0, {"D", "u", "b"})]
)
def test_variants_with_one_table(tables, sent, own, engine):
    clients = clients_with([[0], [1, 2]], items=6)
    federation = federation_of(
        "fedrap", clients, "d=2", f"tables={tables}", "item_rate=1", *ONE_STEP, engine=engine
    )
    report = federation.train_round(1)
    assert (report.up, report.down) == (sent, sent)
    assert federation.state.client_tensors.keys() == own
    table = federation.state.shared["C"] if tables == "shared" else kept(federation, "D")
    expected = (table * kept(federation, "u")).sum(-1) + kept(federation, "b")[:, 0]
    items = torch.arange(6).expand(2, -1)
    assert near(federation.scores(everyone(federation), items), expected)


GUARDED = ("d=2", *PURE, *ONE_STEP, "rate=0", "item_rate=3", "dp_clip=0.4")


@both_engines
def test_the_gradient_of_every_sample_is_clipped_before_the_mean(engine):
    # u = (0.6, 0.8): a row's gradient is the residual times u, of norm 1/2 where the score is 0 (item 1 is
    # drawn, item 0 liked) and tiny where it is right (item 2 is liked, and its score is 20).
    clients = clients_with([[0, 2]], items=3)
    federation = federation_of("fedrap", clients, *GUARDED, "dp_noise=1e-13", engine=engine)
    give(federation, C=[[0.0, 0.0], [0.0, 0.0], [12.0, 16.0]], D=torch.zeros(3, 2), u=[0.6, 0.8], b=0.0)
    federation.train_round(1)
    # Four samples: items 0 and 2 liked, item 1 drawn twice. Norm 1/2 becomes 0.4, twice for item 1.
    right = 1 / (1 + math.exp(20))
    expected = torch.tensor([[0.24, 0.32], [-0.48, -0.64], [0.6 * right, 0.8 * right]]) * 3 / 4
    moved = federation.state.shared["C"] - torch.tensor([[0.0, 0.0], [0.0, 0.0], [12.0, 16.0]])
    assert near(moved, expected, within=1e-11)
    # D is not guarded: its gradient is the plain one.
    assert near(kept(federation, "D")[0, 0], torch.tensor([0.3, 0.4]) * 3 / 4)


@both_engines
def test_noise_falls_on_every_row_in_proportion_to_the_clip_and_by_the_samples(engine):
    clients = clients_with([[0, 2]], items=9, allowed=[[1]])
    noisy, clean = (
        federation_of("fedrap", clients, *GUARDED, f"dp_noise={noise}", engine=engine, seed=3)
        for noise in (2, 1e-13)
    )
    noisy.train_round(1)
    clean.train_round(1)
    # Four samples: deviation 2 x 0.4 / 4 on the mean gradient, times the rate.
    drawn = gaussian(torch.tensor([0]), 18, 1.0, seed=3, round_=1).reshape(9, 2)
    found = noisy.state.shared["C"] - clean.state.shared["C"]
    assert near(found, -3 * (2 * 0.4 / 4) * drawn, within=1e-11)
    assert torch.equal(kept(noisy, "D"), kept(clean, "D"))


def test_every_mini_batch_has_noise_of_its_own():
    clients = clients_with([[0, 2]], items=9, allowed=[[1]])
    changes = (*GUARDED, "batch_size=2", "local_epochs=2")
    noisy, clean = (
        federation_of("fedrap", clients, *changes, "rate=0", f"dp_noise={noise}") for noise in (1, 1e-13)
    )
    for one in (noisy, clean):
        give(one, u=[0.0, 0.0])
        one.train_round(1)
    # With u = 0 gradients are 0: C moves by the noise of four mini-batches of two samples.
    found = noisy.state.shared["C"] - clean.state.shared["C"]
    places = [(epoch * 1024 + number) * 18 for epoch in (0, 1) for number in (0, 1)]
    drawn = sum(gaussian(torch.tensor([0]), 18, 1.0, 0, 1, first=place) for place in places)
    assert near(found, -3 * (0.4 / 2) * drawn.reshape(9, 2), within=1e-10)


def test_the_epsilon_reported_is_that_of_the_client_that_spends_most():
    # 2 and 8 samples in mini-batches of 4: all of them once an epoch, or half of them twice.
    clients = clients_with([[0], [1, 2, 3, 4]], items=9)
    federation = federation_of(
        "fedrap", clients, "negatives=1", "batch_size=4", "local_epochs=3", "dp_noise=1.5", "dp_delta=1e-4"
    )
    note = federation.notes(20)["privacy"]["gradients"]
    each = [gaussian_epsilon(1.5, 1.0, 60, 1e-4), gaussian_epsilon(1.5, 0.5, 120, 1e-4)]
    assert note["epsilon"] == max(each)
    assert each[0] != each[1]
    assert (note["delta"], note["clip"], note["noise_multiplier"]) == (
        1e-4,
        federation.settings["dp_clip"],
        1.5,
    )
    # UploadTransform the user layer a sample can turn every clipped gradient of its mini-batch around.
    through = [gaussian_epsilon(1.5 / 4, 1.0, 60, 1e-4), gaussian_epsilon(1.5 / 8, 1.0, 120, 1e-4)]
    assert note["epsilon_through_the_client"] == max(through)


def test_without_noise_nothing_is_said_about_privacy():
    assert "privacy" not in federation_of("fedrap", clients_with([[0]], items=5)).notes(10)
