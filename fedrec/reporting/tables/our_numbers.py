"""Our number for each printed one, from the csv of the table or figure that shows it, and from its runs.

The runs behind a number give its tolerance, the origin of its settings, and the numbers of the trials of the
searches that found settings.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedrec.audit.agreement import LEAST_TOLERANCE, tolerance
from fedrec.audit.printed_contradictions import CHANGES
from fedrec.config.method_entries import SEARCHED
from fedrec.config.methods import resolve
from fedrec.config.papers import Artefact, artefacts_of
from fedrec.config.printed import PrintedKey, printed_numbers
from fedrec.config.protocol import short_name
from fedrec.config.tuning import STATED
from fedrec.evaluation.metrics import METRICS, per_user
from fedrec.plan.cause_runs import line_folder
from fedrec.plan.project import Project
from fedrec.plan.runs import DIVERGED
from fedrec.plan.targets import files_of
from fedrec.reporting.artefact_runs import artefact_runs_of
from fedrec.reporting.diverged import rounds_text
from fedrec.reporting.tables.inactive_users import inactive_users
from fedrec.runs.record import RunRecord, UserRanks

Basis = Literal["checked", "searched", "neither"]
BASES: tuple[Basis, ...] = ("checked", "searched", "neither")
"""Origins of settings: at least one fitted to print, or at least one searched, or neither."""
_CHECKED = "checked"
_COLUMNS = {
    **{name: name for name in ("users", "items", "interactions", "sparsity", "share_of_users")},
    **{name: name for name in ("space_client", "space_server", "parameters", "epochs", "time_total")},
    "seconds": "time_per_round",
    "rate": "learning_rate",
}
"""Columns of tables without metrics, by the names that the printed numbers use."""
_SHARES = {
    "share_above_0.1": "share of |C| entries above 1e-1",
    "share_above_0.01": "share of |C| entries above 1e-2",
}
"""Columns of the heat maps of tables, of which papers print those of the shared table, in percent."""
_OF_TRAINING = ("epochs", "time_total")
"""Columns whose number is meaningless for a run that diverged."""


@dataclass(frozen=True)
class Tried:
    """The number of a run that may explain a difference, and how far it may be from print."""

    method: str
    value: float
    tolerance: float

    def reaches(self, printed: float) -> bool:
        """Whether it is as near to print as an agreeing number."""
        return abs(self.value - printed) <= self.tolerance


@dataclass(frozen=True)
class Ours:
    """Our numbers under the published and the clean protocol, and the runs behind them."""

    published: float | None = None
    clean: float | None = None
    runs: tuple[str, ...] = ()
    diverged: Mapping[str, str] = field(default_factory=dict)
    """The rounds in which runs diverged, as text, by `published` or `clean`; empty if none did."""
    tolerance: float = LEAST_TOLERANCE
    """The largest difference from print at which a metric agrees."""
    searched: tuple[str, ...] = ()
    """Searched settings behind a metric: the paper does not state them."""
    tried: tuple[Tried, ...] = ()
    """The numbers of the trials of these searches."""
    basis: Basis = "neither"
    is_copied: bool = False
    """Whether it is a setting that was copied from print."""


def ours_in(
    project: Project, names: Iterable[str], tried: Mapping[str, Sequence[str]]
) -> dict[PrintedKey, Ours]:
    """Our number for each printed one that a built table or figure of a paper shows.

    `tried` has the folders of trials, by the `line_of` of the runs that they are behind.
    """
    ours: dict[PrintedKey, Ours] = {}
    built, behind = set(names), _RunsBehind(project, tried)
    for artefact in artefacts_of(project.papers, project.papers):
        if artefact.target not in built:
            continue
        path = project.results / files_of(artefact.form, artefact.target)[0]
        with path.open(encoding="utf-8", newline="") as stream:
            for number in _numbers(project, artefact, csv.DictReader(stream)):
                ours[number.key] = _joined(ours.get(number.key, Ours()), number, behind)
    return ours


def tried_run(record: RunRecord, metric: str) -> Tried | None:
    """The metric of a finished run; None if it diverged, since its number is no result."""
    if record.diverged is not None:
        return None
    values = per_user(record.user_ranks().rank, metric)
    return Tried(record.id.method, record.metric(metric), tolerance(values))


@dataclass(frozen=True)
class _OurNumber:
    """A number of a csv, if there is one, with the columns that describe it."""

    key: PrintedKey
    protocol: str
    value: float | None
    runs: tuple[str, ...]
    diverged: str
    artefact: Artefact
    is_inactive: bool
    is_copied: bool

    @property
    def is_of_all(self) -> bool:
        """Whether it covers all users and ranks among candidates, as the metrics of a run's record do."""
        return not self.is_inactive and not self.is_of_catalogue

    @property
    def is_of_catalogue(self) -> bool:
        """Whether it is an exact metric."""
        return self.artefact.has_exact_ranks


