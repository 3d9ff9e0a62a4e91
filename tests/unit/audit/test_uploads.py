"""Attacks on uploads: measures by hand and from outside, one attack that must succeed and one that must fail."""

import json

import pytest
import torch
from sklearn.metrics import roc_auc_score

from fedrec.audit.uploads import (
    attack,
    attack_uploads,
    auc,
    direction_scores,
    norm_scores,
    precision,
)
from fedrec.errors import ResultError
from fedrec.federation.observe.recorder import PREFIX, Recorder, extras
from fedrec.runs.registry import make_learner
from tests.by_hand import ENGINES, clients_with
from tests.federations import clients_of, settings_of, split_of, uniform_noise

BATCHED = ENGINES[1]


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def mask(items, *rows):
    """Of each row, the items that are listed."""
    found = torch.zeros(len(rows), items, dtype=torch.bool)
    for row, listed in enumerate(rows):
        found[row, listed] = True
    return found


@pytest.fixture(scope="module")
def clients():
    """40 users who have trained on 10 of 120 items each."""
    return clients_of(uniform_noise(users=40, items=120, per_user=12, candidates=20))


def kept_traffic(clients, name="fedmf", *changes, rounds=2):
    """What a run keeps of all its clients."""
    settings = settings_of(name, f"rounds={rounds}", "participation=1", *changes)
    federation = make_learner(name, clients, settings, 0, BATCHED, Recorder.of(["traffic"], clients, rounds))
    for round_ in range(1, rounds + 1):
        federation.train_round(round_)
    return federation.tensors()


# Measures


@pytest.mark.parametrize("levels", [2, 5, 1000])
def test_auc_is_that_of_scikit_learn(levels):
    scores = (drawn(30, 50) * levels).round()
    wanted = drawn(30, 50, seed=1) > 0.5
    expected = [roc_auc_score(*row) for row in zip(wanted.numpy(), scores.numpy(), strict=True)]
    assert auc(scores, wanted).tolist() == pytest.approx(expected, abs=1e-12)


def test_precision_by_hand():
    scores = torch.tensor([[5.0, 4.0, 3.0, 2.0, 1.0]] * 3)
    wanted = mask(5, [0, 3], [3, 4], [0, 1, 2])
    assert precision(scores, wanted, torch.tensor([2, 2, 3])).tolist() == [0.5, 0.0, 1.0]


def test_equals_at_the_end_of_a_list_share_its_last_places():
    scores = torch.tensor([[9.0, 4.0, 4.0, 4.0, 1.0]])
    # The first place is a hit; three equals, of which one is wanted, share the other two.
    assert precision(scores, mask(5, [0, 2]), torch.tensor([3])).item() == pytest.approx((1 + 2 / 3) / 3)
    # All equal: what chance gives.
    assert precision(torch.zeros(1, 8), mask(8, [1, 5]), torch.tensor([3])).item() == pytest.approx(2 / 8)


def test_measures_are_of_each_client():
    scores = torch.arange(20.0).expand(2, -1)
    found = attack(scores, mask(20, range(15, 20), range(5)))
    assert found["auc"].tolist() == [1, 0]
    assert found["precision_at_k"].tolist() == [1, 0]
    assert found["precision_at_10"].tolist() == [0.5, 0]
    assert found["chance"].tolist() == [0.25, 0.25]


# Attackers, by hand


def changes_along(vector, positives, negatives, items):
    """What one step of a dot-product model does: +p for training items, -p for negatives, 0 for the rest."""
    change = torch.zeros(1, items, len(vector), dtype=torch.float64)
    change[0, positives], change[0, negatives] = vector, -vector
    return change


@pytest.mark.parametrize("seed", range(8))
def test_the_direction_tells_training_items_from_negatives(seed):
    change = changes_along(drawn(4, seed=seed), [3, 8, 9], [0, 1, 2, 4, 5, 6], items=20)
    training = mask(20, [3, 8, 9])
    assert auc(direction_scores(change), training).item() == 1
    # Six negatives moved as far, eleven items rested: half of 6 and all of 11 out of 17.
    assert auc(norm_scores(change), training).item() == pytest.approx((6 / 2 + 11) / 17)
    # Nine items have moved, all as far; three of them are wanted.
    assert attack(norm_scores(change), training)["precision_at_k"].item() == pytest.approx(3 / 9)


