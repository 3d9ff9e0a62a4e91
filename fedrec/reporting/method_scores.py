"""Scores of methods on a dataset under a protocol: HR@10 with its interval, chance, popularity, rounds.

One row per method and protocol, over seeds. The slope chart draws these rows and writes them as its csv. The
headline and the comparison table show the same numbers.
"""

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrec.audit.differences import EXACT_METRIC, REFERENCE
from fedrec.audit.significance import bootstrap_interval
from fedrec.config.methods import Methods, resolve, title
from fedrec.config.names import parse
from fedrec.config.protocol import short_name
from fedrec.errors import ResultError
from fedrec.evaluation.metrics import per_user
from fedrec.plan.runs import DIVERGED
from fedrec.reporting.built_files import reading_built
from fedrec.reporting.exact import exact_means
from fedrec.runs.exact import sampled_name
from fedrec.runs.method_kinds import METHOD_KINDS, MethodKind, kind_of
from fedrec.runs.provenance_columns import divergence_columns, folders_of
from fedrec.runs.record import RunRecord

METRIC = "hr@10"
PUBLISHED, CLEAN = "published", "clean"
KIND_TITLES: Mapping[MethodKind, str] = {
    "personalised": "clients keep an item table of their own",
    "federated": "only the server's item table",
    "centralised": "centralised",
    "reference": "reference",
}
"""Titles of the kinds of methods in captions and legends ..."""
KIND_LABELS: Mapping[MethodKind, str] = {
    "personalised": "own tables",
    "federated": "server's table",
    "centralised": "centralised",
    "reference": "reference",
}
"""... and in a column."""
_CUTOFF = 10


@dataclass(frozen=True)
class MethodScore:
    """A method on a dataset under a protocol."""

    dataset: str
    protocol: str
    """Short: `published`, `clean`."""
    method: str
    title: str
    kind: MethodKind
    value: float
    """HR@10 of the test items at the reported round, mean over seeds."""
    low: float
    high: float
    """95 % bootstrap interval of `value` over users."""
    users: int
    seeds: int
    chance: float | None
    """HR@10 of a random ranking; None if the run does not record the number of candidates."""
    above: float | None
    """`value` minus that of popularity on the same users; None without popularity."""
    above_low: float | None
    above_high: float | None
    rounds: int
    own_rounds: int
    """The rounds in the settings of the run's paper."""
    paper: str
    runs: str
    """Folders of its runs below the results, separated by blanks."""
    diverged: str = ""
    """Seed and round of each of its runs that diverged, separated by blanks: `0:7`."""
    exact: float | None = None
    """Exact HR@10, as `value`; None if a run lacks exact ranks."""
    exact_low: float | None = None
    exact_high: float | None = None

    @property
    def backbone(self) -> str:
        """The method without plug-ins and settings."""
        return parse(self.method).name


def method_scores(records: Sequence[RunRecord], methods: Methods) -> list[MethodScore]:
    """The method scores of finished runs, given `config/methods.yaml`; in the order of the runs.

    A method has none if all its runs diverged before they had a number.
    """
    every = groups_over_seeds(records)
    groups = {key: group for key, group in every.items() if any(run.has_numbers() for run in group)}
    if records and not groups:
        raise ResultError(
            f"{records[0].folder}: diverged before there was a number, as every other run that is compared "
            "with it did. Lower their learning rates."
        )
    hits = {key: hits_of(group) for key, group in groups.items()}
    popular = {key[:2]: values for key, values in hits.items() if parse(key[3]).name == REFERENCE}
    titles = titles_of(records, methods)
    return [
        _method_score(group, methods, titles[group[0].id.method], hits[key], popular.get(key[:2]))
        for key, group in groups.items()
    ]


def groups_over_seeds(records: Sequence[RunRecord]) -> dict[tuple[str, str, str, str], list[RunRecord]]:
    """Runs that differ in the seed alone, by dataset, protocol, paper and method."""
    groups: dict[tuple[str, str, str, str], list[RunRecord]] = {}
    for record in records:
        key = record.id.dataset, record.protocol, record.id.paper, record.id.method
        groups.setdefault(key, []).append(record)
    return groups


def titles_of(records: Sequence[RunRecord], methods: Methods) -> dict[str, str]:
    """The title of each method; it names the rounds only if they differ from those of most methods."""
    changed = [run.settings["rounds"] for run in records if run.summary["sources"]["rounds"] == "user"]
    usual = [rounds for rounds, _ in Counter(changed).most_common(1)]
    return {
        run.id.method: title(methods, run.id.method, ["rounds"] if run.settings["rounds"] in usual else [])
        for run in records
    }


