"""EASE and BPR-MF beside the library `cornac`, on the same splits: `make test-libraries`."""

from importlib.util import find_spec

import numpy as np
import pytest

from tests.federations import all_scores, learner_of, met_by
from tests.libraries.ranking import ndcg

pytestmark = pytest.mark.skipif(
    not find_spec("cornac"),
    reason="cornac is not installed: make test-libraries, on a machine for which there is a wheel",
)


def scores_of(model, clients):
    """The library's scores of all items for every client; what nobody met in training has none, and is last."""
    from cornac.data import Dataset

    rows = [(int(user), int(item), 1.0) for user, item in zip(*np.nonzero(met_by(clients)), strict=True)]
    known = Dataset.build(rows, seed=0)
    model.fit(known)
    item, place = zip(*known.iid_map.items(), strict=True)
    scores = np.full((len(clients), clients.items), -1e9)
    for user, number in known.uid_map.items():
        scores[user, item] = np.ravel(model.score(number))[list(place)]
    return scores


@pytest.mark.usefixtures("double_precision")
def test_ease_has_the_librarys_scores(clients):
    from cornac.models import EASE

    learner = learner_of("ease", clients)
    learner.train_round(1)
    theirs = scores_of(EASE(lamb=learner.settings["penalty"], posB=False, verbose=False), clients)
    own, scored = all_scores(learner, clients), theirs > -1e9
    assert scored.any(0).mean() > 0.9
    # Single precision is the library's own.
    assert own[scored] == pytest.approx(theirs[scored], abs=1e-4)
    # What nobody met has no weights.
    assert not own[~scored].any()


APART = 0.02
"""How far NDCG@10 of two trainings may lie apart that draw and step otherwise: two seeds of ours were by 0.002."""


@pytest.mark.parametrize("clients", ["ml-100k"], indirect=True)
def test_bpr_mf_reaches_the_librarys_ranking(clients):
    """It draws pairs with replacement, and takes a step of SGD on each of them."""
    from cornac.models import BPR

    learner, reached = learner_of("bpr-mf", clients), []
    for round_ in range(1, learner.settings["rounds"] + 1):
        learner.train_round(round_)
        if round_ % 10 == 0:
            users, items = (learner.values[name].detach() for name in "PQ")
            reached.append(ndcg((users @ items.T).numpy(), clients))
    model = BPR(
        k=learner.settings["d"], max_iter=100, learning_rate=0.05, lambda_reg=learner.settings["reg"],
        use_bias=False, num_threads=1, seed=0,
    )  # fmt: skip
    assert max(reached) == pytest.approx(ndcg(scores_of(model, clients), clients), abs=APART)
