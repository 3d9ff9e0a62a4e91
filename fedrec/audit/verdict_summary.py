"""How many claims survive: the one count of verdict rows that README, page and terminal state.

A claim is *reproduced* on a dataset where it holds under its paper's published protocol in our own runs, and
every line it compares has `FULL_SEEDS` seeds. Only such a claim can show what the clean protocol changes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fedrec.audit.verdicts import DIVERGES, HOLDS, JUDGED_BY, OPEN, REVERSED, UNTESTED, WEAKER

ALL = "all"
"""Stands for the dataset in the row of a claim as a whole."""
FULL_SEEDS = 5
"""Seeds of each line under each protocol that a reproduced claim needs."""
UNTUNED = "No setting was tuned under the clean protocol."
"""Searches run under the papers' own protocols alone (`fedrec.plan.trials`)."""


@dataclass(frozen=True)
class VerdictSummary:
    """Verdict rows by what became of them; a row is one claim on one dataset, by the deciding metric."""

    reproduced: int
    """Decided rows whose claim is reproduced."""
    reproduced_reversed: int
    few_seeds_reversed: int
    """Reversed rows whose claim holds under the published protocol, with fewer seeds."""
    unfound_reversed: int
    """Reversed rows whose claim does not hold under the published protocol either."""
    unfound_diverged: int
    """Those of them with runs that diverge under the published protocol."""
    weaker: int
    holds: int
    diverges: int
    untested: int

    @property
    def decided(self) -> int:
        """Rows whose verdict leaves nothing open."""
        return (
            self.reproduced_reversed
            + self.few_seeds_reversed
            + self.unfound_reversed
            + self.weaker
            + self.holds
        )

    @property
    def rows(self) -> int:
        """All rows."""
        return self.decided + self.diverges + self.untested


def deciding_rows(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The verdict rows that are counted: those of one dataset, by the metric that decides."""
    return [row for row in rows if row["metric"] == JUDGED_BY and row["dataset"] != ALL]


def summarise_verdicts(rows: Iterable[Mapping[str, Any]]) -> VerdictSummary:
    """Count verdict rows, as the table makes them or as its csv has them."""
    own = deciding_rows(rows)
    by_verdict = {
        verdict: [row for row in own if row["verdict"] == verdict]
        for verdict in (HOLDS, WEAKER, REVERSED, DIVERGES, UNTESTED)
    }
    reversed_rows = by_verdict[REVERSED]
    found = [row for row in reversed_rows if row["published_verdict"] == HOLDS]
    reproduced_reversed = sum(map(is_reproduced, reversed_rows))
    return VerdictSummary(
        reproduced=sum(is_reproduced(row) for row in own if row["verdict"] not in OPEN),
        reproduced_reversed=reproduced_reversed,
        few_seeds_reversed=len(found) - reproduced_reversed,
        unfound_reversed=len(reversed_rows) - len(found),
        unfound_diverged=sum(row["published_verdict"] == DIVERGES for row in reversed_rows),
        weaker=len(by_verdict[WEAKER]),
        holds=len(by_verdict[HOLDS]),
        diverges=len(by_verdict[DIVERGES]),
        untested=len(by_verdict[UNTESTED]),
    )


def is_reproduced(row: Mapping[str, Any]) -> bool:
    """Whether a row's claim holds under the published protocol, with all seeds under both protocols."""
    seeds = (str(row.get(f"{protocol}_seeds") or "").split() for protocol in ("published", "clean"))
    return row["published_verdict"] == HOLDS and all(len(some) >= FULL_SEEDS for some in seeds)


def summary_sentences(summary: VerdictSummary) -> list[str]:
    """The count in words: first the reproduced claims, then all others; nothing where none is decided."""
    if not summary.decided:
        return []
    reproduced = (
        f"Of {summary.decided} decided claims (each on one dataset, by {JUDGED_BY.upper()}), "
        f"{summary.reproduced_reversed} are reproduced under the published protocol with {FULL_SEEDS} seeds "
        "and reversed under the clean one."
    )
    diverged = f" ({summary.unfound_diverged} diverge there)" if summary.unfound_diverged else ""
    others = _listed(
        (summary.unfound_reversed, f"reversed but not found under the published protocol either{diverged}"),
        (summary.few_seeds_reversed, f"reversed with fewer than {FULL_SEEDS} seeds"),
        (summary.weaker, "weaker"),
        (summary.holds, "that hold"),
    )
    left_open = _listed(
        (summary.diverges, "with runs that diverge"), (summary.untested, "that lack data or runs")
    )
    rest = [f"The others are {others}." if others else "", f"Left open: {left_open}." if left_open else ""]
    return [reproduced, " ".join([*filter(None, rest), UNTUNED])]


def _listed(*counts: tuple[int, str]) -> str:
    return ", ".join(f"{count} {words}" for count, words in counts if count)
