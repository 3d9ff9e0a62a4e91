"""The record of a finished run: its files, written and read in one place.

    run.json           every setting, hash and version, and a hash of every file; written last: a run with
                       it is complete
    curve.parquet      one row per round: loss and every metric, on validation and test
    ranks.parquet      one row per user and reported round: ranks among candidates and in the catalogue
    timing.parquet     one row per round: seconds, clients, bytes
    state.safetensors  the model after the last round, and further records below extra/; missing if
                       `run.json` says that the model was not kept

Machines that train may not have polars. So only functions that return a frame import it.
"""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fedrec.config.methods import setting_text
from fedrec.config.names import folder_name
from fedrec.config.protocol import OWN
from fedrec.data.split import TRAIN, Split
from fedrec.data.temporal import split_in
from fedrec.errors import ConfigurationError, ResultError
from fedrec.evaluation.metrics import metrics_of
from fedrec.evaluation.scoring import protocol_scores
from fedrec.federation.clients import Clients
from fedrec.federation.engines.engine import engine_named
from fedrec.federation.learner import Learner
from fedrec.files.atomic import behind_link, canonical_json
from fedrec.files.checked_json import read_checked_json, write_checked_json
from fedrec.files.parquet import read_table, write_table
from fedrec.files.tensors import load_tensors, save_tensors
from fedrec.plan.code_matching import CodeMatcher
from fedrec.plan.equal_code import Proof
from fedrec.plan.runs import (
    ALWAYS,
    DIVERGED,
    LARGE_MODEL,
    MODEL,
    MODEL_BYTES,
    NOT_KEPT,
    RUN_DEPTH,
    STATE,
    SUMMARY,
    TABLES,
    RunId,
)
from fedrec.runs.exact import UNEVEN_POOL, exact_name, is_exact, sampled_name
from fedrec.runs.registry import make_learner
from fedrec.runs.score_files import Ids, numbers_of_ids
from fedrec.runs.setting_files import trained_settings

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

    from fedrec.runs.score_files import IdKind

IN_CATALOGUE = "test_rank_in_catalogue"
"""The column of ranks among all items."""
VALIDATION_IN_CATALOGUE = "validation_rank_in_catalogue"
"""The column of validation items' ranks among all items."""
SCORE_SOURCE = "elsewhere"
"""The key of a summary with the source of another system's scores."""
AUDIT_FILE = "audit.json"
"""The file with the audit's measurements of a model that is not stored (see `fedrec.runs.store`)."""
REPORTED = ("best_validation", "best_test", "last")
"""The reported rounds, whose ranks are stored; a protocol's `round_rule` names one of them."""
_OF_DATA = ("interactions.parquet", "split.parquet", "*/split.parquet")
"""Patterns of files that identify the folder of a dataset or a split."""
_MB = 1_000_000
_STATED = ("dataset", "method", "paper", "protocol", "seed", "settings", "split", "code", "metrics", "rounds")
"""The keys that `run.json` must have."""


@dataclass(frozen=True)
class UserRanks:
    """The rank of each user's test item in a run, at one reported round."""

    user: NDArray[np.int64]
    """Sorted."""
    rank: NDArray[np.float32]


