"""FedFast: delegates of clusters, the rest that follows, and rows that count by how far they moved."""

import pytest
import torch
from torch.nn import functional

from fedrec.methods._math.clustering import clusters
from fedrec.methods.fedfast import delegates, follow
from tests.by_hand import ENGINES, asked_of_a_client, clients_with, everyone, federation_of, give, kept, near
from tests.federations import clients_of, planted_blocks

pytestmark = pytest.mark.usefixtures("double_precision")
both_engines = pytest.mark.parametrize("engine", ENGINES, ids=["loop", "batched"])
PLAIN = ("product=plain", "gamma=0.9")
STEP = (*PLAIN, "d=2", "negatives=1", "optimiser=sgd", "rate=0.5", "local_epochs=1", "batch_size=1000")
"""One step of SGD on all samples."""


def tables_after_a_step(federation, round_=1, weighted=False):
    """What each client makes of the present parameters in one step of SGD with rate 0.5."""
    for client in range(len(federation.clients)):
        samples = federation.clients.samples(torch.tensor([client]), 1, federation.seed, round_)
        names = ("Q", "h") if weighted else ("Q",)
        values = [federation.state.shared[name].clone().requires_grad_() for name in names]
        user = kept(federation, "p")[client].requires_grad_()
        score = (values[0][samples.item] * user * (values[1] if weighted else 1)).sum(-1)
        loss = functional.binary_cross_entropy_with_logits(score, samples.label)
        found = torch.autograd.grad(loss, [*values, user])
        yield tuple((value - 0.5 * by).detach() for value, by in zip([*values, user], found, strict=True))


def test_everything_is_trained_together_and_sent():
    federation = federation_of("fedfast", clients_with([[0]], items=6), *PLAIN)
    asked = asked_of_a_client(federation)
    assert asked.events == [("fit", {"Q", "p"}), ("upload", "Q", "Q"), ("upload", "p", "p")]
    assert asked.steps[0][0].rates == {"Q": 0.1, "p": 0.1}
    assert (asked.steps[0][0].optimiser, asked.asked) == ("adam", (10, None))


@both_engines
def test_rows_of_items_count_by_the_sum_of_their_absolute_changes(engine):
    # Item 0 is the first client's, item 1 the second's, item 2 both draw, and item 3 nobody.
    clients = clients_with([[0], [1, 0]], items=4, allowed=[[2], [2]])
    federation = federation_of("fedfast", clients, *STEP, engine=engine)
    vectors = torch.tensor([[[1.0, -2.0]], [[0.5, 0.25]]])
    federation.state.client_tensors["p"].put(torch.arange(2), vectors)
    before = federation.state.shared["Q"].clone()
    after = list(tables_after_a_step(federation))
    federation.train_round(1)
    found = federation.state.shared["Q"]
    for item in (0, 2):
        one, two = (table[item] for table, _ in after)
        far, near_by = ((row - before[item]).abs().sum() for row in (one, two))
        assert near(found[item], (far * one + near_by * two) / (far + near_by))
        # Not number by number.
        each = [(row - before[item]).abs() for row in (one, two)]
        assert not near(found[item], (each[0] * one + each[1] * two) / (each[0] + each[1]), within=1e-4)
    assert near(found[1], after[1][0][1])
    assert torch.equal(found[3], before[3])
    assert near(kept(federation, "p"), torch.stack([user for _, user in after]))


