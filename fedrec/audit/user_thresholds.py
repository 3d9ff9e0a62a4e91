"""Thresholds on the number of users behind a verdict: a handful of users decides nothing.

A claim is decided where enough users differ between its two lines: a bootstrap of fewer is no test. And that
something costs little holds only of a line that has something to lose. Such a line hits at least as many
users as popularity does, which knows nothing of a user.
"""

from fedrec.audit.effects import Case, Effect, Evidence, hits_in
from fedrec.config.conditions import Condition

LEAST_USERS = 10
"""So many users must differ between two lines, and be hit where no run of popularity is there."""


def too_few_differ(effect: Effect) -> str:
    """Why too few users differ between two lines to decide a claim; empty where there are enough."""
    if effect.differ >= LEAST_USERS:
        return ""
    return f"{effect.differ} of {effect.users:,} users differ, and {LEAST_USERS} must"


def too_few_hit(case: Case, condition: Condition, effect: Effect, evidence: Evidence) -> str:
    """Why the line without what costs has too little to lose; empty where it has enough."""
    runs = [run for run in case.popularity(condition) if evidence.numbered(run) is not None]
    values = evidence.values(runs, case.metric)
    needed = LEAST_USERS if values is None else hits_in(values)
    if effect.hits >= needed:
        return ""
    least = f"and must hit {LEAST_USERS}" if values is None else f"popularity {needed:,g}"
    return f"{effect.compared.rival} hits {effect.hits:,g} users, {least}"
