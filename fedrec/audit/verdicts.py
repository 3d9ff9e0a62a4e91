"""Verdicts on the papers' claims under every condition, by rule.

A claim is judged if our runs reproduce it under its paper's protocol (`fedrec.audit.reproduction_gate`). Then
its effect under a condition decides (`fedrec.audit.effects`): the interval, and Holm's correction over all
claims that are decided together.

A line that diverged might have reached more. So only verdicts stand that a higher number could not change: if
the claim's own line diverged, the claim holds or stays open; if its rival diverged, it is reversed or stays
open. Rivals without runs are left out.
"""

import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fedrec.audit.effects import (
    Case,
    Divergence,
    Effect,
    Evidence,
    compared_lines,
    effect_of,
    lacks_runs,
    lines_that_diverged,
)
from fedrec.audit.reproduction_gate import gate_of, printed_by_line
from fedrec.audit.significance import ALPHA, LEAST_P, holm
from fedrec.audit.user_thresholds import LEAST_USERS, too_few_differ, too_few_hit
from fedrec.config.claims import COSTS_LITTLE, Claim
from fedrec.config.conditions import MAIN, PUBLISHED, Condition
from fedrec.config.papers import Artefact
from fedrec.config.protocol import short_name
from fedrec.plan.runs import SUMMARY, RunId
from fedrec.plan.selection import runs_by_line
from fedrec.runs.exact import EXACT, is_exact

JUDGED_BY = "hr@10"
"""The metric that decides a claim: exact if runs store exact ranks, else sampled."""
SHARE = 0.5
"""The share of the printed effect that a claim needs to hold."""
SMALL = 0.05
"""The relative loss or gain that counts as small, whatever the paper printed."""
HOLDS, SMALLER, TOO_FEW, NOT_FOUND, REVERSED, COSTS_MORE, NOT_REPRODUCED, DIVERGES, UNTESTED = VERDICTS = (
    "holds",
    "smaller",
    "too few users",
    "not found",
    "reversed",
    "costs more",
    "not reproduced",
    "diverges",
    "not testable here",
)
OPEN = (NOT_REPRODUCED, DIVERGES, UNTESTED)
"""The verdicts that leave a claim open."""
DECIDED = (HOLDS, SMALLER, REVERSED, COSTS_MORE)
"""The verdicts that need enough users."""
RULE = (
    "A claim is judged only if our runs reproduce it under its paper's own protocol: every line that it "
    "names must come within 0.02 of print, or as near as half of its 95% interval over users. The rival is "
    "the line that is best on validation. A claim to be better holds if the interval of the effect lies "
    f"above 0 and the effect is at least {SHARE:g} of the printed one, if there is one; otherwise it is "
    "smaller. If the interval lies below 0, the claim is reversed. A claim to cost little holds if the "
    "interval lies above minus a margin, and costs more if it lies below. The margin is the printed loss, "
    f"or {SMALL:.0%} of the metric if that is more. These verdicts need a p below {ALPHA:g} after Holm's "
    f"correction, and at least {LEAST_USERS} users who differ between both lines. Of other claims there are "
    "too few users to decide if the interval reaches the effect that the claim needs; if it ends below "
    "that, the claim is not found."
)
"""The rule in short, for the page."""
DIVERGENCE_RULE = (
    "A line that diverged might have reached more. So if the claim's own line diverged, the claim can only "
    "hold or stay open; if its rival diverged, it can only be reversed or stay open."
)
"""The rule for lines that diverged."""


@dataclass(frozen=True)
class PrintedEffect:
    """The difference between two lines in the paper's own numbers."""

    value: float
    base: float
    """The metric of the rival."""


@dataclass(frozen=True)
class Bar:
    """The bar that an effect must reach."""

    may_lose: float
    """The share of the rival's metric that a claim to cost little may lose; 0 for other claims."""
    full: float | None
    """The effect that a claim needs to hold and not be smaller; None without a printed effect."""