class _RunsBehind:
    """The facts of the runs behind numbers; each file is read once."""

    def __init__(self, project: Project, tried: Mapping[str, Sequence[str]]) -> None:
        self._project = project
        self._tried = tried
        self._records: dict[str, RunRecord] = {}
        self._ranks: dict[tuple[str, bool], UserRanks] = {}
        self._inactive: dict[str, Mapping[str, Sequence[int]]] = {}

    def tolerance(self, number: _OurNumber) -> float:
        """The tolerance of a metric, from each user's part in the mean over the runs."""
        numbered = [folder for folder in number.runs if self._record(folder).has_numbers()]
        ranks = [self._ranks_of(folder, catalogue=number.is_of_catalogue) for folder in numbered]
        chosen = [per_user(one.rank[self._of_users(number, one)], number.key[5]) for one in ranks]
        return tolerance(np.mean(chosen, axis=0))

    def searched(self, number: _OurNumber) -> tuple[str, ...]:
        """The settings of its runs that searches found."""
        return self._settings(number, SEARCHED)

    def basis(self, number: _OurNumber) -> Basis:
        """The origin of the settings of its runs."""
        if self._settings(number, _CHECKED):
            return "checked"
        return "searched" if self.searched(number) else "neither"

    def tried(self, number: _OurNumber) -> tuple[Tried, ...]:
        """The numbers of the trials behind it; empty for a metric that trials do not store."""
        if not number.is_of_all:
            return ()
        lines = dict.fromkeys(line_folder(folder) for folder in number.runs)
        folders = [folder for line in lines for folder in self._tried.get(line, ())]
        trials = (tried_run(self._record(folder), number.key[5]) for folder in folders)
        return tuple(trial for trial in trials if trial is not None)

    def _settings(self, number: _OurNumber, source: str) -> tuple[str, ...]:
        """The settings of its runs that come from a source."""
        settings: dict[str, None] = {}
        for line in {line_folder(folder): folder for folder in number.runs}.values():
            run = self._record(line).id
            _, sources, _ = resolve(self._project.methods, run.method, run.paper, run.dataset)
            settings |= dict.fromkeys(name for name, text in sources.items() if text.startswith(source))
        return tuple(settings)

    def _of_users(self, number: _OurNumber, ranks: UserRanks) -> NDArray[np.bool_]:
        """Which users of ranks it is about."""
        if not number.is_inactive:
            return np.ones(len(ranks.user), dtype=np.bool_)
        target = number.artefact.target
        if target not in self._inactive:
            self._inactive[target] = inactive_users(self._project.results / "data", number.artefact)
        return np.isin(ranks.user, self._inactive[target][number.key[2]])

    def _record(self, folder: str) -> RunRecord:
        if folder not in self._records:
            self._records[folder] = RunRecord(self._project.results / folder)
        return self._records[folder]

    def _ranks_of(self, folder: str, *, catalogue: bool) -> UserRanks:
        if (folder, catalogue) not in self._ranks:
            self._ranks[folder, catalogue] = self._record(folder).user_ranks(catalogue=catalogue)
        return self._ranks[folder, catalogue]


