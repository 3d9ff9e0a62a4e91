"""Products of item vectors: how a server adds them up, and how tables approach them."""

import pytest
import torch

from fedrec.federation.engines.batched.engine import BatchedEngine
from fedrec.federation.model.server_rule import ServerRule
from fedrec.federation.server.server import Server
from fedrec.methods._math.eigen import Eigenpairs
from fedrec.methods._math.low_rank_rows import LowRankRows
from fedrec.methods._math.products import Approach, Goal, Products, approach_products
from tests.by_hand import clients_with, federation_of, near

pytestmark = pytest.mark.usefixtures("double_precision")


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_autograd(table, goal, steps, rate, decay):
    table = table.clone().requires_grad_()
    optimiser = torch.optim.SGD([table], lr=rate, weight_decay=decay)
    for _ in range(steps):
        optimiser.zero_grad()
        torch.linalg.matrix_norm(table @ table.T - goal).backward()
        optimiser.step()
    return table.detach()


def test_one_step_by_hand():
    # One item of one number, 3, and the product 5: |9 - 5| has slope 2 x 3, and 1/3 of the table decays.
    found = approach_products(torch.tensor([[[3.0]]]), Goal(torch.tensor([[5.0]])), 1, 0.25, 1 / 3)
    assert float(found) == pytest.approx(3 - 0.25 * (6 + 1))
    # From below it goes up.
    found = approach_products(torch.tensor([[[2.0]]]), Goal(torch.tensor([[5.0]])), 1, 0.25, 0.0)
    assert float(found) == pytest.approx(2 + 0.25 * 4)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("rate", "decay"), [(0.1, 0.001), (0.05, 0.0), (0.01, 0.5)])
def test_steps_are_those_of_torch_optim_on_the_norm(symmetric, rate, decay):
    tables, other = drawn(5, 9, 3), drawn(4, 9, 3, seed=1)
    goal = (other @ other.transpose(1, 2)).mean(0)
    if not symmetric:
        goal = goal + drawn(9, 9, seed=2)
        assert not near(goal, goal.T, within=0.1)
    before = tables.clone()
    found = approach_products(tables, Goal(goal), 30, rate, decay)
    for table, own in zip(tables, found, strict=True):
        assert near(own, by_autograd(table, goal, 30, rate, decay), within=1e-9)
    assert torch.equal(tables, before)


def test_single_precision_differs_by_rounding_alone():
    tables, goal = drawn(5, 40, 3), drawn(40, 40, seed=1) / 10
    found = approach_products(tables.float(), Goal(goal.float()), 30, 0.1, 0.001)
    assert found.dtype == torch.float32
    exact = approach_products(tables, Goal(goal), 30, 0.1, 0.001)
    assert near(found.double(), exact, within=1e-5)


def test_no_steps_leave_tables_as_they_are():
    tables = drawn(2, 6, 3)
    assert near(approach_products(tables, Goal(drawn(6, 6)), 0, 0.1, 0.1), tables)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_a_table_that_has_reached_the_goal_stays_there(kind):
    """The norm has no slope at 0, and rounding must not be taken for one."""
    table = drawn(30, 4).to(kind)
    goal = Goal(table @ table.T)
    found = approach_products(table.unsqueeze(0), goal, 1, 0.1, 0.0)[0]
    assert near(found, table, within=1e-3 if kind == torch.float32 else 1e-7)
    nothing = torch.zeros(1, 30, 4, dtype=kind)
    assert not approach_products(nothing, Goal(torch.zeros(30, 30, dtype=kind)), 5, 0.1, 0.1).any()


def server_with(weight, **shared):
    """A server of FedCIA whose clients have these shares."""
    federation = federation_of("fedcia", clients_with([[0], [1], [2]], items=7), "d=2")
    federation.state.shared.update(shared)
    return Server(federation.state, torch.tensor(weight), seed=0, round_=1)


@pytest.mark.parametrize("weight", [[1 / 3, 1 / 3, 1 / 3], [0.5, 0.2, 0.3], [0.5, 0.0, 0.5]])
def test_the_server_has_the_weighted_mean_of_all_products(weight):
    """Whatever it had before, and however clients come in blocks."""
    tables = drawn(3, 7, 2)
    plain = sum(share * table @ table.T for share, table in zip(weight, tables, strict=True))
    for blocks in ([[0, 1, 2]], [[2, 0], [1]], [[1], [0], [2]]):
        server = server_with(weight, S=drawn(7, 7, seed=3))
        for block in blocks:
            server.receive_transformed("S", torch.tensor(block), tables[block], Products())
        server.aggregate(ServerRule({}, 7))
        assert near(server.state.shared["S"], plain)


