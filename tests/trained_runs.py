"""Runs trained by tests on small made splits, laid out as the workflow does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedrec.config.protocol import full_name
from fedrec.data.split import Split, write_split
from fedrec.plan.runs import RunId
from fedrec.runs.finished import Finished
from fedrec.runs.train import train
from tests.conftest import ROOT

PAPER = "fedem"


def made_results(root: Path, make: Callable[..., Split], **sizes: int) -> Path:
    """A folder of results with the splits that `make` gives under each protocol."""
    for name in ("clean", f"published-{PAPER}", f"only-pool-{PAPER}"):
        write_split(make(protocol=name, **sizes), root / "data/made" / name)
    return root


def finished(root: Path, method: str, kind: str, *changes: str, seed: int = 0, **more: Any) -> Finished:
    """A run on the splits below a folder of results, trained unless it is there."""
    spelled = method + "".join(f"[{change}]" for change in changes)
    folder = root / RunId(PAPER, "made", full_name(kind, PAPER), spelled, seed).folder
    if not (folder / "run.json").is_file():
        train(
            data=root / "data/made", method=spelled, paper=PAPER, protocol=kind, seed=seed, out=folder,
            device="cpu", methods_file=ROOT / "config/methods.yaml", **more,
        )  # fmt: skip
    return Finished(folder)
