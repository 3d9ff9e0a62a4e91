"""Finished runs as tables and figures see them: metrics at the reported round, curves, ranks and times."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedrec.evaluation.metrics import metrics_of
from fedrec.plan.runs import RunId
from fedrec.reporting.tables import Row
from fedrec.runs.finished import Finished

_SHOWN_LETTERS = 8
"""Of a hash, in a caption."""


@dataclass(frozen=True)
class Result:
    """A finished run and its files."""

    run: RunId
    folder: Path

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """What `run.json` says: settings, hashes, metrics, times."""
        return Finished(self.folder).summary

    @property
    def at(self) -> str:
        """The round its protocol reports: best_validation, best_test or last."""
        rule: str = self.summary["protocol"]["round_rule"]
        return rule

    def metric(self, name: str, part: str = "test") -> float:
        """A metric at the reported round, among candidates."""
        value: float = self.summary["metrics"][self.at][part][name]
        return value

    def metric_of(self, name: str, *, catalogue: bool = False, users: Iterable[int] | None = None) -> float:
        """A test metric at the reported round, in the catalogue or of some users alone."""
        rows = self.ranks.filter(pl.col("at") == self.at)
        if users is not None:
            rows = rows.filter(pl.col("user").is_in(list(users)))
        ranks = rows["test_rank_in_catalogue" if catalogue else "test_rank"].to_numpy()
        return float("nan") if not len(ranks) else metrics_of(ranks)[name]

    @cached_property
    def curve(self) -> pl.DataFrame:
        """One row per round: round, loss, validation_hr@10, test_ndcg@10 and so on."""
        return self._read("curve")

    @cached_property
    def ranks(self) -> pl.DataFrame:
        """One row per user and reported round."""
        return self._read("ranks")

    @cached_property
    def timing(self) -> pl.DataFrame:
        """One row per round: seconds, clients, bytes."""
        return self._read("timing")

    def _read(self, name: str) -> pl.DataFrame:
        # The brackets of a variant's name are no pattern.
        return pl.read_parquet(self.folder / f"{name}.parquet", glob=False)


def read_result(folder: Path) -> Result:
    """The run of a folder, which its own `run.json` names."""
    found = Result(RunId("", "", "", "", 0), folder).summary
    run = RunId(found["paper"], found["dataset"], found["protocol"]["name"], found["method"], found["seed"])
    return Result(run, folder)


@dataclass(frozen=True)
class Spread:
    """A number over seeds: mean, standard deviation (None for one seed) and how many."""

    mean: float
    sd: float | None
    count: int


def spread(values: Iterable[float]) -> Spread:
    """Mean and standard deviation of one value per seed."""
    found = np.asarray(list(values), dtype=np.float64)
    return Spread(float(found.mean()), float(found.std(ddof=1)) if len(found) > 1 else None, len(found))


def provenance(results: Iterable[Result]) -> dict[str, list[str]]:
    """What a caption must name: seeds, protocols, and the first letters of hashes of splits and code."""
    found = list(results)

    def distinct(values: Iterable[object]) -> list[str]:
        return sorted({str(value) for value in values})

    return {
        "seeds": distinct(one.run.seed for one in found),
        "protocols": distinct(one.summary["protocol"]["name"] for one in found),
        "splits": distinct(one.summary["split"][:_SHOWN_LETTERS] for one in found),
        "code": distinct(one.summary["code"]["engine"][:_SHOWN_LETTERS] for one in found),
        "devices": distinct(one.summary["measured"]["device"] for one in found),
    }


def origins_told(about: Mapping[str, Sequence[str]]) -> str:
    """Seeds, splits and code in one sentence of a caption."""
    seeds, splits, code = (", ".join(about[name]) for name in ("seeds", "splits", "code"))
    return f"Seeds {seeds}; splits {splits}; code {code}."


def provenance_of_rows(rows: Iterable[Row]) -> dict[str, list[str]]:
    """The same of rows that name their seed or seeds, split and code, also where a csv file is read again."""
    found = list(rows)

    def distinct(key: str, letters: int | None = None) -> list[str]:
        words = (word for row in found for word in str(row[key]).split())
        return sorted({word[:letters] for word in words})

    return {
        "seeds": distinct("seeds" if "seeds" in found[0] else "seed"),
        "splits": distinct("split_hash", _SHOWN_LETTERS),
        "code": distinct("engine_code", _SHOWN_LETTERS),
    }
