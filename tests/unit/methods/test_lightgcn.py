"""LightGCN: the graph, what is spread over it, both losses, and the leak of a graph of all rows."""

import math

import pytest
import torch
from typing_extensions import override

from fedrec.central import adam
from fedrec.federation.engines.engine import engine_named
from fedrec.federation.model.tables import Values
from fedrec.methods._math import graph as module
from fedrec.methods._math import propagation_kernels, propagation_steps
from fedrec.methods._math.propagation_kernels import Shape
from fedrec.methods._math.propagation_steps import PropagationSteps, fits_kernels, pieces_of
from fedrec.runs.registry import make_learner
from tests.by_hand import clients_with, near
from tests.core import core_and
from tests.federations import clients_of, planted_blocks, settings_of, uniform_noise
from tests.lanes import CudaCompiler, LanesKernel

pytestmark = pytest.mark.usefixtures("double_precision")


def lightgcn(clients, *changes, paper=None):
    settings = settings_of("lightgcn", *changes, paper=paper)
    return make_learner("lightgcn", clients, settings, 0, engine=engine_named("loop", 0))


def with_vectors(learner, users, items):
    """The learner with these layer-0 vectors."""
    with torch.no_grad():
        learner.weights.P.copy_(torch.tensor(users))
        learner.weights.Q.copy_(torch.tensor(items))
    return learner


def dense(learner, clients):
    """The mean of the powers of the normalised adjacency, as one matrix."""
    user, item = learner.method.edges(clients)
    nodes = len(clients) + clients.items
    adjacency = torch.zeros(nodes, nodes)
    for u, i in zip(user.tolist(), item.tolist(), strict=True):
        adjacency[u, len(clients) + i] += 1
        adjacency[len(clients) + i, u] += 1
    scale = adjacency.sum(1).clamp(min=1).rsqrt().diag()
    step = scale @ adjacency @ scale
    powers = [torch.linalg.matrix_power(step, power) for power in range(learner.settings["depth"] + 1)]
    return torch.stack(powers).mean(0)


def all_scores(learner):
    clients = learner.clients
    return learner.scores(torch.arange(len(clients)), torch.arange(clients.items).expand(len(clients), -1))


@pytest.mark.parametrize("paper", [None, "fedrap"])
def test_the_graph_has_exactly_the_training_rows_as_edges(paper):
    clients = clients_of(planted_blocks())
    learner = lightgcn(clients, paper=paper)
    user, item = learner.method.edges(clients)
    assert len(user) == len(item) == len(clients.train_item)
    # Each edge is in the list of neighbours of either end.
    assert len(learner.method.graph.neighbours.chosen) == 2 * len(clients.train_item)
    found = torch.zeros(len(clients), clients.items, dtype=torch.bool)
    found[user, item] = True
    everyone = torch.arange(len(clients))
    assert not found[everyone, clients.held_out["validation"]].any()
    assert not found[everyone, clients.held_out["test"]].any()


def test_vectors_spread_by_hand():
    # User 0 met items 0 and 1, user 1 item 1, nobody item 2: degrees 2, 1 and 1, 2, 0.
    # Edges weigh a = 1/sqrt(2) (0-0), 1/2 (0-1) and a (1-1).
    learner = lightgcn(clients_with([[0, 1], [1]], items=3), "d=1", "depth=2")
    with_vectors(learner, [[1.0], [2.0]], [[4.0], [8.0], [16.0]])
    a = math.sqrt(0.5)
    first = [4 * a + 4, 8 * a, 1 * a, 0.5 + 2 * a, 0.0]
    second = [a * first[2] + first[3] / 2, a * first[3], a * first[0], first[0] / 2 + a * first[1], 0.0]
    zeroth = [1.0, 2.0, 4.0, 8.0, 16.0]
    expected = [sum(layers) / 3 for layers in zip(zeroth, first, second, strict=True)]
    w = learner.method.forward(learner.weights)
    assert torch.cat((w.user, w.item)).flatten().tolist() == pytest.approx(expected)
    # In numbers: user 0 has 1, 6.8284 and 1.4571; item 2, which has no edge, a third of itself.
    assert expected[0] == pytest.approx(3.0952, abs=1e-4)
    assert expected[4] == pytest.approx(16 / 3)
    assert all_scores(learner)[0, 2] == pytest.approx(3.0952 * 16 / 3, abs=1e-3)


