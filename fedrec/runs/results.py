"""Finished runs by path: one opened, all below a folder, and all of them as one frame."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrec.config.method_entries import setting_meant
from fedrec.config.methods import setting_text
from fedrec.errors import ConfigurationError, ResultError
from fedrec.plan.runs import SUMMARY, below_results
from fedrec.runs.record import RunRecord, without_brackets
from fedrec.runs.store import RunStore

if TYPE_CHECKING:
    import polars as pl

_NAMED = ("paper", "dataset", "protocol", "method", "seed", "at", "round", "reported", "folder")
"""Columns of a frame of no runs."""


def open_record(path: str | Path, data: str | Path | None = None, device: str = "cpu") -> RunRecord:
    """The finished run at `path`, its folder or its run.json; `ResultError` if there is none.

    A run of a packed store has the path of the unpacked run: `store/runs/.../seed0`.
    """
    where, splits = Path(path), None if data is None else Path(data)
    folder = where.parent if where.name == SUMMARY else where
    if not folder.is_dir():
        name = below_results(folder)
        if name is not None and RunStore.is_at(store := folder.parents[len(name.parts) - 1]):
            return RunStore(store).record(name.as_posix(), splits, device)
        advice = without_brackets(folder) or "Give the folder of a finished run."
        raise ResultError(f"{folder}: no such folder. {advice}")
    record = RunRecord(folder, splits, device)
    _ = record.summary
    return record


def records_below(folder: str | Path) -> list[RunRecord]:
    """Every finished run in or below `folder`, in the order of their paths.

    Runs of a packed store have the paths of unpacked runs: `store/runs/pfedclr`. Folders whose names begin
    with a dot are skipped, because an import may be writing there.
    """
    where = Path(folder)
    if RunStore.is_at(where):
        return list(RunStore(where).records())
    paths = sorted(where.rglob(SUMMARY))
    hidden = {path for path in paths if any(part.startswith(".") for part in path.relative_to(where).parts)}
    records = [RunRecord(path.parent) for path in paths if path not in hidden]
    # The relative path `.` has no parents.
    store = next(filter(RunStore.is_at, where.parents or where.absolute().parents), None)
    if records or (store is None and where.is_dir()):
        return records
    if store is None:
        raise ResultError(f"{where}: no such folder. Give a folder of results.")
    stored = [record for record in RunStore(store).records() if record.folder.is_relative_to(where)]
    if not stored:
        raise ResultError(f"{where}: contains no packed run of {store}. Give {store}.")
    return [*stored]


def results_frame(records: Iterable[RunRecord], settings: Sequence[str] = ()) -> "pl.DataFrame":
    """One row per run and reported round: identity, metrics, seconds, device, hashes, folder.

    `reported` marks the round that the run's protocol reports. Each of `settings` adds a column: numbers if
    all values are numbers, else texts, and null if a method has no such setting.
    `ConfigurationError` names a setting that no run has.
    """
    import polars as pl

    every = list(records)
    columns = {name: setting_column(every, name) for name in settings}
    rows = [
        row | {name: column[index] for name, column in columns.items()}
        for index, record in enumerate(every)
        for row in record.result_rows()
    ]
    # Without runs the frame has columns too, so that a filter gives no rows instead of an error.
    named = [*_NAMED, *settings]
    return pl.DataFrame(rows, infer_schema_length=None) if rows else pl.DataFrame(schema=named)


def setting_column(records: Sequence[RunRecord], setting: str) -> list[Any]:
    """The value of a setting in each run; None if a run does not have the setting, or it is null."""
    known = [record.settings for record in records]
    if known and not any(setting in values for values in known):
        names = sorted({name for values in known for name in values})
        hint = setting_meant(setting, names)
        raise ConfigurationError(
            f"settings: no run has a setting '{setting}'.{hint} The runs have: {', '.join(names)}."
        )
    column = [values.get(setting) for values in known]
    if all(value is None or _is_number(value) for value in column):
        return column
    return [setting_text(values[setting]) if setting in values else None for values in known]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
