"""The note under a table of metrics with the expected metrics of the draw counter, which has no model."""

from collections.abc import Sequence

import pyarrow as pa

from fedrec.audit.draw_counter_theory import SamplingScheme, draw_counter_metrics
from fedrec.config.protocol import short_name
from fedrec.reporting.artefact_runs import ArtefactRuns, has_split, split_table
from fedrec.runs.method_kinds import kind_of
from fedrec.runs.record import RunRecord
from fedrec.runs.sampling_counts import LEAKING_POOL, SamplingCounts


def draw_counter_sentences(subject: ArtefactRuns) -> dict[str, str]:
    """The note by dataset, where clients keep item tables and never sample held-out items."""
    cutoffs = sorted({int(metric.partition("@")[2]) for metric in subject.artefact.metrics})
    sentences: dict[str, str] = {}
    for dataset in subject.artefact.datasets:
        records = _personalised_runs(subject, dataset)
        if records and (sentence := _sentence(subject, records, cutoffs)):
            sentences[dataset] = sentence
    return sentences


def _personalised_runs(subject: ArtefactRuns, dataset: str) -> list[RunRecord]:
    """The runs under the published protocol whose clients keep item tables."""
    return [
        group[0]
        for (_, of, protocol), group in subject.groups.items()
        if of == dataset
        and short_name(protocol) == "published"
        and kind_of(subject.methods, group[0].id.method, group[0].settings) == "personalised"
    ]


def _sentence(subject: ArtefactRuns, records: Sequence[RunRecord], cutoffs: Sequence[int]) -> str | None:
    if not has_split(records[0], subject.data):
        return None
    rows, about = split_table(records[0], subject.data)
    protocol = about["protocol"]
    histories = _histories(rows, about["items"]) if protocol["negative_pool"] == LEAKING_POOL else None
    if histories is None:
        return None
    rounds, negatives = (max(record.settings[name] for record in records) for name in ("rounds", "negatives"))
    drawing = SamplingScheme(rounds, negatives, protocol["candidates"])
    expected = draw_counter_metrics(histories, drawing, cutoffs)
    shown = [metric for metric in subject.artefact.metrics if metric in expected]
    numbers = ", ".join(f"{metric.upper()} {expected[metric]:.4f}" for metric in shown)
    return (
        f"{records[0].id.dataset}: draw-counter has no model and only counts how often each client sampled "
        f"each item as a negative. It is expected to reach {numbers} under {records[0].protocol} ({rounds} "
        "rounds, all clients). A method whose clients keep item tables must exceed these numbers to show "
        "that it learns."
    )


def _histories(rows: pa.Table, items: int) -> SamplingCounts | None:
    """The counts of a split, or of its stored shape; None if the shape was stored without them."""
    columns = {name: rows[name].to_numpy(zero_copy_only=False) for name in rows.column_names}
    if "item" in columns:
        return SamplingCounts.of_split(columns["user"], columns["item"], columns["part"].astype(str), items)
    if "pool" not in columns:
        return None
    return SamplingCounts.of_shape(columns["user"], columns["pool"], columns["seen"].astype(bool))
