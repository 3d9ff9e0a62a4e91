"""A store of many finished runs in a few files: all that tables and figures read, without models and data.

    runs/<dataset>.parquet   one row per run: its run.json, the audit's measurements of its model, and as
                             bytes the ranks of its users at the reported round, its curve and its times
    users.parquet            the users of these ranks: runs on one split share them
    splits.parquet           the shape of each split: the training rows of each user, and for a pool that
                             excludes held-out items, the number of items in it
    datasets.parquet         the statistics of each dataset, and the number of interactions of each user
    evaluated/...            the records of other systems' scores, as `fedrec evaluate` wrote them

Every file carries a hash of its content, and equal runs give equal bytes. Curves and times have four
decimals. Ranks are exact, and only those of the reported round are stored.
"""

import hashlib
import json
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from torch import Tensor

from fedrec.errors import ResultError, StorageError, did_you_mean
from fedrec.files.atomic import canonical_json, make_folder
from fedrec.files.checked_json import write_checked_json
from fedrec.files.parquet import read_metadata, read_table, write_table
from fedrec.plan.evaluated import EVALUATED_FOLDER
from fedrec.plan.runs import SUMMARY, TABLES, RunId, below_results
from fedrec.runs.record import AUDIT_FILE, IN_CATALOGUE, RunRecord, UserRanks, without_brackets
from fedrec.runs.sampling_counts import LEAKING_POOL, SamplingCounts

_RUNS, _USERS, _SPLITS, _DATASETS = "runs", "users.parquet", "splits.parquet", "datasets.parquet"
_OF_POOL = ("pool", "seen")
"""Columns of a split with `LEAKING_POOL`, from `SamplingCounts`: a value for each user."""
ACTIVITY = "activity.parquet"
"""The file with the number of interactions of each user, beside a dataset's statistics."""
_ABOUT = ("name", "summary", "audit", "users")
"""The columns of a packed run that contain no numbers."""
_REBUILD = "Restore it from the repository, or pack its runs again."
_FIXED_POINT = 10_000
"""Denominator of the fixed-point numbers of curves and times."""
_FIXED_POINT_MARK = b"%"
"""The first byte of fixed-point numbers."""
_COLUMNS: Mapping[str, Sequence[str]] = {
    "curve": ("round", "loss", "validation_hr@10", "validation_ndcg@10", "test_hr@10", "test_ndcg@10"),
    "timing": (
        "round",
        "clients",
        "bytes_down_per_client",
        "bytes_up_per_client",
        "local_seconds",
        "server_seconds",
    ),
}
"""The columns of a run's tables to store, if it has them."""
_KINDS = ("|u1", "<u2", "<u4", "<i8", "<f4", "<f8")
"""Numpy types for numbers, narrowest first; the first that is exact is used."""
_HALVES = 2
"""Factor that makes ranks whole numbers: tied items share a rank, which may end in .5."""
_EXACT = "catalogue_rank"
"""The name of the ranks among all items."""
_RANKS = {"test_rank": "test_rank", _EXACT: IN_CATALOGUE}
"""The stored ranks, and their columns in a run's table."""


