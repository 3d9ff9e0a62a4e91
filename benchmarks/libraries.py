r"""Other libraries' recommenders, tuned on validation items alone, and their scores ranked by fedrec.

    pip install --constraint constraints.txt '.[libraries]'
    python -m benchmarks.libraries --data results/data/ml-100k --scores build/scores

Each model trains on the training rows of the clean split, once for every point of its grid. The point with
the best exact NDCG@10 of validation items is taken; of equal ones, the first. Nothing reads test items before
that.
The scores of the chosen model are written to NAME.npy, and `fedrec.evaluate` ranks them.
"""

import argparse
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

import fedrec
from fedrec.data.split import TRAIN, VALIDATION, Split, read_split
from fedrec.evaluation.metrics import metrics_of
from fedrec.evaluation.ranking import rank_in_catalogue
from fedrec.runs.record import RunRecord

PROTOCOL = "clean"
Scores = NDArray[np.float32]
"""Users x items."""
_LEAST = np.float32(-1e9)
"""The score of an item that nobody met in training, where a library has none."""
_SEED = 0


@dataclass(frozen=True)
class Candidate:
    """A model of a library, with the grid that its settings are chosen from."""

    library: str
    model: str
    grid: Mapping[str, Sequence[float]]
    fixed: Mapping[str, Any]
    train: Callable[[csr_matrix, Mapping[str, Any]], Scores]
    """The scores of all items for all users, from who met what (users x items) and the settings."""

    @property
    def points(self) -> list[dict[str, float]]:
        """All combinations of the grid's values, in its order."""
        return [
            dict(zip(self.grid, values, strict=True)) for values in itertools.product(*self.grid.values())
        ]


def _als(met: csr_matrix, settings: Mapping[str, Any]) -> Scores:
    from implicit.cpu.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(num_threads=1, random_state=_SEED, **settings)
    model.fit(met, show_progress=False)
    scores: Scores = model.user_factors @ model.item_factors.T
    return scores


def _item_knn(met: csr_matrix, settings: Mapping[str, Any]) -> Scores:
    from implicit.nearest_neighbours import CosineRecommender

    model = CosineRecommender(num_threads=1, **settings)
    model.fit(met, show_progress=False)
    scores: Scores = (met @ model.similarity).toarray().astype(np.float32)
    return scores


def _ease(met: csr_matrix, settings: Mapping[str, Any]) -> Scores:
    from cornac.models import EASE

    return _of_cornac(EASE(verbose=False, **settings), met)


def _bpr(met: csr_matrix, settings: Mapping[str, Any]) -> Scores:
    from cornac.models import BPR

    return _of_cornac(BPR(num_threads=1, seed=_SEED, **settings), met)


def _of_cornac(model: Any, met: csr_matrix) -> Scores:  # noqa: ANN401 - the library has no types
    from cornac.data import Dataset

    users, items = met.nonzero()
    rows = [(int(user), int(item), 1.0) for user, item in zip(users, items, strict=True)]
    known = Dataset.build(rows, seed=_SEED)
    model.fit(known)
    item, place = (list(each) for each in zip(*known.iid_map.items(), strict=True))
    scores = np.full(met.shape, _LEAST, dtype=np.float32)
    for user, number in known.uid_map.items():
        scores[user, item] = np.ravel(model.score(number))[place]
    return scores


MODELS: Mapping[str, Candidate] = {
    "implicit-als": Candidate(
        "implicit",
        "AlternatingLeastSquares",
        {"factors": (16, 32, 64), "regularization": (0.1, 1, 10, 100), "alpha": (1, 4, 16)},
        {"iterations": 15},
        _als,
    ),
    "implicit-item-knn": Candidate(
        "implicit", "CosineRecommender", {"K": (10, 20, 50, 100, 200, 500)}, {}, _item_knn
    ),
    "cornac-ease": Candidate(
        "cornac", "EASE", {"lamb": (10, 30, 100, 300, 1000, 3000)}, {"posB": False}, _ease
    ),
    "cornac-bpr": Candidate(
        "cornac",
        "BPR",
        {"k": (16, 32, 64), "learning_rate": (0.01, 0.05), "lambda_reg": (0.001, 0.01, 0.1)},
        {"max_iter": 100, "use_bias": True},
        _bpr,
    ),
}
"""By the name that their scores get."""


def validation_ndcg(scores: Scores, split: Split, met: csr_matrix) -> float:
    """Exact NDCG@10 of validation items: among all items outside a user's training rows."""
    users, items = split.pairs_of(VALIDATION)
    user_scores = torch.from_numpy(scores)[torch.from_numpy(users).long()]
    excluded = torch.from_numpy(met[users].toarray() > 0)
    ranks = rank_in_catalogue(user_scores, torch.from_numpy(items).long(), excluded, split.protocol.rank_ties)
    return metrics_of(ranks.numpy())["ndcg@10"]


def chosen(candidate: Candidate, split: Split, met: csr_matrix) -> tuple[dict[str, float], float, Scores]:
    """The point of the grid that is best on validation, what it reaches there, and its scores."""
    best: tuple[dict[str, float], float, Scores] | None = None
    for point in candidate.points:
        scores = candidate.train(met, {**candidate.fixed, **point})
        ndcg = validation_ndcg(scores, split, met)
        print(f"  {_text(point)}: validation NDCG@10, exact, {ndcg:.4f}", flush=True)
        if best is None or ndcg > best[1]:
            best = point, ndcg, scores
    assert best is not None, "a grid has points"
    return best


def evaluated(name: str, data: Path, folder: Path) -> RunRecord:
    """Tune a model, write its scores, and rank them; the note says all of that."""
    candidate, split = MODELS[name], read_split(data / PROTOCOL)
    users, items = split.pairs_of(TRAIN)
    met = csr_matrix((np.ones(len(users), np.float32), (users, items)), shape=(split.users, split.items))
    print(f"{name}: {len(candidate.points)} points", flush=True)
    point, ndcg, scores = chosen(candidate, split, met)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.npy"
    np.save(path, scores)
    grid = {key: " ".join(f"{value:g}" for value in values) for key, values in candidate.grid.items()}
    note = (
        f"{candidate.model} of {candidate.library} {version(candidate.library)}, "
        f"{_text({**candidate.fixed, **point})}, seed {_SEED}; {_text(point)} is the best of "
        f"{len(candidate.points)} points by exact validation NDCG@10 ({ndcg:.4f}), of the grid "
        f"{_text(grid)}; trained on the training rows by python -m benchmarks.libraries"
    )
    return fedrec.evaluate(path, data, PROTOCOL, name=name, note=note)


def _text(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in settings.items())


def main(words: Sequence[str] | None = None) -> None:
    """Tune, rank and print every model that is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a dataset's folder, with its splits")
    parser.add_argument("--scores", type=Path, required=True, help="folder for the files of scores")
    parser.add_argument(
        "--model", nargs="+", default=list(MODELS), choices=list(MODELS), help="default: all of them"
    )
    parsed = parser.parse_args(words)
    for name in parsed.model:
        run = evaluated(name, parsed.data, parsed.scores)
        metrics = ("exact_ndcg@10", "exact_hr@10", "ndcg@10", "hr@10")
        print(f"{name}: test {', '.join(f'{metric} {run.metric_of(metric):.4f}' for metric in metrics)}")
        print(f"{run.score_source['note'] if run.score_source else ''}\nWritten to {run.folder}", flush=True)


if __name__ == "__main__":
    main()