@both_engines
@pytest.mark.parametrize("changes", [(), ("optimiser=sgd", "batch_size=16")])
def test_with_everyone_in_every_round_only_the_rule_for_items_is_left(engine, changes):
    clients = clients_of(planted_blocks(users=8))
    changes = ("local_epochs=2", *changes)
    own = federation_of("fedfast", clients, *PLAIN, *changes, engine=engine)
    plain = federation_of("fedmf", clients, *changes, "combine=change", engine=engine, paper="fedem")
    own.train_round(1)
    plain.train_round(1)
    assert near(own.state.shared["Q"], plain.state.shared["Q"])
    # User vectors come to the server as changes, which may round their last digit.
    for round_ in (2, 3):
        own.train_round(round_)
        plain.train_round(round_)
    assert near(own.state.shared["Q"], plain.state.shared["Q"])
    assert near(kept(own, "p"), kept(plain, "p"))


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, [5]), (2, [1, 5]), (3, [1, 3, 5]), (4, [1, 2, 3, 5]), (5, [1, 2, 3, 4, 5]), (6, [0, 1, 2, 3, 4, 5])],
)
def test_delegates_come_from_every_cluster_in_turn(count, expected):
    cluster = torch.tensor([0, 0, 0, 1, 1, 2])
    word = torch.tensor([5, 1, 3, 2, 4, 0])
    # Smallest words of their clusters: 1, 3 and 5; then 2 and 4; then 0.
    assert delegates(cluster, word, count).tolist() == expected


def test_large_clusters_fill_up_what_small_ones_cannot_give():
    cluster = torch.tensor([1, 1, 1, 1, 1, 0])
    word = torch.tensor([9, 8, 7, 6, 5, 99])
    assert delegates(cluster, word, 4).tolist() == [2, 3, 4, 5]


def test_the_rest_follows_the_mean_of_its_delegates():
    change = torch.tensor([[2.0, 0.0], [4.0, 2.0], [9.0, 9.0], [0.0, 0.0], [1.0, -1.0], [7.0, 7.0]])
    taking_part = torch.tensor([True, True, False, False, True, False])
    cluster = torch.tensor([0, 0, 0, 1, 1, 2])
    followed = follow(change, taking_part, cluster)
    # Nobody of cluster 2 took part.
    expected = [[3.0, 1.0]] * 3 + [[1.0, -1.0]] * 2 + [[0.0, 0.0]]
    assert followed.tolist() == expected


def test_there_are_no_more_clusters_than_different_vectors():
    assert clusters(torch.ones(5, 2), 3, seed=0, round_=1).tolist() == [0] * 5
    found = clusters(torch.tensor([[0.0], [9.0], [0.1], [9.1], [0.0]]), 2, seed=0, round_=1)
    assert found[0] == found[2] == found[4] != found[1] == found[3]


@both_engines
def test_the_rest_follows_ever_less(engine):
    """One cluster: whoever does not take part moves by 0.9, then 0.81 of what the others moved by."""
    clients = clients_with([[0], [1, 2], [3], [4, 5]], items=12)
    changes = ("participation=0.5", "clusters=1", "local_epochs=2")
    federation = federation_of("fedfast", clients, *PLAIN, "d=2", *changes, engine=engine)
    for round_ in (1, 2):
        before = kept(federation, "p")
        report = federation.train_round(round_)
        assert report.clients == 2
        moved = kept(federation, "p") - before
        trained = federation.state.held
        assert int(trained.sum()) == 2
        assert near(moved[~trained], (0.9**round_ * moved[trained].mean(0)).expand(2, 1, 2))
        assert float(moved[trained].abs().min()) > 0.01


@both_engines
@pytest.mark.parametrize("gamma", [0.9, 0.5])
def test_every_cluster_has_a_delegate_and_follows_it_alone(engine, gamma):
    clients = clients_with([[0], [1, 2], [3], [4, 5], [6], [7]], items=12)
    changes = ("participation=0.4", "clusters=2", "rate=0.01", f"gamma={gamma}")
    federation = federation_of("fedfast", clients, *PLAIN, "d=2", *changes, engine=engine)
    start = torch.tensor([[5.0, 0.0], [-5.0, 0.0], [5.0, 0.1], [-5.0, 0.1], [5.1, 0.0], [-5.1, 0.0]])
    federation.state.client_tensors["p"].put(torch.arange(6), start.unsqueeze(1))
    for round_ in (1, 2, 3):
        before = kept(federation, "p")
        federation.train_round(round_)
        moved = kept(federation, "p") - before
        who = federation.state.held.nonzero().flatten().tolist()
        # Even clients are one cluster, odd ones the other.
        assert sorted(client % 2 for client in who) == [0, 1]
        for client in set(range(6)) - set(who):
            (leader,) = (one for one in who if one % 2 == client % 2)
            assert near(moved[client], gamma**round_ * moved[leader])