@dataclass(frozen=True)
class Finding:
    """The verdict on a claim on one dataset, in one metric, under one condition."""

    effect: Effect | None
    verdict: str
    reason: str = ""
    """The reason why it is not reproduced, cannot be tested despite runs, or has too few users."""
    way: str = ""
    """The check of reproduction; empty if there was none."""
    decides: bool = False
    """Whether this metric decides the claim."""
    p_holm: float | None = None
    """The p of the effect after Holm's correction; None if nothing was decided."""
    diverged: tuple[Divergence, ...] = ()
    repeats: str = ""
    """The claim with the same comparison that is counted in place of this one; mostly empty."""
    full: float | None = None
    """`Bar.full` of the effect."""


@dataclass(frozen=True)
class Judgement:
    """The verdicts on a claim on one dataset in one metric, under all conditions."""

    claim: Claim
    artefact: Artefact
    dataset: str
    metric: str
    printed: float | None
    """The printed effect in this metric; None if none is printed."""
    published: Finding
    """The finding under the paper's own protocol, without Holm's correction and thresholds of users."""
    findings: Mapping[str, Finding]
    """Findings by condition key."""
    reason: str
    """The missing data or runs; empty if none are missing."""
    command: str
    """The command that trains missing runs; empty if none can be trained."""

    @property
    def runs(self) -> list[RunId]:
        """All compared runs, each once."""
        effects = [one.effect for one in (self.published, *self.findings.values()) if one.effect is not None]
        sides = [effect.compared for effect in effects]
        return list(dict.fromkeys(run for side in sides for run in (*side.runs, *side.runs_against)))


def judge(claims: Iterable[Claim], evidence: Evidence) -> list[Judgement]:
    """Judge every claim on each of its datasets, in each metric, under all conditions."""
    judgements = [judgement for claim in claims for judgement in _judged(claim, evidence)]
    for condition in evidence.conditions:
        judgements = _corrected(_counted_once(judgements, condition.key), condition.key)
    return judgements


def verdict_on(kind: str, full: float | None, effect: Effect) -> str:
    """The verdict on a claim of a kind by its effect; see `RULE`. `full` is `Bar.full`."""
    if effect.low > effect.least:
        return SMALLER if full is not None and effect.value < full else HOLDS
    if effect.high < effect.least:
        return COSTS_MORE if kind == COSTS_LITTLE else REVERSED
    return verdict_if_unsure(kind, full, effect)


def verdict_if_unsure(kind: str, full: float | None, effect: Effect) -> str:
    """The verdict if the effect may be chance: does its interval reach the effect that the claim needs?"""
    needed = effect.least
    if kind != COSTS_LITTLE:
        needed = max(effect.least, SMALL * effect.base if full is None else full)
    return NOT_FOUND if effect.high < needed else TOO_FEW


def verdict_without(verdict: str, not_run: Sequence[str]) -> str:
    """The verdict if some rivals were `not_run`: one better rival suffices to refute a claim over all."""
    return UNTESTED if not_run and verdict != REVERSED else verdict


def verdict_despite(verdict: str, claim: Claim, diverged: Collection[str]) -> str:
    """The verdict if some lines of a claim `diverged`; see `DIVERGENCE_RULE`."""
    if not diverged:
        return verdict
    own, others = claim.line in diverged, any(line != claim.line for line in diverged)
    stands = (verdict == HOLDS and not others) or (verdict in (REVERSED, COSTS_MORE) and not own)
    return verdict if stands else DIVERGES


def verdict_counts(verdicts: Iterable[str]) -> str:
    """Counts of verdicts as text: `holds 1, reversed 3`."""
    counts = Counter(verdicts)
    return ", ".join(f"{verdict} {counts[verdict]}" for verdict in VERDICTS if counts[verdict])


def printed_effect(case: Case) -> PrintedEffect | None:
    """The effect in the paper's own numbers, if it prints all of them."""
    numbers = printed_by_line(case)
    if not numbers:
        return None
    base = max(numbers[name] for name in case.claim.over)
    return PrintedEffect(numbers[case.claim.line] - base, base)


def bar_of(kind: str, expected: PrintedEffect | None) -> Bar:
    """The bar of a claim of a kind, from the printed effect."""
    if kind != COSTS_LITTLE:
        return Bar(0.0, None if expected is None else SHARE * expected.value)
    lost = -expected.value / expected.base if expected is not None and expected.base else 0.0
    return Bar(max(lost, SMALL), None)


