"""The effect of a claim: the difference between two lines in a test metric, from finished runs.

If a claim names several rivals, the one that is best on validation at the reported round is compared; no test
number chooses it. Differences are paired by user and seed.

A line that diverged has the number of its reported round, before the divergence. A rival without a number is
left out.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedrec.audit.significance import interval_of, p_of, resampled_means
from fedrec.config.claims import COSTS_LITTLE, Claim
from fedrec.config.conditions import CONDITIONS, Condition
from fedrec.config.methods import Methods
from fedrec.config.papers import Artefact
from fedrec.errors import ResultError
from fedrec.evaluation.metrics import per_user
from fedrec.plan.runs import DIVERGED, RunId
from fedrec.plan.selection import POPULARITY
from fedrec.runs.exact import is_exact, sampled_name
from fedrec.runs.provenance_columns import divergence_columns
from fedrec.runs.record import RunRecord, UserRanks

LEVEL = 0.95
"""The level of intervals."""
NOT_KEPT = "exact ranks are not stored"
UNEVEN = "exact ranks favour held-out items and candidates if clients never sample them"
"""Reasons why exact ranks of a run cannot be used."""


@dataclass(frozen=True)
class Case:
    """A claim on one dataset in one metric, and the runs of its lines."""

    claim: Claim
    artefact: Artefact
    dataset: str
    metric: str
    runs: Mapping[tuple[str, str, str], Sequence[RunId]]
    """By line, dataset and condition key."""

    def lines(self, condition: Condition) -> dict[str, Sequence[RunId]]:
        """The planned runs of each line under a condition, one per seed, finished or not."""
        return {name: self.runs.get((name, self.dataset, condition.key), ()) for name in self.claim.lines}

    def popularity(self, condition: Condition) -> Sequence[RunId]:
        """The planned run of popularity under a condition, finished or not; None for most claims."""
        return self.runs.get((POPULARITY, self.dataset, condition.key), ())


@dataclass(frozen=True)
class Compared:
    """Two lines of a claim under one condition."""

    rival: str
    """The line that the claim's own line is compared with."""
    runs: tuple[RunId, ...]
    """Runs of the claim's own line, one per seed."""
    runs_against: tuple[RunId, ...]
    """Runs of the rival, with the same seeds."""
    not_run: tuple[str, ...] = ()
    """Rivals of the claim without any run."""

    @property
    def seeds(self) -> list[int]:
        """The seeds that both lines have."""
        return [run.seed for run in self.runs]


@dataclass(frozen=True)
class Effect:
    """A difference between two lines, in one metric under one condition."""

    value: float
    low: float
    high: float
    """The interval of the value, over users and seeds."""
    least: float
    """The bound that the effect must exceed: 0, or minus the allowed loss."""
    p: float
    """The two-sided p of the hypothesis that the effect is `least`."""
    base: float
    """The metric of the rival."""
    users: int
    differ: int
    """The number of users whose value differs between both lines under any seed."""
    hits: float
    """The number of users that the rival hits, mean over seeds."""
    compared: Compared


@dataclass(frozen=True)
class Divergence:
    """A line of a claim that diverged under a condition."""

    line: str
    key: str
    """The condition's."""
    rounds: tuple[str, ...]
    """Seed and round of each diverged run, as in `0:7`."""
    seeds: int
    """The number of runs of the line."""


