"""fedrec: federated recommendation papers, regenerated under an honest protocol.

From Python, of what the workflow or `fedrec train` left behind:

    import fedrec

    run = fedrec.open_run("results/runs/pfedclr/ml-100k/clean/fedmf/seed0")
    run.curve, run.ranks, run.metrics, run.scores(users=[0, 1], items=[10, 20, 30])
    fedrec.results("results")
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from fedrec.runs.record import RunRecord

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
    values.
    """
    from fedrec.runs.results import records_below, results_frame

    return results_frame(records_below(folder), settings)