@dataclass(frozen=True)
class PackedRun:
    """The stored parts of a finished run."""

    name: str
    """Its folder below the results."""
    summary: Mapping[str, Any]
    """The content of its run.json."""
    users: bytes
    """The users of the ranks, sorted, as bytes."""
    numbers: Mapping[str, bytes]
    """Columns of ranks, curve and times as bytes: one number per user or round."""
    audit: Mapping[str, Any] = field(default_factory=dict)
    """The audit's measurements of its model (`fedrec.audit.model_measurements`); empty without any."""

    @property
    def dataset(self) -> str:
        """The dataset it was trained on."""
        return str(self.summary["dataset"])

    @property
    def id(self) -> RunId:
        """Its identity."""
        return RunId.of_summary(self.summary)

    def table(self, name: str) -> pa.Table:
        """A table of the run, ranks, curve or timing, with the stored columns."""
        if name == "ranks":
            return self._ranks()
        packed = {column: self.numbers.get(f"{name}:{column}") for column in _COLUMNS[name]}
        return pa.table({column: _numbers(value) for column, value in packed.items() if value})

    def _ranks(self) -> pa.Table:
        user = _numbers(self.users)
        rule = self.summary["protocol"]["round_rule"]
        ranks = {
            column: (_numbers(self.numbers[name]) / _HALVES).astype(np.float32)
            for name, column in _RANKS.items()
            if name in self.numbers
        }
        return pa.table({"at": pa.array([rule] * len(user)).dictionary_encode(), "user": user, **ranks})

    @property
    def has_exact_ranks(self) -> bool:
        """Whether it has ranks among all items."""
        return _EXACT in self.numbers

    def without_exact_ranks(self) -> "PackedRun":
        """The same run without ranks among all items."""
        return replace(self, numbers={name: value for name, value in self.numbers.items() if name != _EXACT})


@dataclass(frozen=True)
class Changes:
    """The outcome of adding runs, by their names."""

    added: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    """Runs that were not added, since the stored run is of newer code."""
    hr_change: Mapping[str, float | None] = field(default_factory=dict)
    """Change of the test HR@10 of retrained runs with equal settings and split; None for equal ranks."""


def packed_run(record: RunRecord, audit: Mapping[str, Any] | None = None) -> PackedRun:
    """Pack a finished run; read all its tables, so that a damaged one is an error."""
    ranks = record.user_ranks()
    numbers = {"test_rank": _as_bytes(ranks.rank.astype(np.float64) * _HALVES)}
    if record.has_exact_ranks:
        among_all = record.user_ranks(catalogue=True).rank
        numbers[_EXACT] = _as_bytes(among_all.astype(np.float64) * _HALVES)
    for table, wanted in _COLUMNS.items():
        columns = record.columns(table)
        numbers |= {f"{table}:{name}": _column(columns[name]) for name in wanted if name in columns}
    # The path of its data is meaningless elsewhere, and its files are not stored.
    summary = {key: value for key, value in record.summary.items() if key not in ("data", "files")}
    return PackedRun(
        record.id.folder, summary, _as_bytes(ranks.user), numbers, dict(audit or record.audit or {})
    )


def unpacked_run(run: PackedRun, results: Path, more: Mapping[str, Any] | None = None) -> RunRecord:
    """Unpack a run into a folder of results, without its model; `more` is added to its run.json."""
    folder = results / run.name
    for name in TABLES:
        write_table(folder / f"{name}.parquet", run.table(name), {"dataset": run.dataset})
    if run.audit:
        write_checked_json(folder / AUDIT_FILE, run.audit)
    write_checked_json(folder / SUMMARY, {**run.summary, **(more or {})})
    return RunRecord(folder)


@dataclass(frozen=True, kw_only=True)
class PackedRecord(RunRecord):
    """The record of a packed run, without its model and other parts that are not stored."""

    packed: PackedRun

    @property
    def summary(self) -> Mapping[str, Any]:
        """The content of its run.json, without checksums of files."""
        return self.packed.summary

    @property
    def audit(self) -> Mapping[str, Any] | None:
        """The audit's measurements of its model; None without any."""
        return self.packed.audit or None

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """Raise `ResultError`: the store has no models."""
        raise self._not_stored("its model")

    @property
    def has_model(self) -> bool:
        """Return False."""
        return False

    def user_ranks(self, rule: str | None = None, *, catalogue: bool = False) -> UserRanks:
        """The rank of each user's test item at the reported round; `ResultError` for ranks not stored."""
        if rule not in (None, self.round_rule):
            raise self._not_stored(f"the ranks of the round '{rule}'")
        if catalogue and not self.packed.has_exact_ranks:
            raise self._not_stored("its exact ranks")
        return super().user_ranks(catalogue=catalogue)

    def _table(self, name: str) -> pa.Table:
        return self.packed.table(name)

    def _not_stored(self, what: str) -> ResultError:
        return ResultError(
            f"{self.folder}: the store does not have {what}. Train the run, then open it below its own "
            f"results: snakemake --cores 2 'results/{self.packed.name}/{SUMMARY}'"
        )


