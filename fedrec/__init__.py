"""fedrec: federated recommendation papers, regenerated under an honest protocol.

From Python, of what the workflow or `fedrec train` left behind:

    import fedrec

    run = fedrec.open_run("results/runs/pfedclr/ml-100k/clean/fedmf/seed0")
    run.curve, run.ranks, run.metrics, run.scores(users=[0, 1], items=[10, 20, 30])
    fedrec.results("results")

Scores of another system are ranked on the same splits, and compared with runs user by user:

    theirs = fedrec.evaluate("scores.parquet", "results/data/ml-100k", "clean", name="their-model")
    fedrec.paired(theirs, [run])
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import polars as pl

    from fedrec.config.custom_search import RangeOrChoices
    from fedrec.data.frames import PreparedData
    from fedrec.runs.record import RunRecord
    from fedrec.runs.score_files import IdKind
    from fedrec.runs.searching import TuningResult

__version__ = "0.1.0"


def open_run(path: str | Path, data: str | Path | None = None, device: str = "cpu") -> "RunRecord":
    """Open a finished run, by its folder or its run.json; or a stored one by the path it would have.

    It gives `settings` (a dict), `curve`, `ranks`, `timing`, `metrics` and `settings_frame` (polars frames)
    and `scores(users, items)` of its model. `data` is the folder of its dataset's splits, where they are not
    below the same results; `device` is where the model is put.
    """
    from fedrec.runs.results import open_record

    return open_record(path, data, device)


def results(folder: str | Path, settings: Sequence[str] = ()) -> "pl.DataFrame":
    """All finished runs in or below a folder, or of a packed store, as one polars frame.

    It has a row per run and reported round.
    `reported` marks the round that the run's own protocol reports; each of `settings` adds a column of its
    values, numbers where all of them are numbers.
    """
    from fedrec.runs.results import records_below, results_frame

    return results_frame(records_below(folder), settings)


def split(
    frame: object,
    *,
    name: str,
    protocol: str | Sequence[str] = "clean",
    out: str | os.PathLike[str] | None = None,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    time: str | None = None,
    min_rows: int = 1,
) -> "PreparedData":
    """Prepare interactions of your own, and split them by a protocol or several.

    `frame` is a frame of polars, pandas or pyarrow with a row per interaction, or the path of a csv or
    parquet file. Columns are recognised by their names and what they hold; `user`, `item`, `rating` and
    `time` name them where that fails. Rows rated 0 or less are left out, and so are users with fewer than
    `min_rows` rows. Standard error and `notes` of the result say what was read and what was left out.

    The dataset is called `name`, and lies in `out`, by default results/data/NAME. `users.parquet` and
    `items.parquet` there have the original ids. The same call again changes nothing, and adds splits that are
    not there. Other data of the same name are refused.
    """
    from fedrec.data.frames import split_frame

    columns = {"user": user, "item": item, "rating": rating, "time": time}
    return split_frame(
        frame,
        name,
        [protocol] if isinstance(protocol, str) else list(protocol),
        None if out is None else Path(out),
        {kind: column for kind, column in columns.items() if column is not None},
        min_rows,
    )


def train(
    data: str | os.PathLike[str],
    method: str,
    *,
    protocol: str = "clean",
    seed: int = 0,
    settings: Mapping[str, object] | None = None,
    out: str | os.PathLike[str] | None = None,
    device: str = "auto",
    engine: str = "auto",
    with_model: bool | None = None,
    diverged: Literal["refused", "kept"] = "refused",
    progress: bool = True,
    **changes: object,
) -> "RunRecord":
    """Train a method on a split, and open the finished run.

    `data` is the folder of a prepared dataset with its splits, as `fedrec.split` gives it. Settings differ
    from the method's own where `settings` or further arguments say so, and become part of the method's name:
    `train(data, "fedmf", d=64)` is `train(data, "fedmf[d=64]")`.

    `out` is by default the folder that the workflow gives this run. A finished run there is taken as it is; a
    run that was stopped resumes from its checkpoint. The model is written where it has at most 100 MB,
    with `with_model=True` whatever its size, and never with `with_model=False`. `diverged="kept"` makes a
    training that diverges a result, and no error.
    """
    from fedrec.errors import ConfigurationError
    from fedrec.runs.default_folders import train_named

    for name in changes.keys() & (settings or {}).keys():
        raise ConfigurationError(f"{name}: is in settings and an argument besides. Set it once.")
    return train_named(
        data,
        method,
        protocol=protocol,
        seed=seed,
        settings={**(settings or {}), **changes},
        out=out,
        device=device,
        engine=engine,
        with_model=with_model,
        diverged=diverged,
        progress=progress,
    )


def tune(
    data: str | os.PathLike[str],
    method: str,
    *,
    protocol: str = "clean",
    ranges: "Mapping[str, RangeOrChoices] | None" = None,
    trials: int = 16,
    seeds: int = 3,
    leaking: bool = False,
    device: str = "auto",
    engine: str = "auto",
    progress: bool = True,
) -> "TuningResult":
    """Search settings of a method on any dataset, by exact validation NDCG@10 alone.

    `ranges` has, by setting, values to choose from (`[16, 32]`) or an interval (`{"log": (0.001, 1)}`,
    `{"linear": (0, 1)}`); by default those of config/tuning.yaml for the method. All `trials` are fixed in
    advance and trained for a few rounds, the best of them for all rounds, and the best of these with so many
    `seeds`. Their means decide.

    Trials are runs in the usual folders, so that the same call resumes a search. A protocol that leaks in
    training, or picks its round by test items, is refused, unless `leaking` is set. The result has the method
    to train (`best`) and a frame of all trials; no number of test items is read.
    """
    from fedrec.runs.searching import tune_named

    return tune_named(
        data,
        method,
        protocol=protocol,
        ranges=ranges,
        trials=trials,
        seeds=seeds,
        leaking=leaking,
        progress=progress,
        device=device,
        engine=engine,
    )


def evaluate(
    scores: object,
    data: str | Path,
    protocol: str,
    *,
    name: str,
    out: str | Path | None = None,
    ids: "IdKind" = "original",
    note: str = "",
) -> "RunRecord":
    """Rank the scores of another system on a frozen split, as fedrec ranks those of its own runs.

    `scores` are a file: parquet or csv with the columns user, item and score, or npy with a row per user and
    a column per item in fedrec's order; or such a frame or matrix. They are of all items that a user did not
    train on, or of the held-out items and candidates alone, which gives no exact ranks. `data` is the folder
    of a prepared dataset with its splits. `ids` says whose ids a file or a frame has: those of the dataset's
    own file, or fedrec's numbers. `out` is by default results/evaluated/dataset/protocol/name. `note` says
    who trained the system, with which version and settings, and how these were chosen; tables show it. It
    returns a finished run like any other, which has no model.
    """
    from fedrec.runs.evaluated_scores import evaluate_scores

    return evaluate_scores(scores, data, protocol, name=name, out=out, ids=ids, note=note)


def paired(run: "RunRecord", others: "Sequence[RunRecord]") -> "pl.DataFrame":
    """A run compared with others on the same users: a row per metric and other run.

    Each has the mean difference, positive where `run` is better, its 95 % interval over users, and p-values
    of two paired tests, as they are and corrected by Holm's rule over the other runs.
    """
    import polars as pl

    from fedrec.audit.pairing import paired_rows

    return pl.DataFrame(paired_rows(run, others))


def compare(runs: "Sequence[RunRecord]") -> "pl.DataFrame":
    """Methods compared on one split, by their runs with several seeds: a row per metric and method.

    Metrics are HR@10 and NDCG@10 among candidates and, as `exact_hr@10` and `exact_ndcg@10`, among all items.
    `value` is the mean over seeds and users, `low` and `high` are its 95 % interval over users. The method
    with the best `validation`, the mean of validation NDCG@10 over seeds, comes first; test items never
    choose it. Every other method has the difference from that one with its interval, and p-values of two
    tests paired by users, as they are and corrected by Holm's rule over the methods. `over_seeds` is p of the
    test over seeds, where there are enough. A warning says where there are not.
    """
    import warnings

    import polars as pl

    from fedrec.audit.method_comparison import COMPARISON_COLUMNS, comparison_rows, few_seeds

    rows = comparison_rows(runs)
    if warning := few_seeds(runs):
        warnings.warn(warning, stacklevel=2)
    return pl.DataFrame(rows, schema=dict(COMPARISON_COLUMNS))