def _judged(claim: Claim, evidence: Evidence) -> Iterator[Judgement]:
    runs = {
        artefact.name: runs_by_line(
            claim,
            artefact,
            evidence.methods,
            evidence.seeds,
            evidence.rounds,
            evidence.unavailable,
            evidence.conditions,
        )
        for artefact in claim.artefacts
    }
    for dataset in claim.datasets:
        for artefact in claim.artefacts:
            for metric in artefact.metrics:
                yield from _in_metric(Case(claim, artefact, dataset, metric, runs[artefact.name]), evidence)


def _in_metric(case: Case, evidence: Evidence) -> Iterator[Judgement]:
    """The judgements of a case in the paper's metric, then in the exact metric.

    Reproduction is checked in the former, and in the latter if exact numbers are printed. If the paper's
    ranks are exact, there is one judgement.
    """
    exact = replace(case, metric=f"{EXACT}{case.metric}")
    in_print = exact if case.artefact.has_exact_ranks else case
    cases = {one.metric: one for one in (in_print, exact)}
    expected = {metric: printed_effect(one) for metric, one in cases.items()}
    bar = bar_of(case.claim.kind, expected[in_print.metric])
    bars = {
        metric: replace(bar, full=None) if effect is None else bar_of(case.claim.kind, effect)
        for metric, effect in expected.items()
    }
    published = _finding(in_print, PUBLISHED, bar, evidence)
    findings = {
        metric: {
            condition.key: _gated(
                one, _finding(one, condition, bars[metric], evidence), in_print, published, evidence
            )
            for condition in evidence.conditions
        }
        for metric, one in cases.items()
    }
    missing = _missing(case, evidence)
    paths = [str((evidence.training or evidence.results) / run.folder / SUMMARY) for run in missing]
    for metric, one in cases.items():
        effect = expected[metric]
        yield Judgement(
            one.claim, one.artefact, one.dataset, metric, None if effect is None else effect.value,
            published if one is in_print else _finding(one, PUBLISHED, bars[metric], evidence),
            {
                key: replace(finding, decides=case.metric == JUDGED_BY and metric == _deciding(findings, key))
                for key, finding in findings[metric].items()
            },
            reason=_reason(case, missing, evidence.unavailable),
            command=shlex.join(["snakemake", "--cores", "2", *paths]) if paths else "",
        )  # fmt: skip


def _finding(case: Case, condition: Condition, bar: Bar, evidence: Evidence) -> Finding:
    """The finding of a case under a condition, before the reproduction gate."""
    compared = compared_lines(case, condition, evidence)
    effect = None if compared is None else effect_of(compared, case.metric, bar.may_lose, evidence)
    diverged = tuple(lines_that_diverged(case, condition, evidence))
    if compared is not None and effect is None:
        reasons = dict.fromkeys(map(evidence.lacks_exact, (*compared.runs, *compared.runs_against)))
        return Finding(None, UNTESTED, "; ".join(filter(None, reasons)), diverged=diverged)
    verdict, too_few = UNTESTED, ""
    if compared is not None and effect is not None:
        verdict = verdict_on(case.claim.kind, bar.full, effect)
        too_few = _too_few_users(case, condition, effect, verdict, evidence)
        verdict = verdict_without(TOO_FEW if too_few else verdict, compared.not_run)
    if verdict != UNTESTED or not lacks_runs(case, condition, evidence):
        verdict = verdict_despite(verdict, case.claim, {entry.line for entry in diverged})
    reason = too_few if verdict == TOO_FEW else ""
    return Finding(effect, verdict, reason, diverged=diverged, full=bar.full)


def _too_few_users(case: Case, condition: Condition, effect: Effect, verdict: str, evidence: Evidence) -> str:
    """The reason if too few users are behind a verdict; empty if there are enough, or none are needed.

    Findings under the published protocol need none: they only show whether our runs agree with print.
    """
    if verdict not in DECIDED or condition == PUBLISHED:
        return ""
    reasons = [too_few_differ(effect)]
    if case.claim.kind == COSTS_LITTLE and verdict == HOLDS:
        reasons.append(too_few_hit(case, condition, effect, evidence))
    return "; ".join(filter(None, reasons))