def test_the_direction_stands_some_noise():
    vector = drawn(8, seed=1)
    vector *= 8 / vector.norm()
    positives, negatives = range(100, 120), range(200, 280)
    change = changes_along(vector, positives, negatives, items=600)
    noisy = change + 0.3 * drawn(*change.shape, seed=2)
    assert auc(direction_scores(noisy), mask(600, positives)).item() == 1


def test_more_training_items_than_negatives_turn_the_direction_round():
    change = changes_along(drawn(4), range(10), [10, 11], items=20)
    assert auc(direction_scores(change), mask(20, range(10))).item() == 0


def test_a_change_of_one_dimension_has_a_direction_too():
    change = changes_along(torch.tensor([-2.0], dtype=torch.float64), [1], [2, 3], items=6)
    assert auc(direction_scores(change), mask(6, [1])).item() == 1


def test_a_table_as_wide_as_high_has_a_direction_too():
    """Products of what a client met (rank one, where LAPACK may find no eigenvectors), and with noise."""
    met = mask(400, range(3), range(40), range(100)).double()
    products = met.unsqueeze(2) * met.unsqueeze(1)
    # All rows that are not 0 go one way, the way that is taken for that of negatives.
    assert auc(direction_scores(products), met.bool()).tolist() == [0, 0, 0]
    noisy = products[:1, :12, :12] + 0.1 * drawn(1, 12, 12)
    one_more_row = torch.cat([noisy, torch.zeros(1, 1, 12, dtype=torch.float64)], 1)
    found, expected = direction_scores(noisy)[0], direction_scores(one_more_row)[0, :-1]
    assert torch.allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("scores", [norm_scores, direction_scores])
def test_noise_alone_tells_nothing(scores):
    """400 clients with 20 of 200 items: an AUC deviates by sqrt(201 / (12 x 20 x 180)) = 0.068 of each."""
    found = attack(scores(drawn(400, 200, 4)), mask(200, *[range(20)] * 400))
    assert abs(found["auc"].mean().item() - 0.5) < 4 * 0.0682 / 400**0.5
    assert abs(found["precision_at_k"].mean().item() - 0.1) < 4 * (0.1 * 0.9 / 20 / 400) ** 0.5


# Attacks on traffic


def made_traffic(upload, earlier, rounds, users):
    found = {"download": torch.zeros_like(upload), "upload": upload, "earlier": earlier, "rounds": rounds}
    tensors = {f"{PREFIX}traffic/Q/{part}": value for part, value in found.items()}
    return tensors | {f"{PREFIX}users/traffic": users}


def test_each_attacker_gets_its_tables_and_each_client_its_items():
    """Client 0 never took part; 1 took part once, 2 twice. Users come in any order."""
    clients = clients_with([[5], [0], [1, 2]], items=6)
    moved = changes_along(torch.tensor([1.0, 0.0], dtype=torch.float64), [1, 2], [0, 3, 4], items=6)[0]
    upload = torch.stack((moved, torch.full_like(moved, torch.nan), -moved))
    # What client 2 sent before differs from its newest upload in items 1 and 5.
    earlier = torch.full_like(upload, torch.nan)
    earlier[0] = moved
    earlier[0, [1, 5]] += 1.0
    rounds = torch.tensor([[3, 2], [0, 0], [3, 0]])
    found = attack_uploads(made_traffic(upload, earlier, rounds, torch.tensor([2, 0, 1])), clients)["Q"]
    # Client 2 is found by its direction. Client 1 has sent the opposite: items 1 and 2 are its guess, 0 is
    # among three that come last.
    assert found["direction"]["auc"] == pytest.approx((1 + (2 / 2) / 5) / 2)
    assert found["direction"]["clients"] == 2
    assert found["direction"]["chance"] == pytest.approx((2 / 6 + 1 / 6) / 2)
    # Of items 0, 3, 4 and 5 the newest two differ in 5 alone: item 1 beats three and meets one equal, item 2
    # meets three equals.
    assert found["consecutive"]["auc"] == pytest.approx((3.5 + 1.5) / 8)
    assert found["consecutive"]["clients"] == 1
    assert found["consecutive"]["auc_error"] is None


