"""Runs trained by tests on small made splits, laid out as the workflow does."""

import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedrec.config.methods import canonical
from fedrec.config.protocol import full_name
from fedrec.data.split import Split, write_split
from fedrec.plan.runs import RunId
from fedrec.plan.train_request import TrainRequest
from fedrec.runs.record import RunRecord
from fedrec.runs.train import train
from tests.federations import METHODS
from tests.once import once_for_all_workers

PAPER = "fedem"


def made_results(root: Path, make: Callable[..., Split], **sizes: int) -> Path:
    """A folder of results with the splits that `make` gives under each protocol."""
    for name in ("clean", f"published-{PAPER}", f"only-pool-{PAPER}"):
        write_split(make(protocol=name, **sizes), root / "data/made" / name)
    return root


def shared_results(
    tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[..., Split], **sizes: int
) -> Path:
    """The same, once for all workers: runs that one of them trains there, others find."""
    return once_for_all_workers(tmp_path_factory, name, lambda folder: made_results(folder, make, **sizes))


def finished(root: Path, method: str, kind: str, *changes: str, seed: int = 0, **more: Any) -> RunRecord:
    """A run on the splits below a folder of results, trained unless it is there.

    Workers may share the folder: one trains, others that ask for the same run wait for it.
    """
    spelled = canonical(METHODS, method + "".join(f"[{change}]" for change in changes))
    run = RunId(PAPER, "made", full_name(kind, PAPER), spelled, seed)
    folder = root / run.folder
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "run.json").is_file():
            request = TrainRequest(
                data=root / "data/made", method=spelled, paper=PAPER, protocol=kind, seed=seed, out=folder,
                device="cpu", **more,
            )  # fmt: skip
            train(request, METHODS)
    return RunRecord(folder)
