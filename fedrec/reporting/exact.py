"""Exact metrics in tables and figures: their meaning, their means, and how many runs lack them."""

from collections.abc import Iterable, Mapping, Sequence

from fedrec.reporting.provenance import MeanOverSeeds, mean_over_seeds
from fedrec.runs.record import RunRecord

EXACT_METRICS_NOTE = (
    "Exact metrics rank a test item among all items that its user has not seen in training or validation. "
    "Sampled metrics rank it among candidates. "
)


def exact_means(group: Sequence[RunRecord]) -> Mapping[str, MeanOverSeeds]:
    """The exact metrics of runs that differ by seed, by name.

    None if a run with numbers lacks them: the mean of the others would be over different seeds.
    """
    numbered = [record.exact_metrics for record in group if record.has_numbers()]
    if not numbered or not all(numbered):
        return {}
    return {name: mean_over_seeds(metrics[name] for metrics in numbered) for name in numbered[0]}


def exact_notes(records: Iterable[RunRecord]) -> list[str]:
    """How many runs lack exact metrics, of how many, and why; empty if none lacks them."""
    numbered = {record.folder: record for record in records if record.has_numbers()}
    uneven = [record for record in numbered.values() if record.leaves_out_candidates]
    others = [record for record in numbered.values() if not record.leaves_out_candidates]
    lacking = sum(not record.has_exact_ranks for record in others)
    notes = []
    if lacking:
        few = f"{lacking} of {len(others)} runs"
        notes.append(f"{few} have no exact metrics: they stored no ranks among all items.")
    if uneven:
        protocols = ", ".join(sorted({record.protocol for record in uneven}))
        notes.append(
            f"There are no exact metrics under {protocols}: clients draw neither held-out items nor "
            "candidates as negatives there, and so both stand out among all items."
        )
    return notes
