"""Which of the papers' claims hold: the printed effect beside ours, published and clean.

An effect is a difference of two lines in one metric of the test items: of the line a claim is about, and of
the best of those it is compared with. Which is best is seen anew for every dataset, metric and protocol, by
the numbers in question, and the interval takes it as given. Users are paired: a difference is each user's
own, averaged over seeds first.
"""

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrec.audit.significance import bootstrap_interval
from fedrec.config.claims import Claim, named_lines
from fedrec.config.papers import BOTH, Artefact
from fedrec.config.printed import printed
from fedrec.config.protocol import full_name, short_name
from fedrec.errors import ResultError
from fedrec.evaluation.metrics import per_user
from fedrec.files.parquet import read_table
from fedrec.plan.runs import RunId
from fedrec.plan.selection import runs_by_line

JUDGED_BY = "hr@10"
"""The metric that decides a claim as a whole; other metrics have verdicts of their own beside it."""
LEVEL = 0.95
"""Of the intervals."""
SHARE = 0.5
"""How much of the printed effect there must be under the clean protocol for a claim to hold."""
SMALL = 0.05
"""The loss, as a share of the metric without what causes it, that is small whatever the paper printed."""
HOLDS, WEAKER, REVERSED, UNTESTED = "holds", "weaker", "reversed", "not testable here"
VERDICTS = (HOLDS, WEAKER, REVERSED, UNTESTED)
RULE = (
    "A claim to be better holds where the interval of the clean effect lies above 0 and the effect is at "
    f"least {SHARE:g} of the printed one (where one is printed), is reversed where the interval lies below "
    "0, and is weaker otherwise. A claim to cost little holds where the interval lies above minus the "
    "margin, is reversed where it lies below, and is weaker otherwise; the margin is the printed loss or "
    f"{SMALL:.0%} of the clean metric without what costs, whichever is more."
)
"""The rule of `verdict_on`, for captions."""


@dataclass(frozen=True)
class Ranks:
    """The rank of each user's test item in a finished run, at the round its protocol reports."""

    user: NDArray[np.int64]
    """Sorted."""
    rank: NDArray[np.float32]


Find = Callable[[RunId, bool], Ranks | None]
"""The ranks of a run, in the whole catalogue if so asked; None where it is not finished."""


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
    reason: str
    """Why an effect of ours is missing; empty where none is."""
    command: str
    """Trains the runs that are missing and could be trained; empty where there are none."""
    runs: tuple[RunId, ...]
    """The runs the effects are of."""


@dataclass(frozen=True)
class Evidence:
    """What claims are judged by: finished runs, and which runs those should be."""

    results: Path
    """Where runs are, or would be built."""
    find: Find
    methods: Mapping[str, Any]
    seeds: Sequence[int]
    rounds: int | None
    """That runs train for at most; None for each paper's own number."""
    unavailable: Mapping[str, str]
    """Why a dataset, or the split of one (`dataset/protocol`), cannot be had."""


def judge(claims: Iterable[Claim], evidence: Evidence) -> list[Judgement]:
    """A verdict on every claim, for each dataset it is made on and each metric that is shown."""
    return [one for claim in claims for one in _judged(claim, evidence)]


def verdict_on(kind: str, expected: float | None, clean: Effect | None) -> str:
    """The verdict on a claim of a kind, by its printed and its clean effect where there are; see `RULE`."""
    if clean is None:
        return UNTESTED
    if kind == "costs_little":
        least = -max(-(expected or 0.0), SMALL * clean.base)
        large_enough = True
    else:
        least = 0.0
        large_enough = expected is None or clean.value >= SHARE * expected
    if clean.low > least and large_enough:
        return HOLDS
    return REVERSED if clean.high < least else WEAKER


def counted(verdicts: Iterable[str]) -> str:
    """Verdicts on one claim over datasets in a few words: `holds 1, reversed 3`."""
    found = Counter(verdicts)
    return ", ".join(f"{verdict} {found[verdict]}" for verdict in VERDICTS if found[verdict])


