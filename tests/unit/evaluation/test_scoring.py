import torch

from fedrec.evaluation.scoring import HELD_OUT_PARTS, candidate_ranks, catalogue_ranks
from tests.federations import clients_of, learner_of, planted_blocks


def test_how_many_scores_are_computed_together_decides_nothing(monkeypatch):
    learner = learner_of("fedmf", clients_of(planted_blocks()), "rounds=1", "participation=1")
    learner.train_round(1)
    clients = learner.clients
    sampled = {part: candidate_ranks(learner, clients, part) for part in HELD_OUT_PARTS}
    whole = catalogue_ranks(learner, clients)
    monkeypatch.setattr("fedrec.evaluation.scoring._CHUNK", {"cpu": 200})
    for part in HELD_OUT_PARTS:
        assert torch.equal(candidate_ranks(learner, clients, part), sampled[part])
        assert torch.equal(catalogue_ranks(learner, clients)[part], whole[part])


def test_neighbours_have_the_ranks_they_have_among_all():
    learner = learner_of("fedmf", clients_of(planted_blocks()), "rounds=1", "participation=1")
    learner.train_round(1)
    some = slice(17, 40)
    whole, few = catalogue_ranks(learner, learner.clients), catalogue_ranks(learner, learner.clients, some)
    for part in HELD_OUT_PARTS:
        assert torch.equal(few[part], whole[part][some])