def test_who_took_part_once_has_no_earlier_upload(clients):
    found = attack_uploads(kept_traffic(clients, rounds=1), clients)["Q"]
    assert found["norm"]["clients"] == 40
    assert found["consecutive"]["clients"] == 0
    assert found["consecutive"]["auc"] is None
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_matrix_factorisation_gives_training_items_away(clients):
    found = attack_uploads(kept_traffic(clients), clients)
    assert set(found) == {"Q"}
    # Of 110 other items a client has sampled about 34 anew: norm alone is right about the rest.
    assert found["Q"]["norm"]["auc"] > 0.75
    assert found["Q"]["direction"]["auc"] > 0.99
    assert found["Q"]["direction"]["precision_at_10"] > 0.95
    assert found["Q"]["norm"]["chance"] == pytest.approx(10 / 120)
    assert found["Q"]["direction"]["clients"] == 40


def test_strong_noise_on_uploads_defeats_every_attacker(clients):
    found = attack_uploads(kept_traffic(clients, "fedmf", "ldp=100"), clients)["Q"]
    for attacker, measures in found.items():
        assert abs(measures["auc"] - 0.5) < 4 * measures["auc_error"], attacker
        assert abs(measures["precision_at_k"] - measures["chance"]) < 0.06, attacker


def test_more_noise_tells_less(clients):
    found = [
        attack_uploads(kept_traffic(clients, "fedmf", f"ldp={scale}"), clients)["Q"]["direction"]["auc"]
        for scale in (0, 0.2, 5)
    ]
    assert found[0] > found[1] + 0.05
    assert found[1] > found[2] + 0.05


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("pfedrec", "Q"),
        ("pfedclr", "Q"),
        ("fedrap", "C"),
        ("colr", "A"),
        ("fedem", "G"),
        ("fedmf+plgc", "G"),
        ("gpfedrec", "R"),
        ("fedcia", "S"),
    ],
)
def test_every_way_to_upload_can_be_attacked(name, parameter):
    """Whole items x d, factors, products, tables of one's own: what reaches the server has a row per item."""
    rows = [(user, (user * 7 + step * 3) % 30, step) for user in range(12) for step in range(8)]
    clients = clients_of(split_of(rows, 30, candidates=5))
    found = attack_uploads(kept_traffic(clients, name, "d=4", "local_epochs=1"), clients)
    assert set(found) == {parameter}
    for measures in found[parameter].values():
        assert measures["clients"] == 12
        assert 0 <= measures["auc"] <= 1


def test_the_attacker_gets_the_upload_with_its_noise(clients):
    """With the noise taken out of the upload again it would succeed."""
    tensors = kept_traffic(clients, "fedmf", "ldp=5", rounds=1)
    plain = extras(kept_traffic(clients, rounds=1))["traffic/Q/upload"]
    noised = attack_uploads(tensors, clients)["Q"]["direction"]["auc"]
    clean = attack_uploads(tensors | {f"{PREFIX}traffic/Q/upload": plain}, clients)["Q"]["direction"]["auc"]
    assert noised < 0.6
    assert clean > 0.99


def test_a_run_without_traffic_is_named(clients):
    with pytest.raises(ResultError, match=r"recorded no uploads.* with --record traffic"):
        attack_uploads({"shared/Q": torch.zeros(3)}, clients)


def test_a_split_of_other_users_is_named(clients):
    tensors = kept_traffic(clients, rounds=1)
    with pytest.raises(ResultError, match="recorded user 1, who is not in this split"):
        attack_uploads(tensors, clients.subset(torch.arange(0, 40, 2)))
