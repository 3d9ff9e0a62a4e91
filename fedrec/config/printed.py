"""The numbers that the papers print, from `printed.csv` of this package."""

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources

from fedrec.config.papers import Artefact

PrintedKey = tuple[str, str, str, str, str, str]
"""Paper, table, dataset, method, variant and metric (in small letters)."""


@dataclass(frozen=True)
class Printed:
    """A printed number; fractions for HR and NDCG, percent for gains."""

    value: float
    sd: float | None
    unit: str
    decimals: int
    """Decimals of the value in the file, which may lack zeros at the end."""
    taken_from: str | None = None
    """The earlier paper from which this paper copied the number; None if it did not."""


@cache
def printed_numbers() -> dict[PrintedKey, Printed]:
    """Every printed number."""
    text = resources.files("fedrec.config").joinpath("printed.csv").read_text(encoding="utf-8")
    return {
        (row["paper"], row["table"], row["dataset"], row["method"], row["variant"], row["metric"].lower()): (
            Printed(
                float(row["value"]),
                float(row["std"]) if row["std"] else None,
                row["unit"],
                len(row["value"].partition(".")[2]),
                row["taken_from"] or None,
            )
        )
        for row in csv.DictReader(text.splitlines())
        if row["value"]  # a gain the paper leaves empty
    }


def printed(
    paper: str, table: str | None, dataset: str, line: tuple[str, str] | None, metric: str
) -> Printed | None:
    """One printed number; `line` is its method and variant."""
    if table is None or line is None:
        return None
    return printed_numbers().get((paper, table, dataset, *line, metric.lower()))


def printed_for(artefact: Artefact) -> list[list[str | float | None]]:
    """Every printed number of an artefact's table: a change of one rebuilds the artefact."""
    return [
        [*key, number.value, number.sd, number.taken_from]
        for key, number in printed_numbers().items()
        if key[:2] == (artefact.paper, artefact.printed)
    ]