class RunStore:
    """A folder of packed runs. Every access reads the files; writes are atomic."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def is_at(cls, folder: Path) -> bool:
        """Whether a folder holds packed runs."""
        return (folder / _USERS).is_file() and (folder / _RUNS).is_dir()

    def datasets(self) -> list[str]:
        """The datasets with runs."""
        return sorted(path.stem for path in (self.folder / _RUNS).glob("*.parquet"))

    def every_run(self) -> Iterator[PackedRun]:
        """All runs, dataset by dataset, in the order of their names."""
        for dataset in self.datasets():
            yield from self.runs_on(dataset).values()

    def runs_on(self, dataset: str) -> dict[str, PackedRun]:
        """The runs on a dataset by name."""
        everyone = self._users()
        return {row["name"]: self._run(row, everyone) for row in self._packed(dataset).to_pylist()}

    def names_on(self, dataset: str) -> list[str]:
        """The names of the runs on a dataset."""
        return [str(name) for name in self._packed(dataset)["name"].to_pylist()]

    def record(self, name: str, data: Path | None = None, device: str = "cpu") -> PackedRecord:
        """The record of one run by its name; `ResultError` if the store does not have it."""
        below = below_results(Path(name))
        table = self._packed("" if below is None else below.parts[2])
        rows = table.filter(pc.equal(table["name"], name)).to_pylist()
        if not rows:
            near = without_brackets(Path(name)) or did_you_mean(name, table["name"].to_pylist()).strip()
            raise ResultError(f"{self.folder}: there is no run '{name}' in this store. {near}".rstrip())
        return PackedRecord(self.folder / name, data, device, packed=self._run(rows[0], self._users()))

    def records(self) -> Iterator[PackedRecord]:
        """All runs as records, in the order of `every_run`."""
        for run in self.every_run():
            yield PackedRecord(self.folder / run.name, packed=run)

    def add(self, runs: Iterable[PackedRun], *, keeps: Iterable[str] = ()) -> Changes:
        """Add runs. A new run replaces the stored one unless `keeps` has its name.

        If a stored run is added again without its audit measurements or exact ranks, it keeps them.
        """
        incoming_runs: dict[str, dict[str, PackedRun]] = {}
        for run in runs:
            incoming_runs.setdefault(run.dataset, {})[run.name] = run
        done: dict[str, list[str]] = {"added": [], "replaced": [], "same": [], "rejected": []}
        protected, hr_changes = set(keeps), {}
        for dataset, incoming in sorted(incoming_runs.items()):
            stored = self.runs_on(dataset)
            after = dict(stored)
            for name, run in sorted(incoming.items()):
                before = stored.get(name)
                merged = run if before is None else _with_earlier_values(before, run)
                outcome = "added" if before is None else "same" if merged == before else "replaced"
                if outcome == "replaced" and name in protected:
                    outcome = "rejected"
                done[outcome].append(name)
                if before is not None and outcome == "replaced" and _is_trained_again(before, run):
                    hr_changes[name] = _hr_change(before, run)
                after[name] = merged if outcome in ("added", "replaced") else after[name]
            if after != stored:
                self._write(dataset, after)
        return Changes(**{outcome: tuple(names) for outcome, names in done.items()}, hr_change=hr_changes)

    def add_data(self, results: Path) -> None:
        """Add from `results` the shapes of stored runs' splits and the statistics of datasets."""
        wanted: dict[str, set[tuple[str, str]]] = {}
        for run in self.every_run():
            named = (str(run.summary["protocol"]["name"]), str(run.summary["split"]))
            wanted.setdefault(run.dataset, set()).add(named)
        splits = {(row["dataset"], row["protocol"]): row for row in self._rows(_SPLITS)}
        known = {row["dataset"]: row for row in self._rows(_DATASETS)}
        for path in sorted((results / "data").glob("*/statistics.json")):
            known[path.parent.name] = {"dataset": path.parent.name, **_about_dataset(path.parent)}
        for dataset, of_dataset in wanted.items():
            folder = results / "data" / dataset
            for protocol, split in of_dataset:
                before = splits.get((dataset, protocol))
                if before is not None and json.loads(before["about"])["split"] == split:
                    continue
                path = folder / protocol / "split.parquet"
                if path.is_file() and read_metadata(path)["split"] == split:
                    shape = {"dataset": dataset, "protocol": protocol, **_shape_of(path)}
                    splits[dataset, protocol] = shape
        self._write_rows(_SPLITS, [splits[key] for key in sorted(splits)])
        self._write_rows(_DATASETS, [known[key] for key in sorted(known)])

    def add_data_of(self, other: "RunStore") -> None:
        """Add the shapes of splits and the statistics of another store."""
        for file, keys in ((_SPLITS, ("dataset", "protocol")), (_DATASETS, ("dataset",))):
            rows = {tuple(row[key] for key in keys): row for row in (*self._rows(file), *other._rows(file))}
            self._write_rows(file, [rows[key] for key in sorted(rows)])

    def evaluated(self) -> list[str]:
        """The folders below the store with records of other systems' scores."""
        paths = (self.folder / EVALUATED_FOLDER).glob(f"*/*/*/{SUMMARY}")
        return sorted(path.parent.relative_to(self.folder).as_posix() for path in paths)

    def add_evaluated(self, results: Path) -> list[str]:
        """Add the records of other systems' scores below results; return their folders.

        `ResultError`, before anything is written, for a record on another split than that of stored runs.
        """
        records = [
            RunRecord(path.parent) for path in sorted((results / EVALUATED_FOLDER).glob(f"*/*/*/{SUMMARY}"))
        ]
        hashes = self.split_hashes()
        for record in records:
            parts = record.folder.relative_to(results).parts[1:]
            if record.score_source is None or parts != (record.id.dataset, record.protocol, record.id.method):
                raise ResultError(f"{record.folder}: is no record of other scores that its folder names.")
            if record.summary["split"] != hashes.get((record.id.dataset, record.protocol)):
                raise ResultError(
                    f"{record.folder}: its scores were ranked on another split than that of the stored runs. "
                    "Split the dataset again, and evaluate them on that split."
                )
            record.check(with_model=False)
        for record in records:
            folder = self.folder / record.folder.relative_to(results)
            make_folder(folder)
            for name in (*(f"{table}.parquet" for table in TABLES), SUMMARY):
                shutil.copyfile(record.folder / name, folder / name)
        return [record.folder.relative_to(results).as_posix() for record in records]

    def unpack_evaluated(self, results: Path) -> None:
        """Copy the records of other systems' scores below results."""
        if (self.folder / EVALUATED_FOLDER).is_dir():
            shutil.copytree(self.folder / EVALUATED_FOLDER, results / EVALUATED_FOLDER, dirs_exist_ok=True)

    def split_hashes(self) -> dict[tuple[str, str], str]:
        """The hashes of the splits with a stored shape, by dataset and protocol."""
        return {
            (row["dataset"], row["protocol"]): str(json.loads(row["about"])["split"])
            for row in self._rows(_SPLITS)
        }

    def datasets_with_statistics(self) -> list[str]:
        """The datasets with stored statistics."""
        return [row["dataset"] for row in self._rows(_DATASETS)]

    def unpack_data(self, results: Path, wanted: Collection[str] | None = None) -> None:
        """Write the shapes of splits and the statistics of datasets below results, in the format of readers.

        With `wanted`, paths below the results, only those splits are written, because they are large.
        """
        for row in self._rows(_SPLITS):
            file = f"data/{row['dataset']}/{row['protocol']}/split.parquet"
            if wanted is not None and file not in wanted:
                continue
            user, count = _numbers(row["users"]), _numbers(row["rows"])
            part = pa.DictionaryArray.from_arrays(np.zeros(int(count.sum()), np.int32), ["train"])
            shape = {"user": np.repeat(user, count).astype(np.int32), "part": part}
            shape |= {name: np.repeat(_numbers(row[name]), count) for name in _OF_POOL if row.get(name)}
            write_table(results / file, pa.table(shape), json.loads(row["about"]))
        for row in self._rows(_DATASETS):
            folder = results / "data" / row["dataset"]
            write_checked_json(folder / "statistics.json", json.loads(row["statistics"]))
            if row["users"]:
                active = {"user": _numbers(row["users"]), "interactions": _numbers(row["interactions"])}
                write_table(folder / ACTIVITY, pa.table(active), {"dataset": row["dataset"]})

    def _runs(self, dataset: str) -> Path:
        return self.folder / _RUNS / f"{dataset}.parquet"

    def _packed(self, dataset: str) -> pa.Table:
        """The packed runs on a dataset; no rows without any."""
        path = self._runs(dataset)
        if not path.is_file():
            return pa.table({name: pa.array([], pa.string()) for name in _ABOUT})
        return read_table(path, columns=_ABOUT, rebuild=_REBUILD)[0]

    def _run(self, row: dict[str, Any], everyone: Mapping[str, bytes]) -> PackedRun:
        name, summary, audit, users = (row[key] for key in _ABOUT)
        if users not in everyone:
            raise StorageError(f"{self.folder / _USERS}: does not have the users of {name}. {_REBUILD}")
        numbers = {key: value for key, value in row.items() if value and key not in _ABOUT}
        return PackedRun(name, json.loads(summary), everyone[users], numbers, json.loads(audit))

    def _users(self) -> dict[str, bytes]:
        return {row["key"]: row["users"] for row in self._rows(_USERS)}

    def _rows(self, file: str) -> list[dict[str, Any]]:
        path = self.folder / file
        return read_table(path, rebuild=_REBUILD)[0].to_pylist() if path.is_file() else []

    def _write(self, dataset: str, runs: Mapping[str, PackedRun]) -> None:
        make_folder(self.folder / _RUNS)
        # Write users first: runs without their users cannot be read.
        everyone = self._users() | {_key(run.users): run.users for run in runs.values()}
        self._write_rows(_USERS, [{"key": key, "users": everyone[key]} for key in sorted(everyone)])
        columns = sorted({name for run in runs.values() for name in run.numbers})
        rows = [
            {
                "name": name,
                "summary": canonical_json(runs[name].summary),
                "audit": canonical_json(runs[name].audit),
                "users": _key(runs[name].users),
                **{column: runs[name].numbers.get(column, b"") for column in columns},
            }
            for name in sorted(runs)
        ]
        write_table(self._runs(dataset), pa.Table.from_pylist(rows), {"dataset": dataset}, archival=True)

    def _write_rows(self, file: str, rows: Sequence[Mapping[str, Any]]) -> None:
        columns = dict.fromkeys(name for row in rows for name in row)
        # Columns that only some rows have contain numbers as bytes.
        whole = [{name: row.get(name, b"") for name in columns} for row in rows]
        if whole and whole != self._rows(file):
            write_table(self.folder / file, pa.Table.from_pylist(whole), {"file": file}, archival=True)