@dataclass(frozen=True)
class Evidence:
    """The finished runs that judge claims, and the facts that name the planned ones."""

    results: Path
    """The folder of results with the runs."""
    methods: Methods
    seeds: Sequence[int]
    rounds: int | None
    """The most rounds of a run; None for each paper's own number."""
    unavailable: Mapping[str, str]
    """Why a dataset, or the split of one (`dataset/protocol`), is not available."""
    runs: Container[RunId]
    """The finished runs."""
    training: Path | None = None
    """The folder of results for missing runs; if None, `results`."""
    conditions: Sequence[Condition] = CONDITIONS
    """The conditions of verdicts."""
    _ranks: dict[tuple[RunId, bool], UserRanks | None] = field(
        default_factory=dict, repr=False, compare=False
    )
    _records: dict[RunId, RunRecord | None] = field(default_factory=dict, repr=False, compare=False)

    def record(self, run: RunId) -> RunRecord | None:
        """The record of a finished run; None for another run."""
        if run not in self._records:
            self._records[run] = RunRecord(self.results / run.folder) if run in self.runs else None
        return self._records[run]

    def numbered(self, run: RunId) -> RunRecord | None:
        """The record of a finished run with numbers; None if it is missing, or diverged before it had any."""
        record = self.record(run)
        return record if record is not None and record.has_numbers() else None

    def ranks(self, run: RunId, *, catalogue: bool) -> UserRanks | None:
        """The ranks of a run at its reported round; None if it has no numbers, or did not store the ranks."""
        key = run, catalogue
        if key not in self._ranks:
            record = self.numbered(run)
            is_there = record is not None and not (catalogue and self.lacks_exact(run))
            self._ranks[key] = record.user_ranks(catalogue=catalogue) if record and is_there else None
        return self._ranks[key]

    def lacks_exact(self, run: RunId) -> str:
        """The reason why a finished run has no usable exact ranks; empty if it has."""
        record = self.record(run)
        assert record is not None, "asked of a run that is there"
        if record.leaves_out_candidates:
            return UNEVEN
        return "" if record.has_exact_ranks else NOT_KEPT

    def values(self, runs: Sequence[RunId], metric: str) -> NDArray[np.float64] | None:
        """Each user's value of a metric in each run: `(runs, users)`.

        None without runs, or if one did not store ranks. The runs have one dataset and protocol.
        """
        ranks = [(run, self.ranks(run, catalogue=is_exact(metric))) for run in runs]
        with_ranks = [(run, of_users) for run, of_users in ranks if of_users is not None]
        if not with_ranks or len(with_ranks) < len(runs):
            return None
        _check_users(with_ranks)
        return np.stack([per_user(of_users.rank, sampled_name(metric)) for _, of_users in with_ranks])


def lines_of(case: Case, condition: Condition, evidence: Evidence) -> dict[str, Sequence[RunId]]:
    """The planned runs of each line under a condition, one per seed, finished or not.

    Tuned settings compete with the paper's own: a line with runs of both uses those that are better on
    validation, over their common seeds. A claim that something costs little needs equal settings in both
    lines: there the line without the cost decides.
    """
    planned = case.lines(condition)
    if not condition.tuned:
        return planned
    untuned = next(one for one in CONDITIONS if one.protocol == condition.protocol and not one.tuned)
    stated = case.lines(untuned)
    better = {name for name in planned if _is_better(stated[name], planned[name], case.metric, evidence)}
    if case.claim.kind == COSTS_LITTLE:
        better = {*planned} if better & {*case.claim.over} else set()
    return {name: stated[name] if name in better else tuned for name, tuned in planned.items()}


def _is_better(runs: Sequence[RunId], than: Sequence[RunId], metric: str, evidence: Evidence) -> bool:
    """Whether runs are better on validation than others, over the seeds for which both have numbers."""
    seeds, others = ({run.seed for run in group if evidence.numbered(run)} for group in (runs, than))
    both = seeds & others
    if not both:
        return False
    own_metric, needed = (
        _on_validation([run for run in group if run.seed in both], metric, evidence) for group in (runs, than)
    )
    return own_metric > needed


