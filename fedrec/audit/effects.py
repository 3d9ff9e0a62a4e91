"""The effect of a claim: the difference of two lines in a metric of the test items, from finished runs.

Among several lines that a claim is compared with, the rival is the best on validation, at the round that
each run reports: no number of test chooses it. Users and seeds are paired: a difference is each user's own,
under each seed.

A line that diverged has the numbers of the round its protocol reports, of those before; if it has none, the
effect is one without it.
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
NOT_KEPT = "exact ranks are not kept"
UNEVEN = "exact ranks favour held-out items and candidates where clients never draw them"
"""Why a run has no exact ranks to judge by."""


@dataclass(frozen=True)
class Case:
    """A claim on one dataset in one metric, and the runs of its lines."""

    claim: Claim
    artefact: Artefact
    dataset: str
    metric: str
    runs: Mapping[tuple[str, str, str], Sequence[RunId]]
    """By line, dataset and the condition's key."""

    def lines(self, condition: Condition) -> dict[str, Sequence[RunId]]:
        """The runs of each line under a condition, one per seed, whether there are any or not."""
        return {name: self.runs.get((name, self.dataset, condition.key), ()) for name in self.claim.lines}

    def popularity(self, condition: Condition) -> Sequence[RunId]:
        """The run of popularity under a condition, whether there is one or not; of most claims none."""
        return self.runs.get((POPULARITY, self.dataset, condition.key), ())


@dataclass(frozen=True)
class Compared:
    """Two lines of a claim under one condition."""

    rival: str
    """The line that the claim's own is compared with."""
    runs: tuple[RunId, ...]
    """Runs of the claim's own line, one per seed."""
    runs_against: tuple[RunId, ...]
    """Runs of the rival, with the same seeds."""
    not_run: tuple[str, ...] = ()
    """Lines it should be compared with, and no run of which is there."""

    @property
    def seeds(self) -> list[int]:
        """Those that both have."""
        return [run.seed for run in self.runs]


@dataclass(frozen=True)
class Effect:
    """A difference between two lines, in one metric under one condition."""

    value: float
    low: float
    high: float
    """The interval of the value, over users and seeds."""
    least: float
    """The least effect for its claim: 0, or minus the loss that is allowed."""
    p: float
    """Two-sided, of the hypothesis that the effect is `least`."""
    base: float
    """The metric of the rival."""
    users: int
    differ: int
    """The users whose part in the metric differs between both lines under any seed."""
    hits: float
    """The users that the rival hits, in the mean of seeds."""
    compared: Compared


@dataclass(frozen=True)
class Divergence:
    """A line of a claim that diverged under a condition."""

    line: str
    key: str
    """The condition's."""
    rounds: tuple[str, ...]
    """Seed and round of each run that did, as in `0:7`."""
    seeds: int
    """How many runs there are of it."""


@dataclass(frozen=True)
class Evidence:
    """The finished runs that judge claims, and which runs those should be."""

    results: Path
    """Where runs are."""
    methods: Methods
    seeds: Sequence[int]
    rounds: int | None
    """That runs train for at most; None for each paper's own number."""
    unavailable: Mapping[str, str]
    """Why a dataset, or the split of one (`dataset/protocol`), is not available."""
    runs: Container[RunId]
    """The finished runs to judge by."""
    training: Path | None = None
    """Where a run that is lacking would be trained. If None, where runs are."""
    conditions: Sequence[Condition] = CONDITIONS
    """Those to judge under."""
    _ranks: dict[tuple[RunId, bool], UserRanks | None] = field(
        default_factory=dict, repr=False, compare=False
    )
    _records: dict[RunId, RunRecord | None] = field(default_factory=dict, repr=False, compare=False)

    def record(self, run: RunId) -> RunRecord | None:
        """A run to judge by; None for any other."""
        if run not in self._records:
            self._records[run] = RunRecord(self.results / run.folder) if run in self.runs else None
        return self._records[run]

    def numbered(self, run: RunId) -> RunRecord | None:
        """A run to judge by that has numbers; None for any other, and where it diverged before any."""
        record = self.record(run)
        return record if record is not None and record.has_numbers() else None

    def ranks(self, run: RunId, *, catalogue: bool) -> UserRanks | None:
        """The ranks of a run at its reported round; None where it has no numbers, or they are not kept."""
        key = run, catalogue
        if key not in self._ranks:
            record = self.numbered(run)
            is_there = record is not None and not (catalogue and self.lacks_exact(run))
            self._ranks[key] = record.user_ranks(catalogue=catalogue) if record and is_there else None
        return self._ranks[key]

    def lacks_exact(self, run: RunId) -> str:
        """Why a run that is there has no exact ranks to judge by; empty where it has."""
        record = self.record(run)
        assert record is not None, "asked of a run that is there"
        if record.leaves_out_candidates:
            return UNEVEN
        return "" if record.has_exact_ranks else NOT_KEPT

    def values(self, runs: Sequence[RunId], metric: str) -> NDArray[np.float64] | None:
        """The part of each user in a metric, in each run: runs x users.

        None where there are no runs, or the ranks of one are not kept. The runs are of one dataset under one
        protocol.
        """
        ranks = [(run, self.ranks(run, catalogue=is_exact(metric))) for run in runs]
        kept = [(run, of_users) for run, of_users in ranks if of_users is not None]
        if not kept or len(kept) < len(runs):
            return None
        _check_users(kept)
        return np.stack([per_user(of_users.rank, sampled_name(metric)) for _, of_users in kept])


