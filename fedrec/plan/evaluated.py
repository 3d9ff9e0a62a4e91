"""Records of other systems' scores that tables include: the configuration names them under `evaluated`.

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
    """The records of named systems on some splits: those that exist, and those that do not."""

    there: tuple[str, ...]
    """The folders with a record, below the results."""
    lacking: tuple[str, ...]
    """The folders without a record, below the results."""


def evaluated_plan(results: Path, names: Sequence[str], splits: Iterable[tuple[str, str]]) -> EvaluatedPlan:
    """Find the records of the systems `names`; a split is a dataset and a full protocol name."""
    folders = [
        f"{EVALUATED_FOLDER}/{dataset}/{protocol}/{name}" for name in names for dataset, protocol in splits
    ]
    recorded = {folder for folder in folders if (results / folder / SUMMARY).is_file()}
    return EvaluatedPlan(
        tuple(folder for folder in folders if folder in recorded),
        tuple(folder for folder in folders if folder not in recorded),
    )


def stored_plan(stored: Iterable[str], splits: Iterable[tuple[str, str]]) -> EvaluatedPlan:
    """The records among the `stored` folders that belong to `splits`."""
    wanted = {f"{EVALUATED_FOLDER}/{dataset}/{protocol}" for dataset, protocol in splits}
    return EvaluatedPlan(
        tuple(sorted(folder for folder in stored if folder.rpartition("/")[0] in wanted)), ()
    )


def check_evaluated(results: Path, name: str, dataset: str) -> None:
    """Raise `ConfigurationError` if a system called `name` has no record on any split."""
    folder = results / EVALUATED_FOLDER
    known = sorted({path.parent.name for path in folder.glob(f"*/*/*/{SUMMARY}")})
    if name not in known:
        raise ConfigurationError(
            f"{folder} has no record of '{name}'.{did_you_mean(name, known)} Make one with: "
            f"{evaluate_command(results, dataset, 'clean', name)}"
        )


def evaluate_command(results: Path, dataset: str, protocol: str, name: str) -> str:
    """The command that writes a record to the folder that tables read."""
    usual = Path("results")
    out = f" --out {results / EVALUATED_FOLDER / dataset / protocol / name}" if results != usual else ""
    return (
        f"fedrec evaluate --scores FILE --data {results / 'data' / dataset} --protocol {protocol} "
        f"--name {name}{out}"
    )