def test_one_client_and_many_approach_the_same_goal():
    """The definition is plain SGD; what many clients do at once must equal it."""
    tables, goal = drawn(3, 7, 2), drawn(7, 7, seed=5)
    approach = Approach("S", 6, 0.05, 0.02)
    many = approach.of_many(tables, {"S": goal})
    for table, moved in zip(tables, many, strict=True):
        assert near(approach.of_one(table, {"S": goal}), moved, within=1e-9)


def asked_whether_weak(monkeypatch):
    """What is answered from here on where it is asked whether what lies beside strong axes is weak."""
    answers = []
    plain = LowRankRows.are_weak.fget
    monkeypatch.setattr(
        LowRankRows, "are_weak", property(lambda rows: answers.append(plain(rows)) or answers[-1])
    )
    return answers


@pytest.mark.parametrize(
    ("strong", "spread", "weak"),
    [
        (0, 1e-3, [True]),
        (5, 1e-3, [True]),
        (5, 1.0, [False, True]),
        (5, 100.0, [False, False]),
        (40, 1e-3, [False, False]),
    ],
)
def test_what_lies_beside_strong_axes_is_moved_together_where_it_is_weak(monkeypatch, strong, spread, weak):
    """The goal has some strong axes, and others of about `spread`: the weaker, the fewer powers of them count.

    Of 40 strong axes not all are taken out; what stays in the rest is not weak.
    """
    asked = asked_whether_weak(monkeypatch)
    own, tables = drawn(150, strong, seed=1), drawn(2, 150, 3)
    goal = own @ own.T + spread * drawn(150, 150, seed=2)
    approach = Approach("S", 20, 0.05, 0.02)
    many = approach.of_many(tables, {"S": goal})
    assert asked == weak
    for table, moved in zip(tables, many, strict=True):
        assert near(approach.of_one(table, {"S": goal}), moved, within=1e-9)


@pytest.mark.parametrize(
    ("spread", "weak"), [(1e-5, [True]), (0.01, [False, True]), (0.3, [False, False, True])]
)
def test_the_stronger_what_lies_beside_the_more_powers_count(monkeypatch, spread, weak):
    """In single precision, as trained: whatever is left out is below its rounding."""
    asked = asked_whether_weak(monkeypatch)
    own, tables = drawn(150, 5, seed=1), drawn(2, 150, 3)
    goal = own @ own.T + spread * drawn(150, 150, seed=2)
    moved = Approach("S", 20, 0.2, 0.001).of_many(tables.float(), {"S": goal.float()})
    assert asked == weak
    exact = Approach("S", 20, 0.2, 0.001).of_many(tables, {"S": goal})
    assert near(moved.double(), exact, within=1e-5)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("apart", [1e-1, 1e-3, 1e-5])
def test_near_the_goal_as_far_from_it_steps_are_as_exact_as_plain_ones(kind, apart):
    """There a norm is what is left of large numbers: plain steps lose to rounding, too."""
    table = 0.3 * drawn(100, 4)
    near_by = table + apart * drawn(100, 4, seed=1)
    goal, approach = near_by @ near_by.T, Approach("S", 1, 1e-3, 0.0)
    exact = approach.of_one(table, {"S": goal})
    plain = approach.of_one(table.to(kind), {"S": goal.to(kind)}).double()
    (many,) = approach.of_many(table.to(kind).unsqueeze(0), {"S": goal.to(kind)}).double()
    lost = float((plain - exact).norm())
    # What was moved is about 1e-3 long.
    assert float((many - exact).norm()) <= max(10 * lost, 1e-12)


@pytest.mark.parametrize("decay", [0.0, 1.0])
def test_what_is_left_out_is_measured_by_tables_as_they_have_become(decay):
    """Tables that shrink: what was small beside them at first is not so in the end."""
    tables, goal = drawn(2, 200, 4).float(), drawn(200, 200, seed=1).float()
    approach = Approach("S", 50, 0.5, decay)
    many = approach.of_many(tables, {"S": goal})
    for table, moved in zip(tables, many, strict=True):
        exact = approach.of_one(table.double(), {"S": goal.double()})
        plain = approach.of_one(table, {"S": goal}).double()
        lost = float((plain - exact).norm() / exact.norm())
        assert float((moved.double() - exact).norm() / exact.norm()) <= max(10 * lost, 1e-6)


def test_a_goal_of_few_items_alone_leaves_the_others_where_they_are():
    """What is left of it beside its axes is rounding, and must not be blown up."""
    few = torch.zeros(100, 3, dtype=torch.float64)
    few[:20] = drawn(20, 3)
    tables, goal = drawn(2, 100, 4, seed=1), few @ few.T
    assert near(Approach("S", 0, 0.1, 0.0).of_many(tables, {"S": goal}), tables)
    approach = Approach("S", 5, 0.05, 0.0)
    for table, moved in zip(tables, approach.of_many(tables, {"S": goal}), strict=True):
        assert near(approach.of_one(table, {"S": goal}), moved, within=1e-9)


