"""Records of other systems' scores that join tables: the configuration names them under `evaluated`.

`fedrec evaluate` writes such a record to `evaluated/<dataset>/<protocol>/<name>` below the results.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedrec.errors import ConfigurationError, did_you_mean
from fedrec.plan.runs import SUMMARY

EVALUATED_FOLDER = "evaluated"
"""The folder of these records, below the results."""


@dataclass(frozen=True)
class EvaluatedPlan:
    """Which records of the systems named there are on some splits."""

    there: tuple[str, ...]
    """Their folders, below the results."""
    lacking: tuple[str, ...]
    """The folders without a record."""


def evaluated_plan(results: Path, names: Sequence[str], splits: Iterable[tuple[str, str]]) -> EvaluatedPlan:
    """The records below results of systems on splits, each a dataset and the full name of a protocol."""
    folders = [
        f"{EVALUATED_FOLDER}/{dataset}/{protocol}/{name}" for name in names for dataset, protocol in splits
    ]
    there = {folder for folder in folders if (results / folder / SUMMARY).is_file()}
    return EvaluatedPlan(
        tuple(folder for folder in folders if folder in there),
        tuple(folder for folder in folders if folder not in there),
    )


def stored_plan(stored: Iterable[str], splits: Iterable[tuple[str, str]]) -> EvaluatedPlan:
    """Those of stored records, given by their folders, that are on splits; nobody asked for others."""
    wanted = {f"{EVALUATED_FOLDER}/{dataset}/{protocol}" for dataset, protocol in splits}
    return EvaluatedPlan(tuple(sorted(one for one in stored if one.rpartition("/")[0] in wanted)), ())


def check_evaluated(results: Path, name: str, dataset: str) -> None:
    """Raise `ConfigurationError` where a system called `name` has no record on any split."""
    folder = results / EVALUATED_FOLDER
    known = sorted({path.parent.name for path in folder.glob(f"*/*/*/{SUMMARY}")})
    if name not in known:
        raise ConfigurationError(
            f"{folder} has no record of '{name}'.{did_you_mean(name, known)} Make one with: "
            f"{evaluate_command(results, dataset, 'clean', name)}"
        )


def evaluate_command(results: Path, dataset: str, protocol: str, name: str) -> str:
    """The command that writes a record to where tables look for it."""
    usual = Path("results")
    out = f" --out {results / EVALUATED_FOLDER / dataset / protocol / name}" if results != usual else ""
    return (
        f"fedrec evaluate --scores FILE --data {results / 'data' / dataset} --protocol {protocol} "
        f"--name {name}{out}"
    )
