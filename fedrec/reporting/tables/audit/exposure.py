"""The table of exposure: what draws reveal about held-out items, and whether scores follow the draws."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from fedrec.audit.exposure import Drawers, candidate_scores, draw_counts, exposure_summary, vanished
from fedrec.config.methods import Methods, title
from fedrec.config.protocol import full_name, short_name
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.runs import RunId
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import finished_runs, stem_of
from fedrec.reporting.provenance import origin_sentence, provenance_of_rows
from fedrec.reporting.tables.table import AGAINST, Chapter, ReportColumn, ReportTable, Row, write_forms
from fedrec.runs.provenance_columns import folders_of, origin_columns
from fedrec.runs.record import RunRecord

LAYOUT = Layout("table", needs=("runs", "states", "splits", "models"), selection="exposure")
CHAPTER = Chapter(
    "Exposure: what the draws of negatives give away",
    "The draws alone identify a held-out item if a client never draws it, but often draws its rivals. The "
    "nearer the correlation of scores and draws is to -1, the more a model only remembers its draws. Hits "
    "that vanish when clients may draw held-out items came from the leak.",
    order=3,
)
_AT_ONCE = 32
"""Runs whose draws are counted together; each needs memory for a score and two counts per candidate."""
_EXPOSED = "only-pool"
"""The protocol of runs whose clients may sample held-out items, otherwise as published."""


def build(target: Target, project: Project) -> None:
    """Write the table of the runs of a target."""
    rows = exposure_rows(finished_runs(target, project), project.methods)
    write_forms(stem_of(target, project), rows, exposure_tables(rows), CHAPTER)


def exposure_rows(records: Sequence[RunRecord], methods: Methods) -> list[dict[str, Any]]:
    """One row per run."""
    by_id = {record.id: record for record in records}
    return [
        {
            "title": title(methods, record.id.method, ["rounds"]),
            **_row(record, draws),
            **_vanished(record, by_id),
        }
        for record, draws in _exposures(records)
    ]


def exposure_tables(rows: Sequence[Row]) -> list[ReportTable]:
    """A table per dataset: each method under each protocol."""
    origin = origin_sentence(provenance_of_rows(rows))
    return [
        ReportTable(
            caption=f"Exposure on {dataset}: how often a client drew its test item as a training "
            "negative, and "
            "how often a candidate; the shares of clients and of candidates without any draw. “Score follows "
            "draws” is Spearman's correlation of a candidate's draws and its final score, mean over clients: "
            "a model that only remembers draws has -1. “Hits that vanish” is the share of hits at 10 that "
            "are lost when clients may draw held-out items; “new hits” are counted per old hit. "
            f"{origin}",
            columns=[
                ReportColumn("title", "method", align="left"),
                ReportColumn("protocol", "protocol", align="left"),
                ReportColumn("test_held_out_mean", "draws of the test item", "{:.2f}"),
                ReportColumn("test_candidates_mean", "of a candidate", "{:.2f}"),
                ReportColumn("test_held_out_never", "test item never drawn", "{:.3f}"),
                ReportColumn("test_candidates_never", "candidate never", "{:.3f}"),
                ReportColumn("score_follows_draws", "score follows draws", "{:+.3f}"),
                ReportColumn("vanished_share", "hits that vanish", "{:.3f}"),
                ReportColumn("new_share", "new hits", "{:.3f}"),
            ],
            rows=[
                {**row, "protocol": short_name(row["protocol"])} for row in rows if row["dataset"] == dataset
            ],
            notes=_without_vanished([row for row in rows if row["dataset"] == dataset]),
        )
        for dataset in dict.fromkeys(row["dataset"] for row in rows)
    ]


def _without_vanished(rows: Sequence[Row]) -> list[str]:
    """A note on published runs without a share of hits that vanish; empty if all have one."""
    lacking = [
        row["title"]
        for row in rows
        if short_name(row["protocol"]) == "published" and row.get("vanished") is None
    ]
    names = ", ".join(dict.fromkeys(lacking))
    return [f"No share of hits that vanish, for lack of audited {_EXPOSED} runs: {names}."] if names else []


def _exposures(records: Sequence[RunRecord]) -> Iterator[tuple[RunRecord, Mapping[str, Any]]]:
    """The exposure of each run; runs on one split under one protocol are computed together."""
    groups: dict[tuple[str, str], list[RunRecord]] = {}
    for record in records:
        if record.audit is not None:
            yield record, record.audit["exposure"]
            continue
        # Protocols may sample from the same rows by different rules.
        groups.setdefault((record.summary["split"], record.protocol), []).append(record)
    for alike in groups.values():
        # Runs share draws only if they have the same seed.
        by_seed = sorted(alike, key=lambda record: record.id.seed)
        exposures: dict[RunId, Mapping[str, Any]] = {}
        for first in range(0, len(by_seed), _AT_ONCE):
            exposures |= _exposure_by_run(by_seed[first : first + _AT_ONCE])
        yield from ((record, exposures[record.id]) for record in alike)


def _exposure_by_run(records: Sequence[RunRecord]) -> dict[RunId, Mapping[str, Any]]:
    """The exposure of each of these runs, all on one split."""
    drawers, scores = zip(*map(_drawers_and_scores, records), strict=True)
    counts = draw_counts(records[0].clients, drawers)
    return {
        record.id: exposure_summary(drawn, scored)
        for record, drawn, scored in zip(records, counts, scores, strict=True)
    }


def _drawers_and_scores(record: RunRecord) -> tuple[Drawers, Tensor]:
    """The facts that need a run's model: who sampled, and `candidate_scores`."""
    print(f"{record.id.dataset}, {record.protocol}: {record.id.method}", file=sys.stderr)
    # Opened again, so that the large model is freed afterwards.
    run = RunRecord(record.folder)
    return Drawers.of(run), candidate_scores(run)


def _row(record: RunRecord, draws: Mapping[str, Any]) -> dict[str, Any]:
    run = record.id
    row: dict[str, Any] = {
        "dataset": run.dataset, "paper": run.paper, "protocol": run.protocol, "method": run.method,
        "rounds": record.settings["rounds"], "draws_per_client": draws.get("draws_per_client"),
    }  # fmt: skip
    for part in ("validation", "test"):
        for whose in ("held_out", "candidates"):
            for what in ("mean", "never"):
                row[f"{part}_{whose}_{what}"] = draws.get(part, {}).get(whose, {}).get(what)
    follows = draws.get("score_follows_draws", {})
    return row | {
        "score_follows_draws": follows.get("mean"),
        "clients_with_correlation": follows.get("clients"),
        **origin_columns([record]),
    }


def _vanished(record: RunRecord, by_id: Mapping[RunId, RunRecord]) -> dict[str, Any]:
    """The vanished hits of a published run, if its run with exposed items is given too."""
    run = record.id
    exposed = by_id.get(replace(run, protocol=full_name(_EXPOSED, run.paper)))
    if short_name(run.protocol) != "published" or exposed is None:
        return {}
    gone = vanished(record, exposed)
    hits = gone["hits"]
    return {
        "hits": hits,
        "vanished": gone["vanished"],
        "vanished_share": gone["share"],
        "new_share": gone["new"] / hits if hits else None,
        AGAINST: folders_of([exposed]),
    }
