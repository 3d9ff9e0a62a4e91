"""Which of the papers' claims hold: the printed effect beside ours, published and clean.

An effect is a difference of two lines in one metric of the test items: of the line a claim is about, and of
the best of those it is compared with. Which is best is seen anew for every dataset, metric and protocol, by
the numbers in question, and the interval takes it as given. Users are paired: a difference is each user's
own, averaged over seeds first.

A line that diverged has the numbers of the round its protocol reports, of those before; if it has none, the
effect is one without it. It might have come to more, so that only what more could not change is said: a claim
whose own line diverged holds, or is left open; one whose rival diverged is reversed, or is left open. So is
one of whose rivals some were never run: it is compared with the others.
"""

import shlex
from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedrec.audit.significance import bootstrap_interval
from fedrec.config.claims import Claim, named_lines
from fedrec.config.methods import Methods
from fedrec.config.papers import BOTH, Artefact
from fedrec.config.printed import printed
from fedrec.config.protocol import full_name, short_name
from fedrec.errors import ResultError
from fedrec.evaluation.metrics import per_user
from fedrec.plan.runs import DIVERGED, SUMMARY, RunId
from fedrec.plan.selection import runs_by_line
from fedrec.runs.origins import divergence_columns
from fedrec.runs.record import RunRecord, UserRanks

JUDGED_BY = "hr@10"
"""The metric that decides a claim as a whole; other metrics have verdicts of their own beside it."""
LEVEL = 0.95
"""Of the intervals."""
SHARE = 0.5
"""How much of the printed effect there must be under the clean protocol for a claim to hold."""
SMALL = 0.05
"""The loss, as a share of the metric without what causes it, that is small whatever the paper printed."""
HOLDS, WEAKER, REVERSED, DIVERGES, UNTESTED = VERDICTS = (
    "holds",
    "weaker",
    "reversed",
    "diverges",
    "not testable here",
)
OPEN = (DIVERGES, UNTESTED)
"""Those that leave open what becomes of a claim."""
RULE = (
    "A claim to be better holds where the interval of the clean effect lies above 0 and the effect is at "
    f"least {SHARE:g} of the printed one (where one is printed), is reversed where the interval lies below "
    "0, and is weaker otherwise. A claim to cost little holds where the interval lies above minus the "
    "margin, is reversed where it lies below, and is weaker otherwise; the margin is the share that is lost "
    f"in print, or {SMALL:.0%}, whichever is more, of the metric without what costs. A claim over several "
    "lines some of which were not run is compared with the others, and may be said to be reversed alone."
)
"""The rule of `verdict_on` and `verdict_without`, for captions."""
DIVERGENCE_RULE = (
    "What diverged under the clean protocol might have come to more: where it is the line a claim is about, "
    "the claim may be said to hold, and where it is one that is compared with it, to be reversed; otherwise "
    "it is left open."
)
"""The same where runs diverged."""


@dataclass(frozen=True)
class Effect:
    """A difference between two lines, in one metric under one protocol, and its interval over users."""

    value: float
    low: float
    high: float
    rival: str
    """The line it is the difference to."""
    base: float
    """The metric of that line."""
    users: int
    runs: tuple[RunId, ...] = ()
    """Of the line the claim is about."""
    runs_against: tuple[RunId, ...] = ()
    """Of the line it is the difference to."""
    not_run: tuple[str, ...] = ()
    """Lines it should be compared with, and no run of which is there."""

    @property
    def seeds(self) -> list[int]:
        """Those that it is the mean of."""
        return sorted({run.seed for run in self.runs})


@dataclass(frozen=True)
class PrintedEffect:
    """A difference between two lines by the paper's own numbers."""

    value: float
    base: float
    """The metric of the line it is the difference to."""


@dataclass(frozen=True)
class Divergence:
    """A line of a claim that diverged under a protocol."""

    line: str
    protocol: str
    """Short: `published`, `clean`."""
    rounds: tuple[str, ...]
    """Seed and round of each run that did, as in `0:7`."""
    seeds: int
    """How many runs there are of it."""