def hits_of(group: Sequence[RunRecord], metric: str = METRIC) -> NDArray[np.float64]:
    """Each user's part in a metric at the reported round, mean over runs of different seeds.

    Users are sorted by number. Runs that diverged before they had a number are left out.
    """
    numbered = [record for record in group if record.has_numbers()]
    ranks = [record.ranks_of(metric) for record in numbered]
    for record, user_ranks in zip(numbered, ranks, strict=True):
        if not np.array_equal(user_ranks.user, ranks[0].user):
            raise ResultError(
                f"{record.folder}: has other users than {numbered[0].folder}, so that no mean over seeds can "
                "be had. Train both on the same split."
            )
    of_users = [per_user(user_ranks.rank, sampled_name(metric)) for user_ranks in ranks]
    mean: NDArray[np.float64] = np.stack(of_users).mean(0)
    return mean


def own_rounds(record: RunRecord, methods: Methods) -> int:
    """The rounds in the settings of a run's paper, even if the run had others."""
    composition = parse(record.id.method)
    plain = replace(composition, changes=tuple(c for c in composition.changes if c[0] != "rounds"))
    settings, _, _ = resolve(methods, str(plain), record.id.paper, record.id.dataset)
    return int(settings["rounds"])


def read_method_scores(path: Path) -> list[MethodScore]:
    """The method scores in a csv of `rows_of`."""
    with reading_built(path), path.open(encoding="utf-8", newline="") as stream:
        return [_read(row) for row in csv.DictReader(stream)]


def rows_of(scores: Sequence[MethodScore]) -> list[dict[str, Any]]:
    """Method scores as rows of a csv, with a column of diverged runs if there are any."""
    rows = [asdict(score) for score in scores]
    if not any(score.diverged for score in scores):
        for row in rows:
            row.pop(DIVERGED)
    return rows


def under(scores: Sequence[MethodScore], protocol: str) -> dict[str, MethodScore]:
    """The method scores under a protocol, by method."""
    return {score.method: score for score in scores if score.protocol == protocol}


def _method_score(
    group: Sequence[RunRecord],
    methods: Methods,
    name: str,
    hits: NDArray[np.float64],
    popular: NDArray[np.float64] | None,
) -> MethodScore:
    first = group[0]
    low, high = bootstrap_interval(hits)
    above: tuple[float, ...] | None = None
    if popular is not None and len(popular) == len(hits):
        above = (float((hits - popular).mean()), *bootstrap_interval(hits - popular))
    candidates = first.summary["protocol"].get("candidates")
    exact = _exact(group)
    return MethodScore(
        dataset=first.id.dataset,
        protocol=short_name(first.protocol),
        method=first.id.method,
        title=name,
        kind=kind_of(methods, first.id.method, first.settings),
        value=float(np.mean([record.metric(METRIC) for record in group if record.has_numbers()])),
        low=low,
        high=high,
        users=len(hits),
        seeds=sum(record.has_numbers() for record in group),
        chance=None if candidates is None else min(1.0, _CUTOFF / (int(candidates) + 1)),
        above=None if above is None else above[0],
        above_low=None if above is None else above[1],
        above_high=None if above is None else above[2],
        rounds=int(first.settings["rounds"]),
        own_rounds=own_rounds(first, methods),
        paper=first.id.paper,
        runs=" ".join(folders_of(group)),
        diverged=" ".join(divergence_columns(group).get(DIVERGED, ())),
        exact=None if exact is None else exact[0],
        exact_low=None if exact is None else exact[1],
        exact_high=None if exact is None else exact[2],
    )


def _exact(group: Sequence[RunRecord]) -> tuple[float, ...] | None:
    """Exact HR@10 over seeds and its interval over users; None if a run lacks exact ranks."""
    if not exact_means(group):
        return None
    hits = hits_of(group, EXACT_METRIC)
    return (float(hits.mean()), *bootstrap_interval(hits))


def _read(row: Mapping[str, str]) -> MethodScore:
    def number(name: str) -> float | None:
        return float(row[name]) if row.get(name) else None

    (kind,) = (kind for kind in METHOD_KINDS if kind == row["kind"])
    return MethodScore(
        dataset=row["dataset"],
        protocol=row["protocol"],
        method=row["method"],
        title=row["title"],
        kind=kind,
        value=float(row["value"]),
        low=float(row["low"]),
        high=float(row["high"]),
        users=int(row["users"]),
        seeds=int(row["seeds"]),
        chance=number("chance"),
        above=number("above"),
        above_low=number("above_low"),
        above_high=number("above_high"),
        rounds=int(row["rounds"]),
        own_rounds=int(row["own_rounds"]),
        paper=row["paper"],
        runs=row["runs"],
        diverged=row.get(DIVERGED, ""),
        exact=number("exact"),
        exact_low=number("exact_low"),
        exact_high=number("exact_high"),
    )