def loss_by_hand(*changes):
    """User 0 likes item 0 and drew 2, user 1 likes 1 and drew 0; vectors are not spread."""
    learner = lightgcn(clients_with([[0], [1]], items=3), "d=1", "depth=0", *changes)
    with_vectors(learner, [[1.0], [2.0]], [[0.5], [1.0], [-1.0]])
    w = learner.method.forward(learner.weights)
    items, labels = torch.tensor([[0, 2], [1, 0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    return learner.method.loss(w, torch.tensor([0, 1]), items, labels).item()


# Sizes of the vectors of each row: 1 + 1/4 + 1 and 4 + 1 + 1/4.
SIZES = (2.25 + 5.25) / 2


def test_the_loss_that_ranks_by_hand():
    # Scores: 0.5 and -1, 2 and 1; positives lead by 1.5 and by 1.
    ranked = (math.log1p(math.exp(-1.5)) + math.log1p(math.exp(-1))) / 2
    assert loss_by_hand("reg=0.1") == pytest.approx(ranked + 0.1 / 2 * SIZES)
    assert loss_by_hand("reg=0") == pytest.approx(ranked)


def test_the_loss_that_tells_apart_by_hand():
    entropy = sum(math.log1p(math.exp(x)) for x in (-0.5, -1, -2, 1)) / 4
    assert loss_by_hand("loss=bce", "reg=0.1") == pytest.approx(entropy + 0.1 / 2 * SIZES)


def test_gradients_go_through_the_graph_as_through_the_matrix():
    clients = clients_with([[0, 1, 1], [1, 2], [3]], items=5)
    learner = lightgcn(clients, "d=2", "reg=0")
    matrix = dense(learner, clients)
    weight = torch.arange(16.0).reshape(8, 2).sin()
    w = learner.method.forward(learner.weights)
    (torch.cat((w.user, w.item)) * weight).sum().backward()
    found = torch.cat((learner.weights.P.grad, learner.weights.Q.grad))
    assert near(found, matrix.T @ weight)


@pytest.mark.parametrize("changes", [(), ("graph=all",), ("loss=bce", "negatives=4"), ("depth=1",)])
def test_users_are_scored_with_the_newest_vectors_spread(changes):
    clients = clients_of(planted_blocks(users=20))
    learner = lightgcn(clients, "rate=0.05", *changes)
    for round_ in (1, 2):
        learner.train_round(round_)
        spread = dense(learner, clients) @ torch.cat((learner.weights.P, learner.weights.Q)).detach()
        assert near(all_scores(learner), spread[:20] @ spread[20:].T)


def test_a_taken_up_state_is_spread_anew():
    clients = clients_of(planted_blocks(users=20))
    first, second = lightgcn(clients, "rate=0.05"), lightgcn(clients, "rate=0.05")
    all_scores(second)
    first.train_round(1)
    second.load({name: value.clone() for name, value in first.tensors().items()})
    assert torch.equal(all_scores(first), all_scores(second))


def test_vectors_are_spread_once_for_all_scores_of_an_epoch(monkeypatch):
    learner = lightgcn(clients_of(planted_blocks(users=20)))
    asked = []
    forward = learner.method.forward

    def counted(w: Values) -> Values:
        asked.append(1)
        return forward(w)

    learner.train_round(1)
    monkeypatch.setattr(learner.method, "forward", counted)
    all_scores(learner)
    all_scores(learner)
    assert len(asked) == 1


def test_a_mini_batch_keeps_rows_with_their_negatives(monkeypatch):
    clients = clients_with([[0, 1], [2], [3, 4]], items=9, allowed=[[5], [6], [7]])
    learner = lightgcn(clients, "batch_size=2")
    seen = []
    monkeypatch.setattr(
        learner.method,
        "loss",
        lambda w, users, items, labels: seen.append((users, items, labels)) or w.P.sum() * 0,
    )
    learner.train_round(1)
    assert [len(users) for users, _, _ in seen] == [2, 2, 1]
    rows = torch.cat([torch.cat((users.unsqueeze(1), items), dim=1) for users, items, _ in seen])
    assert sorted(map(tuple, rows.tolist())) == [(0, 0, 5), (0, 1, 5), (1, 2, 6), (2, 3, 7), (2, 4, 7)]
    assert all(torch.equal(labels, torch.tensor([1.0, 0.0]).expand(len(labels), 2)) for _, _, labels in seen)


def test_a_graph_of_all_rows_holds_the_held_out_ones_and_gives_them_away():
    """On random data nothing can be learnt, and yet the graph tells: untrained vectors suffice."""
    clients = clients_of(uniform_noise(users=100, per_user=10, candidates=15))
    honest, leaking = lightgcn(clients, "d=256"), lightgcn(clients, "d=256", "graph=all")
    user, item = leaking.method.edges(clients)
    assert len(user) == len(clients.train_item) + 2 * len(clients)
    pairs = set(zip(user.tolist(), item.tolist(), strict=True))
    for held_out in clients.held_out.values():
        assert set(enumerate(held_out.tolist())) <= pairs
    items = torch.cat((clients.held_out["test"].unsqueeze(1), clients.candidates["test"]), dim=1)
    first = {}
    for name, learner in (("honest", honest), ("leaking", leaking)):
        scores = learner.scores(torch.arange(len(clients)), items)
        first[name] = float((scores[:, 1:] < scores[:, :1]).all(1).double().mean())
    # Chance is one in 16.
    assert first["honest"] < 0.2
    assert first["leaking"] > 0.8


@pytest.mark.parametrize("columns", [7, 512])
def test_the_matrix_of_a_graph_spreads_as_its_layers_do(columns, monkeypatch):
    monkeypatch.setattr(module, "_COLUMNS", columns)
    learner = lightgcn(clients_of(planted_blocks()))
    graph, depth = learner.method.graph, learner.settings["depth"]
    nodes = torch.rand(len(graph.scale), 3)

    assert torch.allclose(graph.matrix(depth) @ nodes, graph.propagate(nodes, depth), rtol=1e-12)


class OnLanes(PropagationSteps):
    """The kernels as a GPU runs them."""

    @override
    def kernels(self, shape):
        return {name: LanesKernel(source) for name, source in shape.sources().items()}


WAYS = [
    ("d=4", "batch_size=16"),
    ("d=16", "batch_size=25"),
    ("loss=bce", "negatives=3", "d=8", "batch_size=1000"),
    ("d=32", "batch_size=30", "negatives=2", "reg=0.1"),
]
"""Mini-batches that samples fill or do not, and one that has room for more than there are."""


def on_both(changes):
    return [(changes, PropagationSteps, 3), (changes, OnLanes, 1)]


@pytest.mark.parametrize(
    ("changes", "steps", "epochs"),
    core_and(
        [*on_both(WAYS[2]), *on_both(WAYS[3]), (WAYS[0], PropagationSteps, 3)],
        [(WAYS[0], OnLanes, 1), *on_both(WAYS[1])],
    ),
)
def test_kernels_take_the_steps_that_torch_takes(steps, epochs, changes, monkeypatch):
    """On the CPU over several epochs, in which Adam's moments and count of steps go on. Work is cut."""
    monkeypatch.setattr(propagation_kernels, "_COLUMNS", 32)
    monkeypatch.setattr(propagation_kernels, "_AT_A_TIME", 1)
    monkeypatch.setattr(propagation_steps, "pieces_of", lambda turns, _tiles, _workers: min(turns, 2))
    clients = clients_of(planted_blocks(users=7, items=40, per_user=10))
    plain, quick = (lightgcn(clients, *changes) for _ in range(2))
    matrix = quick.method.graph.matrix(quick.settings["depth"])
    quick.steps = steps(quick.method, quick.optimiser, matrix)
    for round_ in range(1, epochs + 1):
        losses = [learner.train_round(round_).loss for learner in (plain, quick)]
        assert losses[1] == pytest.approx(losses[0], rel=1e-12)
    for learner in (plain, quick):
        assert learner.optimiser.taken > 0
    for (name, wanted), (_, found) in zip(plain.optimiser.tensors(), quick.optimiser.tensors(), strict=True):
        assert torch.allclose(found, wanted, rtol=1e-9, atol=1e-18), name
    for name, wanted in plain.values.items():
        assert torch.allclose(quick.values[name], wanted, rtol=1e-9), name


@pytest.mark.parametrize(
    ("changes", "double"), core_and([(WAYS[2], True)], [(WAYS[0], False), (WAYS[3], False)])
)
def test_a_gpu_takes_the_kernels(changes, double):
    settings = settings_of("lightgcn", *changes)
    pairs, nodes = settings["loss"] == "bpr", 2 + settings["negatives"]
    shape = Shape(settings["d"], nodes, pairs, double)
    for name, source in shape.sources().items():
        assert CudaCompiler().refusal(source, shape.lanes[name]) == ""


def test_kernels_go_on_from_a_stored_state():
    first, second = (lightgcn(clients_of(planted_blocks(users=7)), "d=8", "batch_size=16") for _ in range(2))
    for learner in (first, second):
        matrix = learner.method.graph.matrix(learner.settings["depth"])
        learner.steps = PropagationSteps(learner.method, learner.optimiser, matrix)
    first.train_round(1)
    second.load({name: value.clone() for name, value in first.tensors().items()})
    for learner in (first, second):
        learner.train_round(2)
    for name, value in first.tensors().items():
        assert torch.equal(second.tensors()[name], value), name


def test_work_is_cut_so_that_all_workers_are_soon_done():
    # All work at once on seven turns each, where fewer pieces would leave some without work.
    assert pieces_of(turns=77, tiles=12, workers=132) == 11
    # Three times 39 turns rather than twice 77.
    assert pieces_of(turns=77, tiles=192, workers=132) == 2
    assert pieces_of(turns=77, tiles=10, workers=1) == 1
    for turns in range(1, 40):
        pieces = pieces_of(turns, tiles=3, workers=132)
        assert (pieces - 1) * -(-turns // pieces) < turns


def test_widths_that_lanes_cannot_share_and_rows_of_many_nodes_have_no_kernels():
    assert fits_kernels(16, 3)
    assert not fits_kernels(10, 3)
    assert not fits_kernels(16, 50)


def test_kernels_move_as_adam_does():
    assert (propagation_kernels._BETA1, propagation_kernels._BETA2, propagation_kernels._EPSILON) == (
        adam._BETA1,
        adam._BETA2,
        adam._EPSILON,
    )