@dataclass(frozen=True)
class RunRecord:
    """A finished run by its folder. It reads each file on first access.

    `data` is the folder of its dataset's splits; by default the one below the same results. `device` is the
    torch device for its model.
    """

    folder: Path
    data: Path | None = None
    device: str = "cpu"

    @classmethod
    def write(
        cls,
        folder: Path,
        identity: Mapping[str, Any],
        *,
        curve: pa.Table,
        timing: pa.Table,
        ranks: pa.Table,
        tensors: Mapping[str, Tensor],
        summary: Mapping[str, Any],
    ) -> Self:
        """Write the files of a run. Write a large model only on request, or with records.

        `identity` has everything that decides the result; each file stores it.
        """
        about = dict(identity)
        # Without run.json the folder counts as unfinished while other files are replaced.
        (folder / SUMMARY).unlink(missing_ok=True)
        tables = dict(zip(TABLES, (curve, timing, ranks), strict=True))
        files = {_file(name): write_table(folder / _file(name), tables[name], about) for name in tables}
        size = sum(tensor.nbytes for tensor in tensors.values())
        if size > LARGE_MODEL and MODEL not in summary and "record" not in summary:
            summary = {**summary, MODEL: NOT_KEPT}
        if summary.get(MODEL) == NOT_KEPT:
            summary = {**summary, **({MODEL_BYTES: size} if tensors else {})}
            (folder / STATE).unlink(missing_ok=True)
        else:
            files[STATE] = save_tensors(folder / STATE, tensors, canonical_json(about))
        write_checked_json(folder / SUMMARY, {**summary, "files": files})
        return cls(folder)

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """The content of `run.json`: settings, hashes, metrics, times."""
        path = self.folder / SUMMARY
        try:
            content = read_checked_json(path)
        except FileNotFoundError:
            problem = f"{path}: this run is not finished"
            if not (self._is_planned or self.folder.is_dir()):
                problem = f"{self.folder}: no such folder"
            elif any(any(self.folder.glob(pattern)) for pattern in _OF_DATA):
                problem = f"{self.folder}: this is the folder of a dataset or of a split, not of a run"
            raise ResultError(f"{problem}. {self._advice(path)}") from None
        except ValueError as error:
            advice = self._rebuild(path) + behind_link(path)
            raise ResultError(f"{path}: the file is damaged: {error}. {advice}") from error
        missing = [key for key in _STATED if key not in content]
        if missing or not isinstance(content["code"], str):
            wrong = f"'{missing[0]}' is missing" if missing else "its code is named differently"
            raise ResultError(f"{path}: {wrong}. Another version of fedrec wrote it. {self._rebuild(path)}")
        self._check_folder(content)
        return content

    @property
    def proofs(self) -> tuple[Proof, ...] | None:
        """The proofs that the run's code equals the code here; empty if the fingerprints are the same.

        None if its code is neither the same nor proven equal.
        """
        return CodeMatcher().proofs(self.summary)

    def _check_folder(self, content: Mapping[str, Any]) -> None:
        """Raise `ResultError` if the folder is the workflow's folder of another run."""
        folder = RunId.of_summary(content).folder
        if self._is_planned and not self.folder.absolute().as_posix().endswith(f"/{folder}"):
            path = self.folder / SUMMARY
            raise ResultError(f"{path}: is the record of another run, {folder}. {self._rebuild(path)}")

    @property
    def _is_planned(self) -> bool:
        """Whether the folder has the form of the workflow's: runs/paper/dataset/protocol/method/seed0."""
        parts = self.folder.absolute().parts
        return (
            len(parts) >= RUN_DEPTH
            and parts[-RUN_DEPTH] == "runs"
            and re.fullmatch(r"seed\d+", parts[-1]) is not None
        )

    def _rebuild(self, path: Path) -> str:
        """Advice to make a damaged file of this run again."""
        if self._is_planned:
            return f"Delete it, then build it again with: snakemake --cores 2 '{path}'"
        return "Train it again: repeat its `fedrec train` with --force, or its `fedrec evaluate`."

    def _trained_again(self, path: Path) -> str:
        """Advice to make a missing file of this run."""
        if SCORE_SOURCE in self.summary:
            return "Another system trained it, and fedrec has only its scores."
        if self._is_planned:
            return f"Train it again: snakemake --cores 2 '{path}'"
        return "Train it again: repeat its `fedrec train` with --force."

    def _why_no_model(self) -> str:
        """Reason why the model was not written."""
        size = self.summary.get(MODEL_BYTES, 0)
        if size > LARGE_MODEL:
            return (
                f"the model of this run was not written: it has {megabytes(size)}, and a model above "
                f"{megabytes(LARGE_MODEL)} is written only on request."
            )
        return "the model of this run was not written, as its training was asked to."

    @property
    def command_with_model(self) -> str:
        """The command that trains the run again in its folder and writes its model."""
        run = self.id
        options = {
            "data": self._data, "method": run.method, "paper": run.paper, "protocol": run.protocol,
            "seed": run.seed, "out": self.folder, "model": ALWAYS,
        }  # fmt: skip
        if run.paper == OWN:
            del options["paper"]
        return shlex.join(
            ["fedrec", "train", *(f"--{key}={value}" for key, value in options.items()), "--replace"]
        )

    def _advice(self, path: Path) -> str:
        """Advice for a run that is not finished."""
        if "[" in str(self.folder):
            return without_brackets(self.folder)
        below = sorted(self.folder.glob(f"*/{SUMMARY}")) if self.folder.is_dir() else []
        if below:
            return f"Did you mean {below[0].parent}?"
        if self._is_planned:
            return f"Build it with: snakemake --cores 2 '{path}'"
        return "Give the folder of a finished run, or repeat the `fedrec train` that writes it."

    def check(self, *, with_model: bool = True) -> None:
        """Read every file; a damaged one is an error."""
        _ = [self._table(name) for name in TABLES]
        if with_model:
            _ = self.tensors

    @property
    def has_model(self) -> bool:
        """Whether its model was written."""
        return self.summary.get(MODEL) != NOT_KEPT

    @property
    def id(self) -> RunId:
        """The identity of the run: paper, dataset, protocol, method and seed."""
        return RunId.of_summary(self.summary)

    @property
    def score_source(self) -> Mapping[str, Any] | None:
        """The source of its scores if another system trained it, else None."""
        source: Mapping[str, Any] | None = self.summary.get(SCORE_SOURCE)
        return source

    @property
    def protocol(self) -> str:
        """The name of its protocol."""
        name: str = self.summary["protocol"]["name"]
        return name

    @property
    def round_rule(self) -> str:
        """The rule by which its protocol chooses the reported round, one of `REPORTED`."""
        rule: str = self.summary["protocol"]["round_rule"]
        return rule

    @property
    def settings(self) -> Mapping[str, Any]:
        """Every setting, resolved."""
        settings: Mapping[str, Any] = self.summary["settings"]
        return settings

    @property
    def diverged(self) -> int | None:
        """The round in which its training diverged; None if it did not."""
        round_: int | None = self.summary.get(DIVERGED, {}).get("round")
        return round_

    def has_numbers(self, rule: str | None = None) -> bool:
        """Whether the reported round, or that of another `rule`, came before a divergence."""
        reported: int = self.summary["rounds"][rule or self.round_rule]
        return self.diverged is None or reported < self.diverged

    def metric(self, name: str, part: str = "test", rule: str | None = None) -> float:
        """A metric such as `hr@10` among candidates, at the reported round or that of another rule."""
        value: float = self.summary["metrics"][rule or self.round_rule][part][name]
        return value

    def metric_of(self, name: str, *, users: Iterable[int] | None = None) -> float:
        """A test metric at the reported round, over all users or only `users`.

        An exact metric, such as `exact_hr@10`, uses ranks among all items.
        """
        known = self.exact_metrics if is_exact(name) else self.summary["metrics"][self.round_rule]["test"]
        if users is None and name in known:
            value: float = known[name]
            return value
        ranks = self.ranks_of(name)
        rank = ranks.rank if users is None else ranks.rank[np.isin(ranks.user, list(users))]
        return metrics_of(rank)[sampled_name(name)] if len(rank) else float("nan")

    def ranks_of(self, metric: str) -> UserRanks:
        """The ranks at the reported round that a metric uses: among all items if it is exact."""
        return self.user_ranks(catalogue=is_exact(metric))

    @cached_property
    def exact_metrics(self) -> Mapping[str, float]:
        """The exact test metrics at the reported round by name.

        Empty if exact ranks were not stored, or if clients never sample candidates.
        """
        if self.leaves_out_candidates or not self.has_exact_ranks:
            return {}
        metrics = metrics_of(self.user_ranks(catalogue=True).rank)
        return {exact_name(name): value for name, value in metrics.items()}

    @cached_property
    def exact_validation(self) -> Mapping[str, float]:
        """The exact validation metrics; empty for a packed run, which has ranks of test items only."""
        table = self._table("ranks")
        if self.leaves_out_candidates or VALIDATION_IN_CATALOGUE not in table.column_names:
            return {}
        at = pc.equal(table["at"], self.round_rule).to_numpy()
        metrics = metrics_of(table[VALIDATION_IN_CATALOGUE].to_numpy()[at])
        return {exact_name(name): value for name, value in metrics.items()}

    @property
    def leaves_out_candidates(self) -> bool:
        """Whether its clients never sample candidates as negatives.

        Held-out items and candidates then differ from all other items, so exact metrics are unfair.
        """
        return bool(self.summary["protocol"]["negative_pool"] == UNEVEN_POOL)

    @cached_property
    def has_exact_ranks(self) -> bool:
        """Whether there are ranks among all items."""
        return IN_CATALOGUE in self._table("ranks").column_names

    def user_ranks(self, rule: str | None = None, *, catalogue: bool = False) -> UserRanks:
        """The rank of each user's test item among its candidates, or with `catalogue` among all items.

        The ranks are of the reported round, or of that of another `rule`.
        """
        table = self._table("ranks")
        if catalogue and IN_CATALOGUE not in table.column_names:
            raise ResultError(
                f"{self.folder}: its exact ranks were not kept. {self._trained_again(self.folder / SUMMARY)}"
            )
        at = pc.equal(table["at"], rule or self.round_rule).to_numpy()
        user = table["user"].to_numpy()[at].astype(np.int64)
        rank = table[IN_CATALOGUE if catalogue else "test_rank"].to_numpy()[at]
        order = np.argsort(user, kind="stable")
        return UserRanks(user[order], rank[order])

    @cached_property
    def curve(self) -> "pl.DataFrame":
        """One row per round: round, loss, validation_hr@10, test_ndcg@10 and so on."""
        return self._frame("curve")

    @cached_property
    def ranks(self) -> "pl.DataFrame":
        """One row per user and reported round (`at`): ranks among candidates and in the catalogue."""
        return self._frame("ranks")

    @cached_property
    def timing(self) -> "pl.DataFrame":
        """One row per round: seconds, clients, bytes."""
        return self._frame("timing")

    def columns(self, table: str) -> dict[str, NDArray[Any]]:
        """The columns of one of its tables, curve, timing or ranks, by name."""
        contents = self._table(table)
        return {name: contents[name].to_numpy() for name in contents.column_names}

    @cached_property
    def audit(self) -> Mapping[str, Any] | None:
        """The stored measurements of its model; None if the model itself must be measured."""
        path = self.folder / AUDIT_FILE
        try:
            return read_checked_json(path)
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ResultError(
                f"{path}: the file is damaged: {error}. Delete it and unpack it again."
            ) from error

    @cached_property
    def metrics(self) -> "pl.DataFrame":
        """One row per reported round (`at`) and part: round, whether the protocol reports it, metrics."""
        import polars as pl

        return pl.DataFrame(list(self._metric_rows()))

    @cached_property
    def settings_frame(self) -> "pl.DataFrame":
        """One row per setting: its value as text, and its source (paper, code, ours, user and so on)."""
        import polars as pl

        sources = self.summary.get("sources", {})
        return pl.DataFrame(
            {
                "setting": list(self.settings),
                "value": [setting_text(value) for value in self.settings.values()],
                "source": [sources.get(name) for name in self.settings],
            },
            schema={"setting": pl.String, "value": pl.String, "source": pl.String},
        )

    @cached_property
    def tensors(self) -> Mapping[str, Tensor]:
        """The tensors of the state after the last round and of further records, by name."""
        path = self.folder / STATE
        if not self.has_model and SCORE_SOURCE not in self.summary:
            raise ResultError(f"{path}: {self._why_no_model()} Train it again: {self.command_with_model}")
        if not path.is_file():
            raise ResultError(f"{path}: the model of this run was not kept. {self._trained_again(path)}")
        return load_tensors(path, content=self._noted(STATE), rebuild=self._rebuild(path))[0]

    @cached_property
    def split(self) -> Split:
        """The split it was trained on."""
        folder = self._data / self.protocol
        if not (folder / "split.parquet").is_file():
            raise ResultError(
                f"{self.folder}: its split is not in {folder}. Give the dataset's folder, with its splits, "
                f"for example results/data/{self.summary['dataset']}: --data FOLDER, in Python data=."
            )
        split = split_in(folder)
        if split.content_hash() != self.summary["split"]:
            raise ResultError(
                f"{self.folder}: was trained on another split than the one in {folder}. Train it again."
            )
        return split

    @cached_property
    def clients(self) -> Clients:
        """The clients of its split."""
        return Clients.of_split(self.split, torch.device(self.device))

    @cached_property
    def learner(self) -> Learner:
        """Its model after the last round."""
        summary = self.summary
        if self.diverged is not None:
            raise ResultError(
                f"{self.folder}: its training diverged in round {self.diverged}, so it has no model to "
                "inspect."
            )
        tensors = self.tensors
        learner = make_learner(
            summary["method"],
            self.clients,
            trained_settings(summary, self._data),
            summary["seed"],
            engine_named("loop", 0),
        )
        learner.load(tensors)
        return learner

    def client_index(self, users: Sequence[int] | NDArray[np.int64]) -> Tensor:
        """The index among `clients` of each of `users`, given by their numbers in the dataset."""
        known = self.clients.user
        wanted = torch.as_tensor(np.asarray(users, dtype=np.int64), device=known.device)
        # Clients are in the order of their numbers in the dataset.
        index = torch.searchsorted(known, wanted).clamp(max=len(known) - 1)
        strangers = wanted[known[index] != wanted].tolist()
        if strangers:
            raise ResultError(f"{self.folder}: there is no user {strangers[0]} in its split.")
        return index

    def scores(
        self, users: Sequence[object], items: ArrayLike, *, ids: "IdKind" = "fedrec"
    ) -> NDArray[np.float64]:
        """The scores by which its protocol ranks items after the last round: (users, items).

        `items` is one list for all users, or one row for each user. `ids` is the kind of both: fedrec's
        numbers in the dataset, or the ids of the dataset's own file (`original`).
        """
        learner, known = self.learner, self._ids(ids)
        index, wanted = numbers_of_ids(users, "user", known), numbers_of_ids(items, "item", known)
        if index.ndim > 1 or wanted.shape[:-1] not in ((), index.shape):
            raise ResultError(
                f"items: their shape is {wanted.shape}, but users have the shape {index.shape}. Give one "
                "list of items for all users, or one row for each user."
            )
        return self._scores(learner, index, wanted)

    def recommend(self, user: object, k: int = 10, *, ids: "IdKind" = "original") -> "pl.DataFrame":
        """The `k` items with the highest scores for a user, best first, without the user's training items.

        Columns are item and score. `ids` is the kind of user and items: ids of the dataset's own file, or
        fedrec's numbers (`fedrec`). The model is that after the last round.
        """
        import polars as pl

        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise ConfigurationError(f"k={k!r}: is not a number of items. Give 1 or more.")
        learner, known = self.learner, self._ids(ids)
        number = numbers_of_ids([user], "user", known)
        users, rated = self.split.pairs_of(TRAIN)
        unseen = np.setdiff1d(np.arange(self.split.items), rated[users == number[0]])
        scores = self._scores(learner, number, unseen)[0]
        best = np.argsort(-scores, kind="stable")[:k]
        chosen = unseen[best]
        items = chosen if ids == "fedrec" else [known.item[index] for index in chosen]
        return pl.DataFrame({"item": items, "score": scores[best]})

    def _ids(self, kind: str) -> Ids:
        return Ids.of(kind, self._data, self.split)

    def _scores(
        self, learner: Learner, users: NDArray[np.int64], items: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Scores by numbers in the dataset: (users, items)."""
        index = self.client_index(users)
        rows = torch.as_tensor(items, device=index.device).expand(len(index), -1)
        with torch.no_grad():
            scores = protocol_scores(learner, self.clients, index, rows)
        return scores.double().cpu().numpy()

    def plot(self, metrics: Sequence[str] = ("validation_ndcg@10", "test_ndcg@10")) -> "Figure":
        """Plot columns of its `curve` over rounds, as a figure of matplotlib."""
        from fedrec.runs.plotting import curve_figure

        return curve_figure(self, metrics)

    def result_rows(self) -> Iterator[dict[str, Any]]:
        """Yield one row per reported round, with everything but settings, for `fedrec.results`."""
        summary, measured = self.summary, self.summary.get("measured", {})
        parts: dict[str, dict[str, Any]] = {}
        for row in self._metric_rows():
            about = {key: row.pop(key) for key in ("at", "round", "reported")}
            part = row.pop("part")
            parts.setdefault(about["at"], about).update({f"{part}_{name}": row[name] for name in row})
        for row in parts.values():
            yield {
                **{key: summary[key] for key in ("paper", "dataset")},
                "protocol": self.protocol,
                "method": summary["method"],
                "seed": summary["seed"],
                **row,
                "rounds": summary["settings"].get("rounds"),
                "diverged": self.diverged,
                "seconds": measured.get("seconds"),
                "seconds_per_round": measured.get("seconds_per_round"),
                "device": measured.get("device"),
                "split": summary["split"],
                "code": summary["code"],
                "folder": str(self.folder),
            }

    def _metric_rows(self) -> Iterator[dict[str, Any]]:
        for rule, parts in self.summary["metrics"].items():
            for part, values in parts.items():
                about = {"at": rule, "round": self.summary["rounds"][rule]}
                yield {**about, "reported": rule == self.round_rule, "part": part, **values}

    def _table(self, name: str) -> pa.Table:
        checksum = self._noted(_file(name))
        path = self.folder / _file(name)
        return read_table(path, content=checksum, rebuild=self._rebuild(path))[0]

    def _noted(self, file: str) -> str | None:
        """The checksum of another file in `run.json`; None if a record has none."""
        checksum: str | None = self.summary.get("files", {}).get(file)
        return checksum

    def _frame(self, name: str) -> "pl.DataFrame":
        import polars as pl

        frame = pl.from_arrow(self._table(name))
        assert isinstance(frame, pl.DataFrame), "a table of several columns is a frame"
        return frame

    @property
    def _data(self) -> Path:
        """The folder of its dataset's splits: `data`, else the one in run.json, else below the results."""
        if self.data is not None:
            return self.data
        recorded = Path(os.path.normpath(self.folder / str(self.summary.get("data", ""))))
        if "data" in self.summary and recorded.is_dir():
            return recorded
        return self._results / "data" / str(self.summary["dataset"])

    @property
    def _results(self) -> Path:
        parents = self.folder.absolute().parents
        return parents[min(RUN_DEPTH, len(parents)) - 1]


def without_brackets(folder: Path) -> str:
    """Advice on the spelling of a folder that was typed with a method's brackets; empty without brackets."""
    if "[" not in str(folder):
        return ""
    try:
        spelled = Path(*(folder_name(part) if "[" in part else part for part in folder.parts))
    except ConfigurationError:
        spelled = Path("runs/.../fedmf@rounds-20/seed0")
    return f"Write the method in folders without brackets: {spelled}"


def megabytes(size: int) -> str:
    """A size in bytes as text: `120 MB`."""
    return f"{size / _MB:,.0f} MB"


def _file(table: str) -> str:
    return f"{table}.parquet"
