"""CoLR: updates of low rank in a subspace that changes every round, and rows that move by means."""

import pytest
import torch

from fedrec.errors import ConfigurationError
from fedrec.methods.colr import basis
from tests.by_hand import ENGINES, asked_of_a_client, clients_with, everyone, federation_of, give, kept, near

pytestmark = pytest.mark.usefixtures("double_precision")
both_engines = pytest.mark.parametrize("engine", ENGINES, ids=["loop", "batched"])
OFFICIAL = ("rate=0.5", "local_epochs=2", "optimiser=sgd", "rows=mean", "l2=0.0005")
"""As the official code trains; the default is what gives FedEM's printed number."""
STEP = (*OFFICIAL, "d=4", "rank=2", "negatives=1", "local_epochs=1", "batch_size=1000")
"""One step of SGD on all samples."""


@pytest.fixture
def twice():
    """One client that likes items 0 and 1 and draws item 2 for both: a mini-batch of 0, 1, 2, 2."""
    return clients_with([[0, 1]], items=4, allowed=[[2]])


def stepped(clients, *changes, engine, user=(0.5, -1.0, 0.25, 2.0)):
    federation = federation_of("colr", clients, *STEP, *changes, engine=engine)
    give(federation, p=user)
    return federation, federation.train_round(1)


def pulls(q, p, l2=0.0):
    """The gradient of the loss of one sample of each item with respect to its vector; 0 and 1 are liked."""
    wrong = torch.sigmoid(q @ p) - torch.tensor([1.0, 1.0, 0.0, 0.0])
    return wrong.unsqueeze(1) * p + 2 * l2 * q


def test_p_and_the_small_factor_are_trained_together_and_the_small_factor_alone_is_sent():
    federation = federation_of("colr", clients_with([[0]], items=5))
    asked = asked_of_a_client(federation)
    assert asked.events == [("fit", {"A", "p"}), ("upload", "A", "A")]
    assert asked.asked == (10, None)
    assert asked.steps[0][0].optimiser == "adam"


@pytest.mark.parametrize(("rank", "d"), [(1, 3), (2, 4), (4, 16), (5, 5)])
def test_the_basis_has_orthogonal_rows_of_squared_length_d_over_rank(rank, d):
    b = basis(torch.Size((rank, d)), seed=3, round_=2)
    assert near(b @ b.T, d / rank * torch.eye(rank))


def test_the_basis_depends_on_seed_and_round_alone():
    shape = torch.Size((2, 4))
    drawn = [basis(shape, seed, round_) for seed, round_ in ((0, 1), (0, 2), (1, 1))]
    assert torch.equal(drawn[0], basis(shape, 0, 1))
    for other in drawn[1:]:
        assert not near(drawn[0], other, within=0.1)


@both_engines
def test_every_round_has_one_new_basis_for_all_clients(engine):
    federation = federation_of("colr", clients_with([[0], [1, 2]], items=9), engine=engine, seed=5)
    for round_ in (1, 2, 3):
        federation.train_round(round_)
        assert torch.equal(federation.state.shared["B"], basis(torch.Size((4, 16)), 5, round_))
    assert "B" not in federation.state.client_tensors


@both_engines
@pytest.mark.parametrize("l2", [0.0, 0.1])
def test_a_row_moves_by_the_mean_over_its_samples_and_the_user_by_the_mean_of_all(twice, engine, l2):
    federation, _ = stepped(twice, f"l2={l2}", engine=engine)
    q, b = federation.state.shared["Q"], federation.state.shared["B"]
    p = federation.state.initial["p"].flatten()
    # A starts at 0; its rate is 0.5 sqrt(2 / 4). Nothing is drawn or liked of item 3.
    expected = -0.5 * 0.5**0.5 * pulls(q, p, l2) @ b.T
    expected[3] = 0
    assert near(federation.state.shared["A"], expected)
    wrong = torch.sigmoid(q @ p) - torch.tensor([1.0, 1.0, 0.0, 0.0])
    user = (wrong[0] * q[0] + wrong[1] * q[1] + 2 * wrong[2] * q[2]) / 4 + 2 * l2 * p
    assert near(kept(federation, "p").flatten(), p - 0.5 * user)


@both_engines
def test_rows_may_move_by_their_part_of_the_mean_of_all_instead(twice, engine):
    federation, _ = stepped(twice, "l2=0", "rows=sum", engine=engine)
    q, b = federation.state.shared["Q"], federation.state.shared["B"]
    # Items 0, 1 and 2 have 1, 1 and 2 of 4 samples.
    part = torch.tensor([[0.25], [0.25], [0.5], [0.0]])
    expected = -0.5 * 0.5**0.5 * part * pulls(q, federation.state.initial["p"].flatten()) @ b.T
    assert near(federation.state.shared["A"], expected)


@both_engines
def test_every_mini_batch_counts_its_own_samples(engine):
    """Mini-batches of one sample: each of item 2's two samples moves its row by all of its pull."""
    clients = clients_with([[0, 1]], items=4, allowed=[[2]])
    federation = federation_of(
        "colr", clients, *STEP, "batch_size=1", "l2=0", "rate=1e-7", engine=engine
    )  # so small a rate that the second step is on the same loss
    give(federation, p=[0.5, -1.0, 0.25, 2.0])
    federation.train_round(1)
    q, b = federation.state.shared["Q"], federation.state.shared["B"]
    times = torch.tensor([[1.0], [1.0], [2.0], [0.0]])
    expected = -1e-7 * 0.5**0.5 * times * pulls(q, federation.state.initial["p"].flatten()) @ b.T
    assert near(federation.state.shared["A"], expected, within=1e-12)
    assert float(expected.abs().max()) > 1e-8