@both_engines
def test_clusters_are_found_anew_before_the_rest_follows(engine):
    """All start alike. Two move away, and with three clusters those left behind are one of their own."""
    clients = clients_with([[0], [1, 2], [3], [4, 5]], items=12)
    changes = ("participation=0.5", "clusters=3")
    federation = federation_of("fedfast", clients, *PLAIN, "d=2", *changes, engine=engine)
    before = kept(federation, "p")
    federation.train_round(1)
    trained = federation.state.held
    assert torch.equal(kept(federation, "p")[~trained], before[~trained])
    assert not near(kept(federation, "p")[trained], before[trained], within=0.01)


def test_another_round_has_other_delegates_and_a_stored_state_the_same():
    clients = clients_of(planted_blocks(users=20))
    first, second = (federation_of("fedfast", clients, "participation=0.3") for _ in range(2))
    chosen = []
    for round_ in (1, 2, 3):
        first.train_round(round_)
        chosen.append(tuple(first.state.held.nonzero().flatten().tolist()))
        if round_ == 2:
            second.load({key: value.clone() for key, value in first.tensors().items()})
    assert len(set(chosen)) == 3
    second.train_round(3)
    for key, value in first.tensors().items():
        assert torch.equal(value, second.tensors()[key]), key


@both_engines
def test_users_are_scored_with_the_newest_table_and_the_vector_the_server_has(engine):
    clients = clients_with([[0], [1, 2], [3], [4, 5]], items=12)
    federation = federation_of(
        "fedfast", clients, *PLAIN, "d=2", "participation=0.5", "clusters=1", engine=engine
    )
    report = federation.train_round(1)
    scores = federation.scores(everyone(federation), torch.arange(12).expand(4, -1))
    assert near(scores, kept(federation, "p")[:, 0] @ federation.state.shared["Q"].T)
    assert (report.up, report.down) == (12 * 2 + 2, 12 * 2 + 2)


@both_engines
def test_dimensions_may_have_weights_which_become_their_mean_by_size(engine):
    clients = clients_with([[0], [1, 3, 5]], items=7)
    federation = federation_of("fedfast", clients, *STEP, "product=weighted", engine=engine)
    give(federation, h=[2.0, -0.5])
    asked = asked_of_a_client(federation)
    assert [name for kind, name, *_ in asked.events if kind == "upload"] == ["Q", "p", "h"]
    one, two = tables_after_a_step(federation, weighted=True)
    report = federation.train_round(1)
    assert report.up == 7 * 2 + 2 + 2
    assert near(federation.state.shared["h"], one[1] / 4 + 3 * two[1] / 4)
    assert near(kept(federation, "p"), torch.stack((one[2], two[2])))
    scores = federation.scores(everyone(federation), torch.arange(7).expand(2, -1))
    weighed = federation.state.shared["Q"] * federation.state.shared["h"]
    assert near(scores, kept(federation, "p")[:, 0] @ weighed.T)


def test_weights_start_at_one_as_if_there_were_none():
    clients = clients_with([[0], [1, 3, 5]], items=7)
    plain, weighted = (
        federation_of("fedfast", clients, "d=2", f"product={kind}") for kind in ("plain", "weighted")
    )
    items = torch.arange(7).expand(2, -1)
    assert torch.equal(plain.scores(everyone(plain), items), weighted.scores(everyone(weighted), items))
    assert "h" not in plain.state.parameters