def _is_trained_again(before: PackedRun, run: PackedRun) -> bool:
    """Whether two runs of one name have equal settings, split and protocol, but are different trainings."""
    keys = ("settings", "split", "protocol")
    same = all(before.summary.get(key) == run.summary.get(key) for key in keys)
    return same and before.summary != run.summary


def _hr_change(before: PackedRun, run: PackedRun) -> float | None:
    """The absolute change of the reported test HR@10; None if all users have the same ranks."""
    if (before.users, before.numbers["test_rank"]) == (run.users, run.numbers["test_rank"]):
        return None
    rule = run.summary["protocol"]["round_rule"]
    first, second = (packed.summary["metrics"][rule]["test"]["hr@10"] for packed in (before, run))
    return abs(float(first) - float(second))


def _with_earlier_values(before: PackedRun, run: PackedRun) -> PackedRun:
    """The new run; if it is the same training, with the stored exact ranks and measurements it lacks."""
    if before.summary != run.summary or before.numbers.get("test_rank") != run.numbers["test_rank"]:
        return run
    exact = {name: value for name, value in before.numbers.items() if name == _EXACT}
    return replace(run, numbers={**exact, **run.numbers}, audit=run.audit or before.audit)


def _shape_of(path: Path) -> dict[str, Any]:
    """The shape of a split: its metadata, the training rows of each user, and the counts of its pool."""
    table, about = read_table(path)
    about.pop("content")
    user, item = (table[name].to_numpy() for name in ("user", "item"))
    part = table["part"].to_numpy(zero_copy_only=False).astype(str)
    histories = SamplingCounts.of_split(user, item, part, about["items"])
    shape = {
        "about": canonical_json(about),
        "users": _as_bytes(np.unique(user)),
        "rows": _as_bytes(histories.rows),
    }
    if about["protocol"]["negative_pool"] == LEAKING_POOL:
        shape |= {name: _as_bytes(getattr(histories, name)) for name in _OF_POOL}
    return shape


