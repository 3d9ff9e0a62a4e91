"""A finished run, opened: what it was told, what it was trained on, and its model after the last round."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrec.data.split import Split, read_split
from fedrec.errors import ResultError
from fedrec.federation.clients import Clients
from fedrec.federation.engines.loop import LoopEngine
from fedrec.federation.learner import Learner
from fedrec.files.parquet import read_table
from fedrec.files.tensors import load_tensors
from fedrec.runs.registry import make_learner

_BELOW_RESULTS = 6
"""Folders from a run up to the results: runs/paper/dataset/kind/method/seed."""


@dataclass(frozen=True)
class Finished:
    """A finished run by its folder; what is not asked for is not read.

    `data` is the folder of its dataset's splits; by default the one below the same results.
    """

    folder: Path
    data: Path | None = None
    device: str = "cpu"

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """What `run.json` says: settings, hashes, metrics, times."""
        path = self.folder / "run.json"
        try:
            found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ResultError(
                f"{path}: this run is not finished. Build it with: snakemake --cores 2 '{path}'"
            ) from None
        return found

    @cached_property
    def tensors(self) -> Mapping[str, Tensor]:
        """The state after the last round."""
        return load_tensors(self.folder / "state.safetensors")[0]

    @cached_property
    def split(self) -> Split:
        """What it was trained on."""
        data = self.data or self._results / "data" / self.summary["dataset"]
        folder = data / self.summary["protocol"]["name"]
        if not (folder / "split.parquet").is_file():
            raise ResultError(
                f"{self.folder}: its split is not in {folder}. Name the folder of its dataset's splits with "
                f"--data, for example results/data/{self.summary['dataset']}."
            )
        split = read_split(folder)
        if split.content_hash() != self.summary["split"]:
            raise ResultError(
                f"{self.folder}: was trained on another split than {folder} holds now. Train it again."
            )
        return split

    @cached_property
    def clients(self) -> Clients:
        """Its clients."""
        return Clients.of_split(self.split, torch.device(self.device))

    @cached_property
    def learner(self) -> Learner:
        """Its model."""
        told = self.summary
        made = make_learner(told["method"], self.clients, told["settings"], told["seed"], LoopEngine())
        made.load(self.tensors)
        return made

    def ranks(self, rule: str | None = None) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Users, and the rank of each one's test item among its candidates.

        At the round its protocol reports, or the one that another rule would.
        """
        table, _ = read_table(self.folder / "ranks.parquet")
        chosen = table.filter(pc.equal(table["at"], rule or self.summary["protocol"]["round_rule"]))
        return chosen["user"].to_numpy(), chosen["test_rank"].to_numpy()

    @property
    def _results(self) -> Path:
        parents = self.folder.absolute().parents
        return parents[min(_BELOW_RESULTS, len(parents)) - 1]
