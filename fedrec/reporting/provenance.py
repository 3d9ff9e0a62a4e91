"""The origin of numbers, for captions: seeds, protocols, splits and code."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedrec.runs.record import RunRecord

SHOWN_LETTERS = 8
"""Letters of a hash that a caption shows."""
_NAMED_CODE = 3
"""Hashes of code that a caption names."""


@dataclass(frozen=True)
class MeanOverSeeds:
    """A number over seeds: mean, standard deviation (None for one seed) and number of seeds."""

    mean: float
    sd: float | None
    count: int


def mean_over_seeds(values: Iterable[float]) -> MeanOverSeeds:
    """Mean and standard deviation of one value per seed."""
    numbers = np.asarray(list(values), dtype=np.float64)
    sd = float(numbers.std(ddof=1)) if len(numbers) > 1 else None
    return MeanOverSeeds(float(numbers.mean()), sd, len(numbers))


def devices_of(records: Iterable[RunRecord]) -> str:
    """The devices that trained runs, each once; the runs of a mean may have several."""
    return "; ".join(dict.fromkeys(str(record.summary["measured"]["device"]) for record in records))


def of_one_device(records: Sequence[RunRecord]) -> list[RunRecord]:
    """The runs of the most frequent device: seconds of different devices do not compare."""
    devices = [str(record.summary["measured"]["device"]) for record in records]
    usual = max(dict.fromkeys(devices), key=devices.count)
    return [record for record, device in zip(records, devices, strict=True) if device == usual]


def rounds_of(records: Iterable[RunRecord], rule: str) -> str:
    """The round that a rule reports for each run, in the order of seeds; `-` where a run has none."""
    return " ".join(str(record.summary["rounds"].get(rule) or "-") for record in records)


def provenance(records: Iterable[RunRecord]) -> dict[str, list[str]]:
    """The facts that a caption names: seeds, protocols, devices, and hashes of splits and code, shortened."""
    runs = list(records)

    def distinct(values: Iterable[object]) -> list[str]:
        return sorted({str(value) for value in values})

    return {
        "seeds": distinct(run.id.seed for run in runs),
        "protocols": distinct(run.protocol for run in runs),
        "splits": distinct(run.summary["split"][:SHOWN_LETTERS] for run in runs),
        "code": distinct(run.summary["code"][:SHOWN_LETTERS] for run in runs),
        "devices": distinct(run.summary["measured"]["device"] for run in runs),
    }


def origin_sentence(origin: Mapping[str, Sequence[str]]) -> str:
    """Seeds, splits and code in one sentence of a caption."""
    seeds, splits = (", ".join(origin[name]) for name in ("seeds", "splits"))
    return f"Seeds {seeds}; splits {splits}; {code_text(origin['code'])}."


def code_text(code: Sequence[str]) -> str:
    """The code of runs in a caption: few hashes, or the number of many, since each method has its own."""
    if len(code) <= _NAMED_CODE:
        return f"code {', '.join(code)}"
    return f"{len(code)} fingerprints of code (run.json has the one of each run)"


def provenance_of_rows(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Seeds, splits and code of rows with the columns of `fedrec.runs.provenance_columns`, for a caption."""
    every = list(rows)

    def distinct(key: str, letters: int | None = None) -> list[str]:
        words = (word for row in every for word in str(row.get(key) or "").split())
        return sorted({word[:letters] for word in words})

    return {
        "seeds": distinct("seeds"),
        "splits": distinct("split_hash", SHOWN_LETTERS),
        "code": distinct("code", SHOWN_LETTERS),
    }
