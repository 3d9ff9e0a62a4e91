"""Thresholds on the number of users behind a verdict.

A claim is decided only if enough users differ between its two lines, since a bootstrap of fewer is no test. A
claim that something costs little holds only if the line without the cost has something to lose: it must hit
at least as many users as popularity.
"""

from fedrec.audit.effects import Case, Effect, Evidence, hits_in
from fedrec.config.conditions import Condition

LEAST_USERS = 10
"""The least number of users that differ between two lines, and of hit users without a run of popularity."""


def too_few_differ(effect: Effect) -> str:
    """The reason if too few users differ between two lines to decide a claim; empty if enough do."""
    if effect.differ >= LEAST_USERS:
        return ""
    return f"{effect.differ} of {effect.users:,} users differ, and {LEAST_USERS} must"


def too_few_hit(case: Case, condition: Condition, effect: Effect, evidence: Evidence) -> str:
    """The reason if the line without the cost has too little to lose; empty if it has enough."""
    runs = [run for run in case.popularity(condition) if evidence.numbered(run) is not None]
    values = evidence.values(runs, case.metric)
    needed = LEAST_USERS if values is None else hits_in(values)
    if effect.hits >= needed:
        return ""
    least = f"and must hit {LEAST_USERS}" if values is None else f"popularity {needed:,g}"
    return f"{effect.compared.rival} hits {effect.hits:,g} users, {least}"