def _about_dataset(folder: Path) -> dict[str, Any]:
    """The statistics of a dataset, and the interactions of each user if that file is available."""
    statistics = json.loads((folder / "statistics.json").read_text(encoding="utf-8"))
    statistics.pop("sha256", None)
    user, count = np.empty(0, np.int64), np.empty(0, np.int64)
    path = folder / "interactions.parquet"
    if path.is_file():
        user, count = np.unique(read_table(path)[0]["user"].to_numpy(), return_counts=True)
    both = (_as_bytes(user) if len(user) else b"", _as_bytes(count) if len(user) else b"")
    return {"statistics": canonical_json(statistics), "users": both[0], "interactions": both[1]}


def _column(values: NDArray[Any]) -> bytes:
    """Numbers of a curve or of times as bytes; fractions are rounded to fixed-point numbers."""
    if not np.issubdtype(values.dtype, np.floating):
        return _as_bytes(values)
    parts = np.round(values.astype(np.float64) * _FIXED_POINT)
    if np.isfinite(parts).all() and (parts >= 0).all() and (parts < 2**32).all():
        return _FIXED_POINT_MARK + _as_bytes(parts.astype(np.int64))
    return _as_bytes((parts / _FIXED_POINT).astype(np.float32))


def _as_bytes(values: NDArray[Any]) -> bytes:
    """Numbers as bytes: the narrowest exact type, then the values."""
    for kind in _KINDS:
        with np.errstate(invalid="ignore", over="ignore"):
            written = values.astype(kind)
        if np.array_equal(written.astype(values.dtype), values, equal_nan=values.dtype.kind == "f"):
            return kind.encode() + written.tobytes()
    raise ResultError(f"numbers of the kind {values.dtype} cannot be kept.")


def _numbers(text: bytes) -> NDArray[Any]:
    """The inverse of `_as_bytes` and, up to rounding, of `_column`.

    Fractions have double precision, integers 64 bits.
    """
    if text.startswith(_FIXED_POINT_MARK):
        return _numbers(text[len(_FIXED_POINT_MARK) :]) / _FIXED_POINT
    values = np.frombuffer(text[3:], dtype=text[:3].decode("ascii"))
    return values.astype(np.float64 if values.dtype.kind == "f" else np.int64)


def _key(users: bytes) -> str:
    return hashlib.sha256(users).hexdigest()
