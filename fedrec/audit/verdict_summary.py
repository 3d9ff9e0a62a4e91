"""Counts of verdicts, which README, page and terminal state.

A row is one claim on one dataset, by the metric that decides. Two kinds of rows are counted separately: those
on datasets that cannot distinguish methods (`not_counted` of `config/claims.yaml`), and those that repeat the
comparison of another claim.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedrec.audit.verdicts import (
    HOLDS,
    JUDGED_BY,
    NOT_REPRODUCED,
    OPEN,
    SMALLER,
    UNTESTED,
    verdict_counts,
)
from fedrec.config.claims import COSTS_LITTLE
from fedrec.config.conditions import CONDITIONS, MAIN, Condition
from fedrec.runs.exact import is_exact

ALL = "all"
"""The dataset column in the row of a claim over all datasets."""
YES = "yes"
"""The value of `KEY_decides` in the row whose metric decides under a condition."""
UNTUNED = "Unless called tuned, a verdict uses settings that were tuned under the published protocols."
"""Tuned verdicts use settings found under `clean`, or a paper's where these are better on validation."""


@dataclass(frozen=True)
class VerdictSummary:
    """Counts of verdict rows under one condition."""

    counts: Mapping[str, int]
    """The number of counted rows by verdict."""
    by_exact_ranks: int = 0
    """Judged rows that exact ranks decide."""
    with_one_seed: int = 0
    """Judged rows with one seed."""
    found_published: int = 0
    """Rows that are not reproduced, but show the printed effect under the paper's own protocol."""
    not_counted: int = 0
    """Rows on datasets that do not count."""
    repeated: int = 0
    """Rows that repeat the comparison of another claim, on datasets that count."""

    @property
    def judged(self) -> int:
        """The number of rows with a decision on a reproduced claim."""
        return self.rows - sum(self.counts.get(verdict, 0) for verdict in OPEN)

    @property
    def rows(self) -> int:
        """The number of counted rows."""
        return sum(self.counts.values())


def deciding_rows(rows: Iterable[Mapping[str, Any]], condition: Condition = MAIN) -> list[Mapping[str, Any]]:
    """The verdict rows of single datasets whose metric decides, counted or not."""
    return [row for row in rows if row.get(f"{condition.key}_decides") == YES]


def is_counted(row: Mapping[str, Any], condition: Condition = MAIN) -> bool:
    """Whether a deciding verdict row is counted."""
    return not row["not_counted"] and not row.get(f"{condition.key}_repeats")


def summarise_verdicts(rows: Iterable[Mapping[str, Any]], condition: Condition = MAIN) -> VerdictSummary:
    """Count verdict rows, as the table makes them or as its csv has them."""
    deciding = deciding_rows(rows, condition)
    counted = [row for row in deciding if is_counted(row, condition)]
    verdict_of = f"{condition.key}_verdict"
    judged = [row for row in counted if row[verdict_of] not in OPEN]
    missed = [row for row in counted if row[verdict_of] == NOT_REPRODUCED]
    not_counted = sum(bool(row["not_counted"]) for row in deciding)
    return VerdictSummary(
        Counter(str(row[verdict_of]) for row in counted),
        by_exact_ranks=sum(is_exact(str(row["metric"])) for row in judged),
        with_one_seed=sum(len(str(row[f"{condition.key}_seeds"]).split()) == 1 for row in judged),
        found_published=sum(row["published_verdict"] in (HOLDS, SMALLER) for row in missed),
        not_counted=not_counted,
        repeated=len(deciding) - len(counted) - not_counted,
    )


def summary_sentences(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The counts in sentences; empty without claims.

    First the judged claims under the main condition, then other conditions if any, then all other claims.
    """
    summary = summarise_verdicts(rows)
    if summary.rows == summary.counts.get(UNTESTED, 0):
        return []
    under_others = (
        f"fedrec judges {summary.judged} of {summary.rows} claims by {JUDGED_BY.upper()}: those that "
        "our runs reproduce under the papers' own protocols. A claim on two datasets counts twice."
    )
    main = _under(MAIN, _by_statement(rows))
    under = [
        _under(condition, _counted(summarise_verdicts(rows, condition), is_open=False))
        for condition in CONDITIONS
        if condition != MAIN
    ]
    basis = (
        f"Ranks in the whole catalogue decide {summary.by_exact_ranks} of the {summary.judged}, sampled "
        f"ranks the others, whose runs lack these; {summary.with_one_seed} of the {summary.judged} rest on "
        "one seed."
    )
    left_open = _counted(summary, is_open=True)
    missed = summary.counts.get(NOT_REPRODUCED, 0)
    effect = (
        f"Of the {missed} {NOT_REPRODUCED}, {summary.found_published} show the printed effect under the "
        "paper's own protocol, but other numbers."
    )
    names = dict.fromkeys(str(row["dataset"]) for row in deciding_rows(rows) if row["not_counted"])
    left_out = [
        f"{summary.not_counted} on {' and '.join(names)}" if names else "",
        f"{summary.repeated} that repeat another claim" if summary.repeated else "",
    ]
    rest = [
        basis if summary.judged else "",
        f"Not judged: {left_open}." if left_open else "",
        effect if missed else "",
        f"Not among the {summary.rows}: {', '.join(filter(None, left_out))}." if any(left_out) else "",
        UNTUNED,
    ]
    parts = ((under_others, main), under, rest)
    return [" ".join(filter(None, part)) for part in parts if any(part)]


def _under(condition: Condition, words: str) -> str:
    """The sentence of the verdicts under a further condition; empty without verdicts."""
    return f"Under the {condition.protocol} protocol{', tuned' * condition.tuned}: {words}." if words else ""


def _by_statement(rows: Iterable[Mapping[str, Any]]) -> str:
    """The judged claims under the main condition by their statement, the most frequent first."""
    verdict_of = f"{MAIN.key}_verdict"
    verdicts_of: dict[str, list[str]] = {}
    for row in deciding_rows(rows):
        if is_counted(row) and row[verdict_of] not in OPEN:
            verdicts_of.setdefault(_statement(row), []).append(row[verdict_of])
    return "; ".join(
        f"{len(verdicts)} say{'s' * (len(verdicts) == 1)} that {statement} ({verdict_counts(verdicts)})"
        for statement, verdicts in sorted(verdicts_of.items(), key=lambda one: -len(one[1]))
    )


def _statement(row: Mapping[str, Any]) -> str:
    """The statement of a claim: a method is better, or something costs little."""
    if row["kind"] != COSTS_LITTLE:
        return "a method is better"
    what = str(row["claim"]).removeprefix(f"{row['paper']}-").removesuffix("-costs-little")
    return f"{what} costs little"


def _counted(summary: VerdictSummary, *, is_open: bool) -> str:
    """The counts of the verdicts that decide, or of those that stay open."""
    return verdict_counts(
        verdict
        for verdict, count in summary.counts.items()
        if (verdict in OPEN) == is_open
        for _ in range(count)
    )
