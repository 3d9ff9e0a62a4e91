"""iALS and item-knn beside the library `implicit`, on the same splits: `make test-libraries`.

Sums of the library are in another order: numbers are compared up to rounding, never to the last bit.
"""

from importlib.util import find_spec

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.federations import all_scores, learner_of, met_by
from tests.libraries.ranking import ndcg

pytestmark = [
    pytest.mark.usefixtures("double_precision"),
    pytest.mark.skipif(not find_spec("implicit"), reason="implicit is not installed: make test-libraries"),
    # It warns of how many threads others have, and of a matrix that it makes itself: of time, not of numbers.
    pytest.mark.filterwarnings("ignore:OpenBLAS is configured:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:Method expects CSR input"),
]


def als_of(learner, epochs):
    """The library's model with the same settings, which starts where ours does."""
    from implicit.cpu.als import AlternatingLeastSquares

    settings = learner.settings
    model = AlternatingLeastSquares(
        factors=settings["d"], regularization=settings["penalty"], alpha=1 + settings["alpha"], dtype=np.float64,
        use_cg=False, use_native=True, iterations=epochs, num_threads=1,
    )  # fmt: skip
    model.user_factors, model.item_factors = (
        value.double().numpy().copy() for value in (learner.P, learner.Q)
    )
    return model


def objective(users, items, met, learner):
    """What iALS makes small, by its definition."""
    settings = learner.settings
    errors = (1 + settings["alpha"] * met) * (met - users @ items.T) ** 2
    return errors.sum() + settings["penalty"] * ((users**2).sum() + (items**2).sum())


def test_ials_takes_the_librarys_half_steps_to_its_objective(clients):
    met, epochs = met_by(clients), 20
    learner = learner_of("ials", clients, "d=16", "alpha=4", "penalty=10", "nu=0")
    model = als_of(learner, epochs)
    solved = model.recalculate_user(np.arange(len(clients)), csr_matrix(met, dtype=np.float32))
    found, _ = learner.solved(learner.Q, learner.of_users)
    assert found.numpy() == pytest.approx(solved, abs=1e-6 * np.abs(solved).max())
    model.fit(csr_matrix(met, dtype=np.float32), show_progress=False)
    for round_ in range(1, epochs + 1):
        loss = learner.train_round(round_).loss
    own, others = (
        objective(users, items, met, learner)
        for users, items in ((learner.P.numpy(), learner.Q.numpy()), (model.user_factors, model.item_factors))
    )
    assert own == pytest.approx(others, rel=1e-6)
    assert loss * met.sum() == pytest.approx(others, rel=1e-6)
    theirs = ndcg(model.user_factors @ model.item_factors.T, clients)
    assert ndcg(all_scores(learner, clients), clients) == pytest.approx(theirs, abs=0.002)


@pytest.mark.parametrize("neighbours", [10, 50])
def test_item_knn_has_the_librarys_nearest(clients, neighbours):
    """Of equal likenesses the library keeps some: the values that are kept agree, and scores where it keeps all."""
    from implicit.nearest_neighbours import CosineRecommender

    met, learner = (
        csr_matrix(met_by(clients)),
        learner_of("item-knn", clients, f"neighbours={neighbours}", "shrinkage=0"),
    )
    learner.train_round(1)
    # It counts an item among its own nearest.
    model = CosineRecommender(K=neighbours + 1, num_threads=1)
    model.fit(met, show_progress=False)
    theirs = model.similarity.toarray()
    np.fill_diagonal(theirs, 0)
    kept = np.sort(theirs, axis=1)[:, ::-1][:, :neighbours]
    assert pytest.approx(kept, abs=1e-12) == np.sort(learner.weights.numpy(), axis=0)[::-1][:neighbours].T


def test_item_knn_has_the_librarys_scores(clients):
    from implicit.nearest_neighbours import CosineRecommender

    met = csr_matrix(met_by(clients))
    learner = learner_of("item-knn", clients, f"neighbours={clients.items}", "shrinkage=0")
    learner.train_round(1)
    model = CosineRecommender(K=clients.items, num_threads=1)
    model.fit(met, show_progress=False)
    theirs = np.zeros(met.shape)
    for user, own in enumerate(met):
        items, scores = model.recommend(user, own, N=clients.items, filter_already_liked_items=False)
        theirs[user, items] = scores
    # It counts an item among its own nearest, with the likeness 1.
    assert all_scores(learner, clients) + met.toarray() == pytest.approx(theirs, abs=1e-9)
