"""Scores of the libraries `implicit` and `cornac`, ranked by `fedrec.evaluate`: `make test-libraries`.

Each library trains on the training rows with the dataset's own ids and numbers of its own, and writes a file. The
metrics are compared with those counted by hand from the same scores.
"""

from importlib.util import find_spec

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_matrix

import fedrec
from fedrec.data.prepare import prepare, write_prepared
from fedrec.data.split import make_split, read_split, write_split
from tests.given_scores import metrics_by_hand, original_ids, ranks_by_hand

LEAST = -1e9
"""The score of an item that a library does not know."""


@pytest.fixture(scope="module")
def data(catalogue, protocols, tmp_path_factory):
    """The dataset demo, with its clean split."""
    folder, dataset = tmp_path_factory.mktemp("results") / "data/demo", catalogue["demo"]
    prepared = prepare(dataset, folder / "raw")
    write_prepared(prepared, dataset, folder / "raw", folder)
    write_split(make_split(prepared.interactions, protocols["clean"]), folder / "clean")
    return folder


@pytest.fixture
def train(data):
    """The original ids of users and items of all training rows."""
    users, items = original_ids(data)
    user, item = read_split(data / "clean").pairs_of(0)
    return users[user], items[item]


def check(data, frame, path):
    """Evaluate a frame of scores with original ids as a file, and count what comes of it by hand."""
    write = frame.write_csv if path.suffix == ".csv" else frame.write_parquet
    write(path)
    run = fedrec.evaluate(path, data, "clean", name="of-a-library", out=path.parent / "out")
    users, items = original_ids(data)
    numbers = [
        frame[name]
        .replace_strict({one: number for number, one in enumerate(ids)}, return_dtype=pl.Int64)
        .to_numpy()
        for name, ids in (("user", users), ("item", items))
    ]
    scores = np.full((len(users), len(items)), np.nan)
    scores[tuple(numbers)] = frame["score"].to_numpy()
    counted = ranks_by_hand(data / "clean", scores)
    assert {name: run.columns("ranks")[name][: len(users)].tolist() for name in counted} == counted
    for name, value in metrics_by_hand(counted["test_rank"]).items():
        assert run.metric_of(name) == pytest.approx(value)
    for name, value in metrics_by_hand(counted["test_rank_in_catalogue"]).items():
        assert run.metric_of(f"exact_{name}") == pytest.approx(value)
    # A model that knows nothing would have a tenth.
    assert run.metric_of("hr@10") > 0.2


@pytest.mark.skipif(not find_spec("implicit"), reason="implicit is not installed: make test-libraries")
@pytest.mark.filterwarnings("ignore:OpenBLAS is configured:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:Method expects CSR input")
def test_scores_of_implicit(data, train, tmp_path):
    from implicit.cpu.als import AlternatingLeastSquares

    (users, user), (items, item) = (np.unique(ids, return_inverse=True) for ids in train)
    model = AlternatingLeastSquares(factors=8, iterations=10, num_threads=1, random_state=0)
    model.fit(csr_matrix((np.ones(len(user), np.float32), (user, item))), show_progress=False)
    scores = {
        item: model.user_factors @ factors for item, factors in zip(items, model.item_factors, strict=True)
    }
    unknown = np.full(len(users), LEAST, dtype=np.float32)
    parts = [
        pl.DataFrame({"user": users, "item": [item] * len(users), "score": scores.get(item, unknown)})
        for item in original_ids(data)[1]
    ]
    check(data, pl.concat(parts), tmp_path / "scores.parquet")


@pytest.mark.skipif(
    not find_spec("cornac"),
    reason="cornac is not installed: make test-libraries, on a machine for which there is a wheel",
)
def test_scores_of_cornac(data, train, tmp_path):
    from cornac.data import Dataset
    from cornac.models import BPR

    known = Dataset.build([(user, item, 1.0) for user, item in zip(*train, strict=True)], seed=0)
    model = BPR(k=8, max_iter=50, learning_rate=0.05, lambda_reg=0.01, num_threads=1, seed=0)
    model.fit(known)
    rows = []
    for user, number in known.uid_map.items():
        own = np.ravel(model.score(number))
        rows += [
            (user, item, float(own[known.iid_map[item]]) if item in known.iid_map else LEAST)
            for item in original_ids(data)[1]
        ]
    check(data, pl.DataFrame(rows, schema=["user", "item", "score"], orient="row"), tmp_path / "scores.csv")