@both_engines
def test_a_step_is_the_plain_one_projected_on_the_subspace_times_the_root_of_d_over_rank(twice, engine):
    federation, _ = stepped(twice, "l2=0", engine=engine)
    q, a, b = (federation.state.shared[name] for name in ("Q", "A", "B"))
    gradient = pulls(q, federation.state.initial["p"].flatten())
    gradient[3] = 0
    projector = torch.linalg.pinv(b) @ b
    assert torch.linalg.matrix_rank(projector) == 2
    assert near(a @ b, -0.5 * 2**0.5 * gradient @ projector)


@both_engines
def test_the_gradient_is_scaled_and_not_the_rate(twice, engine):
    """Adam's first step goes by its rate, however long the gradient is."""
    federation, _ = stepped(twice, "optimiser=adam", "rows=sum", "l2=0", engine=engine)
    steps = federation.state.shared["A"].abs()
    assert near(steps[:3], torch.full((3, 2), 0.5), within=1e-4)
    moved = (kept(federation, "p")[0] - federation.state.initial["p"]).abs()
    assert near(moved, torch.full((1, 4), 0.5), within=1e-4)


@both_engines
def test_the_update_is_added_when_the_next_round_begins_and_has_low_rank(engine):
    clients = clients_with([[0, 1, 2], [3, 4], [5, 6]], items=12)
    federation = federation_of("colr", clients, "d=6", "rank=2", engine=engine)
    start = federation.state.shared["Q"].clone()
    federation.train_round(1)
    q, a, b = (federation.state.shared[name].clone() for name in ("Q", "A", "B"))
    assert torch.equal(q, start)
    assert torch.linalg.matrix_rank(a @ b) == 2
    scores = federation.scores(everyone(federation), torch.arange(12).expand(3, -1))
    assert near(scores, kept(federation, "p")[:, 0] @ (q + a @ b).T)
    federation.train_round(2)
    assert near(federation.state.shared["Q"], q + a @ b)
    assert not near(federation.state.shared["A"], a, within=1e-3)


@both_engines
def test_the_small_factor_starts_at_zero_in_every_round(engine):
    """With a rate of 0 nothing is left of what it was."""
    clients = clients_with([[0, 1, 2], [3, 4]], items=12)
    federation = federation_of("colr", clients, "d=6", "rank=2", "rate=0", engine=engine)
    federation.state.shared["A"] = torch.ones(12, 2)
    federation.state.shared["B"] = torch.ones(2, 6)
    before = federation.state.shared["Q"].clone()
    federation.train_round(1)
    assert torch.equal(federation.state.shared["A"], torch.zeros(12, 2))
    assert near(federation.state.shared["Q"], before + 2)


def test_a_stored_state_goes_on_as_if_nothing_had_happened():
    clients = clients_with([[0, 1, 2], [3, 4]], items=12)
    first, second = (federation_of("colr", clients, "d=6", "rank=2", seed=3) for _ in range(2))
    for round_ in (1, 2):
        first.train_round(round_)
    second.load({key: value.clone() for key, value in first.tensors().items()})
    for federation in (first, second):
        federation.train_round(3)
    for key, value in first.tensors().items():
        assert torch.equal(value, second.tensors()[key]), key


@both_engines
def test_the_small_factor_is_all_that_is_sent(engine):
    federation = federation_of("colr", clients_with([[0], [1, 2]], items=9), "d=6", "rank=2", engine=engine)
    report = federation.train_round(1)
    assert report.up == 9 * 2
    # The update of the last round and the next basis; who has these needs no table.
    assert report.down == 9 * 2 + 2 * 6


@both_engines
@pytest.mark.parametrize("combine", ["touched", "mean"])
def test_a_row_becomes_the_mean_over_the_clients_that_have_samples_of_it(engine, combine):
    # Item 0 both like, item 1 the second client alone; item 2 both draw, the second twice; item 3 nobody.
    clients = clients_with([[0], [1, 0]], items=4, allowed=[[2], [2]])
    federation = federation_of("colr", clients, *STEP, "l2=0", f"combine={combine}", engine=engine)
    users = torch.tensor([[0.5, -1.0, 0.25, 2.0], [1.0, 0.5, -0.5, 0.0]])
    federation.state.client_tensors["p"].put(torch.arange(2), users.unsqueeze(1))
    federation.train_round(1)
    q, b = federation.state.shared["Q"], federation.state.shared["B"]
    one, two = (-0.5 * 0.5**0.5 * pulls(q, user) @ b.T for user in users)
    alone = 1.0 if combine == "touched" else 0.5
    expected = (one + two) / 2
    expected[1], expected[3] = alone * two[1], 0
    assert near(federation.state.shared["A"], expected)


def test_vectors_start_with_variance_one_over_d():
    federation = federation_of("colr", clients_with([[0]], items=500), "d=16")
    assert float(federation.state.initial["Q"].std()) == pytest.approx(0.25, rel=0.05)
    assert federation.state.initial["A"].count_nonzero() == 0


def test_a_rank_above_the_size_of_vectors_is_refused():
    with pytest.raises(ConfigurationError, match="rank=4 is above d=2"):
        federation_of("colr", clients_with([[0], [1]], items=6), "d=2", "rank=4")