def _gated(case: Case, finding: Finding, in_print: Case, published: Finding, evidence: Evidence) -> Finding:
    """A finding after the reproduction gate, in the printed metric and in its own."""
    if finding.verdict == UNTESTED:
        return finding
    is_found = None if published.verdict == UNTESTED else published.verdict in (HOLDS, SMALLER)
    rival = None if finding.effect is None else finding.effect.compared.rival
    gate = gate_of(in_print, rival, is_found, evidence, by_exact_ranks=is_exact(case.metric))
    if gate.misses:
        return replace(finding, verdict=NOT_REPRODUCED, reason="; ".join(gate.misses), way=gate.way)
    if gate.lacking:
        reason = f"not run under its paper's protocol: {', '.join(gate.lacking)}"
        return replace(finding, verdict=UNTESTED, reason=reason)
    return replace(finding, way=gate.way)


def _deciding(findings: Mapping[str, Mapping[str, Finding]], key: str) -> str:
    """The metric that decides under a condition: the exact one if possible, else the printed one."""
    first, *others = findings
    return next((metric for metric in others if findings[metric][key].effect is not None), first)


def _counted_once(judgements: Sequence[Judgement], key: str) -> list[Judgement]:
    """Mark judgements that compare the same runs by the same metric as another claim.

    The claim over the fewest lines counts; in a tie, the first.
    """
    indices: dict[tuple[str, Sequence[RunId], Sequence[RunId]], list[int]] = {}
    for index, one in enumerate(judgements):
        finding = one.findings[key]
        if finding.decides and finding.effect is not None:
            compared = finding.effect.compared
            indices.setdefault((one.metric, compared.runs, compared.runs_against), []).append(index)
    marked = list(judgements)
    for same in indices.values():
        counted, *others = sorted(same, key=lambda index: len(judgements[index].claim.over))
        for index in others:
            one = judgements[index]
            finding = replace(one.findings[key], repeats=judgements[counted].claim.id)
            marked[index] = replace(one, findings={**one.findings, key: finding})
    return marked


def _corrected(judgements: Sequence[Judgement], key: str) -> list[Judgement]:
    """Judgements after Holm's correction of the decisions under a condition.

    The deciding judgements on counted datasets are one family. Every other metric is a family of its own, and
    so are judgements that do not count or repeat another.
    """
    families: dict[tuple[bool, bool, str], list[int]] = {}
    for index, one in enumerate(judgements):
        finding = one.findings[key]
        if finding.verdict not in OPEN:
            kind = "" if finding.decides else one.metric
            family = one.dataset in one.claim.not_counted, bool(finding.repeats), kind
            families.setdefault(family, []).append(index)
    corrected = list(judgements)
    for indices in families.values():
        assert len(indices) * LEAST_P < ALPHA, (
            "with so many claims no p can be significant: resample more often"
        )
        effects = [judgements[index].findings[key].effect for index in indices]
        adjusted = holm([effect.p for effect in effects if effect is not None])
        for index, p in zip(indices, adjusted, strict=True):
            one = judgements[index]
            corrected[index] = replace(
                one, findings={**one.findings, key: _with_p(one.claim, one.findings[key], p)}
            )
    return corrected


def _with_p(claim: Claim, finding: Finding, p: float) -> Finding:
    """A finding with its p after Holm's correction; a decision that is not significant is replaced."""
    if p < ALPHA or finding.verdict == TOO_FEW or finding.effect is None:
        return replace(finding, p_holm=p)
    unsure = verdict_if_unsure(claim.kind, finding.full, finding.effect)
    verdict = verdict_without(unsure, finding.effect.compared.not_run)
    diverged = {entry.line for entry in finding.diverged}
    return replace(finding, p_holm=p, verdict=verdict_despite(verdict, claim, diverged))


def _missing(case: Case, evidence: Evidence) -> list[RunId]:
    """The missing runs of the headline."""
    groups = [group for condition in (PUBLISHED, MAIN) for group in case.lines(condition).values()]
    return [
        run for run in dict.fromkeys(run for group in groups for run in group) if not evidence.record(run)
    ]


def _reason(case: Case, missing: Sequence[RunId], unavailable: Mapping[str, str]) -> str:
    """The data that are not available, and the runs that are not finished."""
    dataset = case.dataset
    reasons = [
        f"{name}: {unavailable[name]}"
        for name in (dataset, f"{dataset}/published-{case.claim.paper}")
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
        reasons.append(f"{dataset}: some lines have no runs here ({'; '.join(which)})")
    return "; ".join(reasons)