def printed_effect(claim: Claim, artefact: Artefact, dataset: str, metric: str) -> float | None:
    """The effect by the paper's own numbers, if it prints all of them."""
    lines = named_lines(artefact)
    numbers = [
        printed(claim.paper, artefact.printed, dataset, lines[name].printed, metric) for name in claim.lines
    ]
    values = [number.value for number in numbers if number is not None]
    return values[0] - max(values[1:]) if len(values) == len(claim.lines) else None


def ranks_below(results: Path, runs: Sequence[Path] | None = None) -> Find:
    """How finished runs below a folder of results are found; with `runs` (their run.json), these alone."""
    known = None if runs is None else {path.absolute() for path in runs}

    @cache
    def find(run: RunId, catalogue: bool) -> Ranks | None:
        folder = results / run.folder
        path = (folder / "run.json").absolute()
        if not path.is_file() or (known is not None and path not in known):
            return None
        at = json.loads((folder / "run.json").read_text(encoding="utf-8"))["protocol"]["round_rule"]
        table, _ = read_table(folder / "ranks.parquet")
        reported = np.asarray(table["at"].to_pylist()) == at
        user = table["user"].to_numpy()[reported].astype(np.int64)
        rank = table["test_rank_in_catalogue" if catalogue else "test_rank"].to_numpy()[reported]
        order = np.argsort(user)
        return Ranks(user[order], rank[order])

    return find


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
    effects: dict[str, Effect] = {}
    used: dict[RunId, Ranks] = {}
    missing: list[RunId] = []
    for kind in BOTH:
        groups = {name: runs.get((name, dataset, full_name(kind, claim.paper)), ()) for name in claim.lines}
        found = {run: evidence.find(run, in_catalogue) for group in groups.values() for run in group}
        ranks = {run: one for run, one in found.items() if one is not None}
        missing += [run for run in found if run not in ranks]
        if found and len(ranks) == len(found):
            effects[kind] = _effect(claim, groups, ranks, metric)
            used |= ranks
    expected, clean = printed_effect(claim, artefact, dataset, metric), effects.get("clean")
    paths = [str(evidence.results / run.folder / "run.json") for run in missing]
    return Judgement(
        claim, artefact, dataset, metric, expected, effects.get("published"), clean,
        verdict=verdict_on(claim.kind, expected, clean),
        reason=_reason(claim, dataset, missing, evidence.unavailable),
        command=shlex.join(["snakemake", "--cores", "2", *paths]) if paths else "",
        runs=tuple(used),
    )  # fmt: skip


def _reason(claim: Claim, dataset: str, missing: Sequence[RunId], unavailable: Mapping[str, str]) -> str:
    """Which data cannot be had, and which of the other runs are not finished."""
    reasons = [
        f"{name}: {unavailable[name]}"
        for name in (dataset, f"{dataset}/published-{claim.paper}")
        if name in unavailable
    ]
    kinds = sorted({short_name(run.protocol) for run in missing})
    if kinds:
        reasons.append(f"{dataset}: not trained here ({' and '.join(kinds)})")
    return "; ".join(reasons)


def _effect(
    claim: Claim, groups: Mapping[str, Sequence[RunId]], ranks: Mapping[RunId, Ranks], metric: str
) -> Effect:
    """The effect of finished runs of one dataset under one protocol; `groups` has one per line and seed."""
    _check_users(ranks)
    values = {
        name: np.mean([per_user(ranks[run].rank, metric) for run in group], axis=0)
        for name, group in groups.items()
    }
    rival = max(claim.over, key=lambda name: float(values[name].mean()))
    differences = values[claim.line] - values[rival]
    low, high = bootstrap_interval(differences, level=LEVEL)
    return Effect(float(differences.mean()), low, high, rival, float(values[rival].mean()), len(differences))


def _check_users(ranks: Mapping[RunId, Ranks]) -> None:
    """Refuse runs on different users: their differences could not be paired."""
    (first, expected), *others = ranks.items()
    for run, found in others:
        if not np.array_equal(found.user, expected.user):
            raise ResultError(
                f"{run.folder}: its users are not those of {first.folder}, though dataset and protocol are "
                "the same. One of them is of an older split; delete that one and train it again."
            )