@dataclass(frozen=True)
class Judgement:
    """What became of a claim on one dataset in one metric."""

    claim: Claim
    artefact: Artefact
    dataset: str
    metric: str
    printed: float | None
    """The printed effect; None where the paper draws its numbers and does not print them."""
    published: Effect | None
    clean: Effect | None
    verdict: str
    published_verdict: str
    """By the same rule, of the effect under the paper's own protocol: whether the claim is found there."""
    reason: str
    """Why an effect of ours is missing; empty where none is."""
    command: str
    """Trains the runs that are missing and could be trained; empty where there are none."""
    runs: tuple[RunId, ...]
    """Every run that was looked at, of all lines the claim is about."""
    diverged: tuple[Divergence, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """What claims are judged by: finished runs, and which runs those should be."""

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
    _ranks: dict[tuple[RunId, bool], UserRanks | None] = field(
        default_factory=dict, repr=False, compare=False
    )
    _records: dict[RunId, RunRecord | None] = field(default_factory=dict, repr=False, compare=False)

    def record(self, run: RunId) -> RunRecord | None:
        """A run to judge by; None for any other."""
        if run not in self._records:
            self._records[run] = RunRecord(self.results / run.folder) if run in self.runs else None
        return self._records[run]

    def ranks(self, run: RunId, *, catalogue: bool) -> UserRanks | None:
        """The ranks of a run at its reported round; None where `record` has none, or it diverged before."""
        key, record = (run, catalogue), self.record(run)
        if key not in self._ranks:
            has_numbers = record is not None and record.has_numbers()
            self._ranks[key] = record.user_ranks(catalogue=catalogue) if record and has_numbers else None
        return self._ranks[key]


def judge(claims: Iterable[Claim], evidence: Evidence) -> list[Judgement]:
    """A verdict on every claim, for each dataset it is made on and each metric that is shown."""
    return [judgement for claim in claims for judgement in _judged(claim, evidence)]


def verdict_on(kind: str, expected: PrintedEffect | None, found: Effect | None) -> str:
    """The verdict on a claim of a kind, by its printed effect and ours where there are; see `RULE`."""
    if found is None:
        return UNTESTED
    if kind == "costs_little":
        lost = -expected.value / expected.base if expected is not None and expected.base else 0.0
        least = -max(lost, SMALL) * found.base
        large_enough = True
    else:
        least = 0.0
        large_enough = expected is None or found.value >= SHARE * expected.value
    if found.low > least and large_enough:
        return HOLDS
    return REVERSED if found.high < least else WEAKER


def verdict_without(verdict: str, not_run: Sequence[str]) -> str:
    """What is left of a verdict where rivals were `not_run`: they could only lower the effect."""
    return UNTESTED if not_run and verdict != REVERSED else verdict


def verdict_despite(verdict: str, claim: Claim, diverged: Collection[str], *, lacks_runs: bool) -> str:
    """What is left of a verdict where some lines of a claim `diverged`.

    See `DIVERGENCE_RULE`. A claim that cannot be tested because it `lacks_runs` of every seed stays so.
    """
    if not diverged or (verdict == UNTESTED and lacks_runs):
        return verdict
    own, others = claim.line in diverged, any(line != claim.line for line in diverged)
    stands = (verdict == HOLDS and not others) or (verdict == REVERSED and not own)
    return verdict if stands else DIVERGES


def verdict_counts(verdicts: Iterable[str]) -> str:
    """Verdicts on one claim over datasets in a few words: `holds 1, reversed 3`."""
    counts = Counter(verdicts)
    return ", ".join(f"{verdict} {counts[verdict]}" for verdict in VERDICTS if counts[verdict])


def printed_effect(claim: Claim, artefact: Artefact, dataset: str, metric: str) -> PrintedEffect | None:
    """The effect by the paper's own numbers, if it prints all of them."""
    lines = named_lines(artefact)
    numbers = [
        printed(claim.paper, artefact.printed, dataset, lines[name].printed, metric) for name in claim.lines
    ]
    values = [number.value for number in numbers if number is not None]
    if len(values) < len(claim.lines):
        return None
    base = max(values[1:])
    return PrintedEffect(values[0] - base, base)


def _judged(claim: Claim, evidence: Evidence) -> list[Judgement]:
    runs = {
        artefact.name: runs_by_line(
            claim, artefact, evidence.methods, evidence.seeds, evidence.rounds, evidence.unavailable
        )
        for artefact in claim.artefacts
    }
    return [
        _judgement(claim, artefact, dataset, metric, runs[artefact.name], evidence)
        for dataset in claim.datasets
        for artefact in claim.artefacts
        for metric in artefact.metrics
    ]


def _judgement(
    claim: Claim,
    artefact: Artefact,
    dataset: str,
    metric: str,
    runs: Mapping[tuple[str, str, str], Sequence[RunId]],
    evidence: Evidence,
) -> Judgement:
    in_catalogue = artefact.options.get("ranks") == "catalogue"
    expected = printed_effect(claim, artefact, dataset, metric)
    effects: dict[str, Effect] = {}
    verdicts: dict[str, str] = {}
    used: list[RunId] = []
    missing: list[RunId] = []
    diverged: list[Divergence] = []
    for short in BOTH:
        asked = {name: runs.get((name, dataset, full_name(short, claim.paper)), ()) for name in claim.lines}
        every = dict.fromkeys(run for group in asked.values() for run in group)
        missing += [run for run in every if evidence.record(run) is None]
        finished = every.keys() - missing
        gone_wrong = _diverged(asked, short, evidence)
        diverged += gone_wrong
        ranks = {
            run: of_users
            for run in every
            if (of_users := evidence.ranks(run, catalogue=in_catalogue)) is not None
        }
        groups = _of_whole_seeds(_with_numbers(claim, asked, ranks), ranks)
        compared = {run: ranks[run] for group in groups.values() for run in group}
        not_run = tuple(name for name in claim.over if finished.isdisjoint(asked[name]))
        if compared:
            effects[short] = _effect(claim, groups, compared, metric, not_run)
            used += compared
        verdicts[short] = verdict_despite(
            verdict_without(verdict_on(claim.kind, expected, effects.get(short)), not_run),
            claim,
            {one.line for one in gone_wrong},
            lacks_runs=not any(_of_whole_seeds(asked, finished).values()),
        )
    paths = [str((evidence.training or evidence.results) / run.folder / SUMMARY) for run in missing]
    return Judgement(
        claim, artefact, dataset, metric, None if expected is None else expected.value,
        effects.get("published"), effects.get("clean"),
        verdict=verdicts["clean"],
        published_verdict=verdicts["published"],
        reason=_reason(claim, dataset, missing, evidence.unavailable),
        command=shlex.join(["snakemake", "--cores", "2", *paths]) if paths else "",
        runs=tuple(dict.fromkeys(used)),
        diverged=tuple(diverged),
    )  # fmt: skip


def _diverged(groups: Mapping[str, Sequence[RunId]], protocol: str, evidence: Evidence) -> list[Divergence]:
    """The lines of a claim that diverged under a protocol."""
    found = []
    for name, group in groups.items():
        records = [record for run in group if (record := evidence.record(run)) is not None]
        if rounds := divergence_columns(records).get(DIVERGED):
            found.append(Divergence(name, protocol, tuple(rounds), len(records)))
    return found


def _with_numbers(
    claim: Claim, groups: Mapping[str, Sequence[RunId]], ranks: Container[RunId]
) -> dict[str, Sequence[RunId]]:
    """The lines that are compared: all but rivals that were not run, or diverged before any number.

    None where no rival is left.
    """
    kept = {
        name: group
        for name, group in groups.items()
        if name == claim.line or any(run in ranks for run in group)
    }
    return kept if len(kept) > 1 else {}


def _of_whole_seeds(
    groups: Mapping[str, Sequence[RunId]], finished: Container[RunId]
) -> dict[str, list[RunId]]:
    """The runs of the seeds that every line has finished runs of: lines are compared seed by seed."""
    seeds = [{run.seed for run in group if run in finished} for group in groups.values()]
    whole = set.intersection(*seeds) if seeds else set()
    return {name: [run for run in group if run.seed in whole] for name, group in groups.items()}


def _reason(claim: Claim, dataset: str, missing: Sequence[RunId], unavailable: Mapping[str, str]) -> str:
    """Which data are not available, and which of the other runs are not finished."""
    reasons = [
        f"{name}: {unavailable[name]}"
        for name in (dataset, f"{dataset}/published-{claim.paper}")
        if name in unavailable
    ]
    lacking: dict[str, set[int]] = {}
    for run in missing:
        lacking.setdefault(short_name(run.protocol), set()).add(run.seed)
    which = [
        f"{protocol}, seed{'s' * (len(seeds) > 1)} {', '.join(map(str, sorted(seeds)))}"
        for protocol, seeds in sorted(lacking.items())
    ]
    if which:
        reasons.append(f"{dataset}: not all lines are trained here ({'; '.join(which)})")
    return "; ".join(reasons)


def _effect(
    claim: Claim,
    groups: Mapping[str, Sequence[RunId]],
    ranks: Mapping[RunId, UserRanks],
    metric: str,
    not_run: tuple[str, ...],
) -> Effect:
    """The effect of finished runs of one dataset under one protocol; `groups` has one per line and seed."""
    _check_users(ranks)
    values = {
        name: np.mean([per_user(ranks[run].rank, metric) for run in group], axis=0)
        for name, group in groups.items()
    }
    rival = max((name for name in claim.over if name in values), key=lambda name: float(values[name].mean()))
    differences = values[claim.line] - values[rival]
    low, high = bootstrap_interval(differences, level=LEVEL)
    return Effect(
        float(differences.mean()), low, high, rival, float(values[rival].mean()), len(differences),
        tuple(groups[claim.line]), tuple(groups[rival]), not_run,
    )  # fmt: skip


def _check_users(ranks: Mapping[RunId, UserRanks]) -> None:
    """Refuse runs on different users: their differences could not be paired."""
    (first, expected), *others = ranks.items()
    for run, of_users in others:
        if not np.array_equal(of_users.user, expected.user):
            raise ResultError(
                f"{run.folder}: its users are not those of {first.folder}, though dataset and protocol are "
                "the same. One of them is of an older split; delete that one and train it again."
            )