@pytest.mark.parametrize("items", [5, 20, 100])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_towards_a_goal_that_is_no_number_tables_are_none_either(items, bad):
    """The training sees that, and says in which round."""
    goal = drawn(items, items)
    goal[3, 4] = bad
    assert Approach("S", 3, 0.1, 0.0).of_many(drawn(2, items, 2), {"S": goal}).isnan().all()


@pytest.mark.parametrize("kept", [6, 9])
def test_weak_rows_step_as_tables_do(kept):
    tables, half, matrix = drawn(2, 9, 3), drawn(9, 9, seed=1), drawn(2, 3, 3) / 2
    rest, bound = (half + half.T) / 2, 1e-3
    weak = LowRankRows(tables.transpose(0, 1).contiguous(), rest, bound)
    pace = torch.tensor([0.5, 0.2])[:, None, None]
    weak.start(2)
    weak.step(matrix, pace)
    # Whatever was done before, it starts anew.
    weak.start(kept)
    for _ in range(4):
        weak.step(matrix, pace)
        tables = tables @ matrix + pace * bound * (rest @ tables)
        gram, meeting = weak.products()
        assert near(weak.tables(), tables, within=1e-12)
        assert near(gram, tables.transpose(1, 2) @ tables, within=1e-12)
        assert near(meeting, bound * (tables * (rest @ tables)).sum((1, 2)), within=1e-12)
        weak.compare(tables.square().sum((1, 2)))
    assert weak.are_weak
    few = LowRankRows(tables.transpose(0, 1).contiguous(), rest, bound)
    few.start(2)
    few.step(matrix, pace)
    few.compare(tables.square().sum((1, 2)) * 1e24)
    assert few.are_weak, "beside tables that are much larger"
    few.compare(tables.square().sum((1, 2)))
    assert not few.are_weak


def test_a_goal_is_taken_apart_once_for_all_blocks_of_a_round(monkeypatch):
    asked = []
    plain = torch.linalg.eigh
    monkeypatch.setattr(torch.linalg, "eigh", lambda matrix: asked.append(len(matrix)) or plain(matrix))
    approach, goal = Approach("S", 20, 0.5, 0.0), drawn(100, 100)
    for _ in range(3):
        approach.of_many(drawn(2, 100, 2), {"S": goal})
    # A block of directions, and all of them, as none stands out.
    assert asked == [64, 100]


@pytest.mark.parametrize("seed", [0, 1])
def test_strong_axes_are_those_of_the_whole_matrix(seed):
    """Three of them, one with a negative value, stand out of a hundred."""
    own = torch.linalg.qr(drawn(100, 3, seed=seed)).Q
    rest = drawn(100, 100, seed=seed + 2) * 1e-4
    matrix = (own * torch.tensor([5.0, -3.0, 2.0])) @ own.T + rest + rest.T
    strong, whole = Eigenpairs.strong_of(matrix, torch.float64), Eigenpairs.all_of(matrix, torch.float64)
    assert len(strong.values) == 3
    assert near(strong.values, whole.values[:3], within=1e-12)
    assert near((strong.vectors.T @ whole.vectors[:, :3]).abs(), torch.eye(3), within=1e-9)
    assert strong.bound == pytest.approx(float(whole.values[3].abs()), rel=0.1)
    again = (strong.vectors * strong.values) @ strong.vectors.T + strong.rest * strong.bound
    assert near(again, matrix, within=1e-12)
    assert near(strong.rest @ strong.vectors, torch.zeros(100, 3), within=1e-8)


def test_where_nothing_stands_out_everything_is_rest():
    strong = Eigenpairs.strong_of(torch.eye(100, dtype=torch.float64) * 7, torch.float32)
    assert strong.rest.dtype == torch.float32
    nothing = Eigenpairs.strong_of(torch.zeros(100, 100, dtype=torch.float64), torch.float32)
    assert not nothing.rest.any()
    assert not nothing.values.any()


def test_a_weighted_sum_of_products_is_the_sum_of_weighted_products():
    tables, weights = drawn(3, 7, 2), torch.tensor([0.5, 0.0, 0.25])
    plain = sum(weight * Products().of_one(table) for weight, table in zip(weights, tables, strict=True))
    assert near(Products().weighted_sum(tables, weights), plain)


def test_the_servers_matrix_takes_no_place_among_what_clients_hold():
    """A matrix of 600 x 600 for each of them would fill 8 MiB."""
    clients = clients_with([[0], [1]], items=600)
    federation = federation_of("fedcia", clients, "d=2", engine=BatchedEngine(2**20))
    assert federation.train_round(1).clients == 2