def compared_lines(case: Case, condition: Condition, evidence: Evidence) -> Compared | None:
    """Choose the compared lines under a condition; None if the claim's line or all rivals lack numbers.

    They use the seeds for which every line has numbers.
    """
    claim, planned = case.claim, lines_of(case, condition, evidence)
    groups = _of_whole_seeds(_with_numbers(claim, planned, evidence), evidence)
    if not any(groups.values()):
        return None
    rival = max(
        (name for name in claim.over if name in groups),
        key=lambda name: _on_validation(groups[name], case.metric, evidence),
    )
    not_run = (name for name in claim.over if not any(map(evidence.record, planned[name])))
    return Compared(rival, tuple(groups[claim.line]), tuple(groups[rival]), tuple(not_run))


def effect_of(compared: Compared, metric: str, may_lose: float, evidence: Evidence) -> Effect | None:
    """The effect between the compared lines; None if their runs did not store ranks.

    `may_lose` is the share of the rival's metric that the claim allows to lose.
    """
    both = evidence.values([*compared.runs, *compared.runs_against], metric)
    if both is None:
        return None
    own, others = np.split(both, 2)
    differences, base = own - others, float(others.mean())
    means, least = resampled_means(differences), -may_lose * base
    low, high = interval_of(means, LEVEL)
    return Effect(
        float(differences.mean()), low, high, least, p_of(means, least), base, differences.shape[1],
        int(differences.any(axis=0).sum()), hits_in(others), compared,
    )  # fmt: skip


def hits_in(values: NDArray[np.float64]) -> float:
    """The number of hit users, mean over runs, from values of a metric `(runs, users)`."""
    return float((values > 0).sum(axis=1).mean())


def lines_that_diverged(case: Case, condition: Condition, evidence: Evidence) -> list[Divergence]:
    """The lines of a claim that diverged under a condition."""
    divergences = []
    for name, group in lines_of(case, condition, evidence).items():
        records = [record for run in group if (record := evidence.record(run)) is not None]
        if rounds := divergence_columns(records).get(DIVERGED):
            divergences.append(Divergence(name, condition.key, tuple(rounds), len(records)))
    return divergences


def lacks_runs(case: Case, condition: Condition, evidence: Evidence) -> bool:
    """Whether no seed has a finished run of every line of a claim."""
    seeds = [
        {run.seed for run in group if evidence.record(run) is not None}
        for group in lines_of(case, condition, evidence).values()
    ]
    return not set.intersection(*seeds)


def _on_validation(runs: Sequence[RunId], metric: str, evidence: Evidence) -> float:
    """The sampled validation metric, mean over runs; exact ones are not recorded."""
    records = [record for run in runs if (record := evidence.numbered(run)) is not None]
    return float(np.mean([record.metric(sampled_name(metric), "validation") for record in records]))


def _with_numbers(
    claim: Claim, groups: Mapping[str, Sequence[RunId]], evidence: Evidence
) -> dict[str, Sequence[RunId]]:
    """The lines with numbers: all except rivals without runs, or that diverged before they had a number.

    None if no rival is left.
    """
    with_numbers = {
        name: group
        for name, group in groups.items()
        if name == claim.line or any(evidence.numbered(run) is not None for run in group)
    }
    return with_numbers if len(with_numbers) > 1 else {}


def _of_whole_seeds(groups: Mapping[str, Sequence[RunId]], evidence: Evidence) -> dict[str, list[RunId]]:
    """The runs of the seeds for which every line has numbers, since seeds are paired."""
    seeds = [{run.seed for run in group if evidence.numbered(run) is not None} for group in groups.values()]
    whole = set.intersection(*seeds) if seeds else set()
    return {name: [run for run in group if run.seed in whole] for name, group in groups.items()}


def _check_users(ranks: Sequence[tuple[RunId, UserRanks]]) -> None:
    """Refuse runs on different users, which cannot be paired."""
    (first, expected), *others = ranks
    for run, of_users in others:
        if not np.array_equal(of_users.user, expected.user):
            raise ResultError(
                f"{run.folder}: its users differ from those of {first.folder}, though dataset and protocol "
                "are the same. One run has an older split: delete it and train it again."
            )
