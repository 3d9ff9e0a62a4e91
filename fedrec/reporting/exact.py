"""Exact metrics in tables and figures: what they are of, means of them, and how many runs lack them."""

from collections.abc import Iterable, Mapping, Sequence

from fedrec.reporting.provenance import MeanOverSeeds, mean_over_seeds
from fedrec.runs.record import RunRecord

WHAT_IS_EXACT = (
    "Exact metrics are of the rank of a test item among all items that its user has not met in training or "
    "validation, sampled ones of its rank among candidates. "
)


def exact_means(group: Sequence[RunRecord]) -> Mapping[str, MeanOverSeeds]:
    """The exact metrics of runs that differ by seed, by name.

    None where a run with numbers lacks ranks among all items: a mean of the others would be of other seeds.
    """
    numbered = [record.exact_metrics for record in group if record.has_numbers()]
    if not numbered or not all(numbered):
        return {}
    return {name: mean_over_seeds(metrics[name] for metrics in numbered) for name in numbered[0]}


def lacking_sentence(records: Iterable[RunRecord]) -> str:
    """How many of some runs, of how many, lack ranks among all items; empty where none does."""
    runs = {record.folder: record for record in records if record.has_numbers()}
    lacking = sum(not record.has_exact_ranks for record in runs.values())
    if not lacking:
        return ""
    few = f"{lacking} of {len(runs)} runs"
    return f"Exact metrics are left out of {few}, whose ranks among all items were not kept."