def lines_of(case: Case, condition: Condition, evidence: Evidence) -> dict[str, Sequence[RunId]]:
    """The runs of each line under a condition, one per seed, whether there are any or not.

    Tuned settings compete with the paper's own: a line that has runs with both has those that are better on
    validation, over the seeds that both have. A claim that something costs little is about one and the same
    settings: there the line without it decides.
    """
    asked = case.lines(condition)
    if not condition.tuned:
        return asked
    untuned = next(one for one in CONDITIONS if one.protocol == condition.protocol and not one.tuned)
    stated = case.lines(untuned)
    better = {name for name in asked if _is_better(stated[name], asked[name], case.metric, evidence)}
    if case.claim.kind == COSTS_LITTLE:
        better = {*asked} if better & {*case.claim.over} else set()
    return {name: stated[name] if name in better else tuned for name, tuned in asked.items()}


def _is_better(runs: Sequence[RunId], than: Sequence[RunId], metric: str, evidence: Evidence) -> bool:
    """Whether runs are better on validation than others, over the seeds that both have numbers of."""
    seeds, others = ({run.seed for run in group if evidence.numbered(run)} for group in (runs, than))
    both = seeds & others
    if not both:
        return False
    reached, needed = (
        _on_validation([run for run in group if run.seed in both], metric, evidence) for group in (runs, than)
    )
    return reached > needed


def compared_lines(case: Case, condition: Condition, evidence: Evidence) -> Compared | None:
    """The lines that are compared under a condition; None where the claim's line or all rivals lack numbers.

    They are of the seeds that every line has numbers of.
    """
    claim, asked = case.claim, lines_of(case, condition, evidence)
    groups = _of_whole_seeds(_with_numbers(claim, asked, evidence), evidence)
    if not any(groups.values()):
        return None
    rival = max(
        (name for name in claim.over if name in groups),
        key=lambda name: _on_validation(groups[name], case.metric, evidence),
    )
    not_run = (name for name in claim.over if not any(map(evidence.record, asked[name])))
    return Compared(rival, tuple(groups[claim.line]), tuple(groups[rival]), tuple(not_run))


def effect_of(compared: Compared, metric: str, may_lose: float, evidence: Evidence) -> Effect | None:
    """The effect of what is compared; None where the ranks of its runs are not kept.

    `may_lose` is the share of the rival's metric that the claim allows to be lost.
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
    """The users that are hit, in the mean of runs, by the part of each user in a metric: runs x users."""
    return float((values > 0).sum(axis=1).mean())


def lines_that_diverged(case: Case, condition: Condition, evidence: Evidence) -> list[Divergence]:
    """The lines of a claim that diverged under a condition."""
    found = []
    for name, group in lines_of(case, condition, evidence).items():
        records = [record for run in group if (record := evidence.record(run)) is not None]
        if rounds := divergence_columns(records).get(DIVERGED):
            found.append(Divergence(name, condition.key, tuple(rounds), len(records)))
    return found


def lacks_runs(case: Case, condition: Condition, evidence: Evidence) -> bool:
    """Whether there is no seed that every line of a claim has a finished run of."""
    seeds = [
        {run.seed for run in group if evidence.record(run) is not None}
        for group in lines_of(case, condition, evidence).values()
    ]
    return not set.intersection(*seeds)


def _on_validation(runs: Sequence[RunId], metric: str, evidence: Evidence) -> float:
    """A metric on validation in the mean of runs, among candidates: no other is recorded of validation."""
    records = [record for run in runs if (record := evidence.numbered(run)) is not None]
    return float(np.mean([record.metric(sampled_name(metric), "validation") for record in records]))


def _with_numbers(
    claim: Claim, groups: Mapping[str, Sequence[RunId]], evidence: Evidence
) -> dict[str, Sequence[RunId]]:
    """The lines that are compared: all but rivals that were not run, or diverged before any number.

    None where no rival is left.
    """
    kept = {
        name: group
        for name, group in groups.items()
        if name == claim.line or any(evidence.numbered(run) is not None for run in group)
    }
    return kept if len(kept) > 1 else {}


def _of_whole_seeds(groups: Mapping[str, Sequence[RunId]], evidence: Evidence) -> dict[str, list[RunId]]:
    """The runs of the seeds that every line has numbers of: lines are compared seed by seed."""
    seeds = [{run.seed for run in group if evidence.numbered(run) is not None} for group in groups.values()]
    whole = set.intersection(*seeds) if seeds else set()
    return {name: [run for run in group if run.seed in whole] for name, group in groups.items()}


def _check_users(ranks: Sequence[tuple[RunId, UserRanks]]) -> None:
    """Refuse runs on different users: their differences could not be paired."""
    (first, expected), *others = ranks
    for run, of_users in others:
        if not np.array_equal(of_users.user, expected.user):
            raise ResultError(
                f"{run.folder}: its users are not those of {first.folder}, though dataset and protocol are "
                "the same. One of them is of an older split; delete that one and train it again."
            )
