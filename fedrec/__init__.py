"""fedrec: federated recommendation papers, regenerated under an honest protocol.

From Python, open runs of the workflow or of `fedrec train`:

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
    """Open a finished run by its folder or run.json, or a stored run by its path in the store.

    The result has `settings` (a dict), `curve`, `ranks`, `timing`, `metrics` and `settings_frame` (polars
    frames), and `scores(users, items)` of its model. `data` is the folder of its dataset's splits, if that is
    not below the same results. `device` is the device of the model.
    """
    from fedrec.runs.results import open_record

    return open_record(path, data, device)


def results(folder: str | Path, settings: Sequence[str] = ()) -> "pl.DataFrame":
    """Read all finished runs below a folder, or of a packed store, into one polars frame.

    It has a row per run and reported round. `reported` marks the round that the run's own protocol reports.
    Each name in `settings` adds a column with its values, numeric if all values are numbers.
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
    """Prepare your own interactions, and split them by one or several protocols.

    `frame` is a frame of polars, pandas or pyarrow with a row per interaction, or the path of a csv or
    parquet file. Columns are recognised by their names and content; if that fails, name them by `user`,
    `item`, `rating` and `time`. Rows rated 0 or less are left out, and so are users with fewer than
    `min_rows` rows. Standard error and `notes` of the result list the columns that were read, and the rows
    that were left out.

    The dataset is called `name`. Its folder is `out`, by default results/data/NAME; `users.parquet` and
    `items.parquet` there have the original ids. The same call again only adds missing splits. Other data
    under the same name are an error.
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

    `data` is the folder of a prepared dataset with its splits, such as the result of `fedrec.split`.
    `settings` and further arguments change settings of the method, and become part of its name: `train(data,
    "fedmf", d=64)` is `train(data, "fedmf[d=64]")`.

    `out` is by default the folder that the workflow gives this run. A finished run there is opened without
    training; a stopped run resumes from its checkpoint. The model is written if it has at most 100 MB, always
    with `with_model=True`, and never with `with_model=False`. With `diverged="kept"` a training that diverges
    is a result instead of an error.
    """
    from fedrec.errors import ConfigurationError
    from fedrec.runs.default_folders import train_named

    for name in changes.keys() & (settings or {}).keys():
        raise ConfigurationError(f"{name}: is in settings and also an argument. Set it once.")
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
    """Search settings of a method on any dataset, by exact validation NDCG@10.

    `ranges` has, by setting, values to choose from (`[16, 32]`) or an interval (`{"log": (0.001, 1)}`,
    `{"linear": (0, 1)}`); by default those of config/tuning.yaml for the method. All `trials` are fixed in
    advance. They are trained for a few rounds, the best of them for all rounds, and the best of these with
    `seeds` seeds, whose means decide.

    Trials are runs in the usual folders, so the same call resumes a search. A protocol that leaks in
    training, or reports a round chosen on test items, is an error unless `leaking` is set. The result has the
    method to train (`best`) and a frame of all trials. No test number is read.
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
    """Rank the scores of another system on a split, by the same rules as fedrec's own runs.

    `scores` is a parquet or csv file with the columns user, item and score, an npy file with a row per user
    and a column per item in fedrec's order, or such a frame or matrix. It covers all items that a user did
    not train on; or only held-out items and candidates, which gives no exact ranks. `data` is the folder of a
    prepared dataset with its splits. `ids` names the kind of ids: those of the dataset's raw file, or
    fedrec's numbers. `out` is by default results/evaluated/dataset/protocol/name. Tables show `note`: write
    who trained the system, its version and settings, and how these were chosen. The result is a finished run
    without a model.
    """
    from fedrec.runs.evaluated_scores import evaluate_scores

    return evaluate_scores(scores, data, protocol, name=name, out=out, ids=ids, note=note)


def paired(run: "RunRecord", others: "Sequence[RunRecord]") -> "pl.DataFrame":
    """Compare a run with others on the same users; the frame has a row per metric and other run.

    A row has the mean difference, positive if `run` is better, its 95 % interval over users, and p-values of
    two paired tests, with and without Holm's correction over the other runs.
    """
    import polars as pl

    from fedrec.audit.pairing import paired_rows

    return pl.DataFrame(paired_rows(run, others))


def compare(runs: "Sequence[RunRecord]") -> "pl.DataFrame":
    """Compare methods on one split by their runs; the frame has a row per metric and method.

    Metrics are HR@10 and NDCG@10 among candidates, and `exact_hr@10` and `exact_ndcg@10` among all items.
    `value` is the mean over seeds and users; `low` and `high` are its 95 % interval over users. The method
    with the best `validation` (mean validation NDCG@10 over seeds) comes first; test items never choose it.
    Every other method has its difference from the first with an interval, and p-values of two tests paired by
    user, with and without Holm's correction over the methods. `over_seeds` is the p of the test over seeds; a
    warning appears if seeds are too few for it.
    """
    import warnings

    import polars as pl

    from fedrec.audit.method_comparison import COMPARISON_COLUMNS, comparison_rows, few_seeds

    rows = comparison_rows(runs)
    if warning := few_seeds(runs):
        warnings.warn(warning, stacklevel=2)
    return pl.DataFrame(rows, schema=dict(COMPARISON_COLUMNS))