def _joined(before: Ours, number: _OurNumber, behind: _RunsBehind) -> Ours:
    """The facts about our number, extended by the number of one more protocol."""
    joined = replace(
        before,
        runs=tuple(dict.fromkeys((*before.runs, *number.runs))),
        diverged={**before.diverged, **({number.protocol: number.diverged} if number.diverged else {})},
        is_copied=number.is_copied,
    )
    if number.protocol == "clean":
        return replace(joined, clean=number.value)
    joined = replace(joined, published=number.value)
    if number.key[5] not in METRICS:
        return joined
    return replace(
        joined,
        tolerance=LEAST_TOLERANCE if number.value is None else behind.tolerance(number),
        searched=behind.searched(number),
        tried=behind.tried(number),
        basis=behind.basis(number),
    )


def _numbers(project: Project, artefact: Artefact, rows: Iterable[Mapping[str, str]]) -> Iterator[_OurNumber]:
    """Every number of a csv that stands beside a printed one."""
    subject = artefact_runs_of(project.target(artefact.target), project)
    lines = {subject.label(line): line for line in artefact.lines if line.run or line.label}
    for row in rows:
        table = artefact.printed or row.get("printed_in", "").partition(", ")[2]
        protocol = short_name(row.get("protocol") or "published")
        line = lines.get(row.get("line") or row.get("method") or "")
        for metric, factor, text in _values(row):
            key = _key_of(artefact.paper, table, row["dataset"], line.printed if line else None, metric)
            diverged = _divergence(row, metric)
            if key is not None and (text or diverged) and protocol in ("published", "clean"):
                yield _OurNumber(
                    key,
                    protocol,
                    factor * float(text) if text else None,
                    tuple(row.get("runs", "").split()),
                    diverged,
                    artefact,
                    is_inactive="inactive" in ((line.label if line else None) or ""),
                    is_copied=metric == "learning_rate" and row["source"] == STATED,
                )


def _divergence(row: Mapping[str, str], metric: str) -> str:
    """The rounds in which runs behind a number diverged, as text; empty if none did, or it is irrelevant."""
    diverged = row.get(DIVERGED, "").split()
    if not diverged or ("metric" not in row and metric not in _OF_TRAINING):
        return ""
    seeds = row.get("seeds", "").split()
    # A gain is computed from other rows, and has no seeds.
    first = min(diverged, key=lambda one: int(one.partition(":")[2]))
    return rounds_text(diverged, len(seeds)) if seeds else rounds_text([first], 1)


def _values(row: Mapping[str, str]) -> Iterator[tuple[str, float, str]]:
    """The numbers of a row of a csv: the name in print, the factor, and the number."""
    if "metric" in row:
        yield row["metric"], 1.0, row.get("value", "")
        for ending, sign in CHANGES:
            yield f"{row['metric']} {ending}", sign, row.get("value", "")
        return
    for column, metric in _COLUMNS.items():
        if column in row:
            # A table without protocols, such as statistics, has its printed numbers beside ours.
            yield metric, 1.0, row[column]
    for column, metric in _SHARES.items():
        if row.get("table") == "shared":
            yield metric, 100.0, row.get(column, "")


def _key_of(
    paper: str, table: str, dataset: str, line: tuple[str, str] | None, metric: str
) -> PrintedKey | None:
    """The key of the printed number of a cell; None if there is none, or more than one."""
    if line is not None:
        key = (paper, table, dataset, *line, metric.lower())
        return key if key in printed_numbers() else None
    keys = _by_cell().get((paper, table, dataset, metric.lower()), ())
    return keys[0] if len(keys) == 1 else None


@cache
def _by_cell() -> dict[tuple[str, str, str, str], list[PrintedKey]]:
    cells: dict[tuple[str, str, str, str], list[PrintedKey]] = {}
    for key in printed_numbers():
        cells.setdefault((*key[:3], key[5]), []).append(key)
    return cells
