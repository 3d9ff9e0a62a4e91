"""The table of uploads: the success of attackers on each method, and the cost of noise."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedrec.audit.uploads import FEW, attack_uploads
from fedrec.config.methods import Methods, title
from fedrec.config.names import parse
from fedrec.config.protocol import short_name
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import finished_runs, stem_of
from fedrec.reporting.provenance import origin_sentence, provenance_of_rows
from fedrec.reporting.tables.table import AGAINST, Chapter, ReportColumn, ReportTable, Row, write_forms
from fedrec.runs.provenance_columns import folders_of, origin_columns
from fedrec.runs.record import RunRecord

LAYOUT = Layout("table", needs=("runs", "states", "splits"), selection="upload_attack")
CHAPTER = Chapter(
    "Uploads: what a server can infer",
    "An attacker on the server ranks all items by what a client sent, and guesses which of them the "
    "client trained on. AUC 0.5 is guessing, 1 is complete knowledge. The last column shows how much noise "
    "lowers HR@10. Noise protects little where the AUC stays high.",
    order=5,
)
_NOISE = ("ldp", "ldp_clip", "dp_noise")
"""Settings that add noise to uploads."""
_ATTACKERS = ("norm", "direction", "consecutive")
_UTILITY = "hr@10"


def build(target: Target, project: Project) -> None:
    """Write the table of a target's runs, which recorded their uploads."""
    rows = upload_rows(finished_runs(target, project), project.methods)
    write_forms(stem_of(target, project), rows, upload_tables(rows), CHAPTER)


def upload_rows(records: Sequence[RunRecord], methods: Methods) -> list[dict[str, Any]]:
    """One row per run and uploaded item table."""
    by_id = {(run.id.dataset, run.protocol, run.id.method, run.id.seed): run for run in records}
    rows = []
    for record in records:
        run = record.id
        print(f"{run.dataset}, {run.protocol}: {run.method}", file=sys.stderr)
        unguarded = by_id.get((run.dataset, run.protocol, _without_noise(run.method), run.seed))
        for table, attacks in _attacks(record).items():
            rows.append(_row(record, title(methods, run.method, ["rounds"]), table, attacks, unguarded))
    return rows


def _attacks(record: RunRecord) -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """The attacks on the uploads of a run: stored with it, or computed from its model."""
    if record.audit is not None:
        attacks: Mapping[str, Mapping[str, Mapping[str, Any]]] = record.audit["uploads"]
        return attacks
    # Opened again, so that its tensors are freed afterwards.
    opened = RunRecord(record.folder)
    return attack_uploads(opened.tensors, opened.clients)


def upload_tables(rows: Sequence[Row]) -> list[ReportTable]:
    """A table per dataset and protocol."""
    origin = origin_sentence(provenance_of_rows(rows))
    tables: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        tables.setdefault((row["dataset"], row["protocol"]), []).append(row)
    return [_upload_table(own, origin) for own in tables.values()]


def _upload_table(rows: Sequence[Row], origin: str) -> ReportTable:
    """The table of rows on one dataset under one protocol."""
    papers = ", ".join(dict.fromkeys(row["paper"] for row in rows))
    return ReportTable(
        caption=f"What uploads reveal on {rows[0]['dataset']}, {short_name(rows[0]['protocol'])} protocol, "
        f"settings of {papers}: how well a server finds a client's training items in one upload. Attackers "
        "rank items by how far a row moved from the download (norm), by where it moved (direction), or by "
        "its change between two uploads (consecutive). AUC 0.5 is guessing. P@k is the precision among the "
        "first k items, k being the client's number of training items; “chance” is that of guessing. The "
        f"last columns show the test {_UTILITY.upper()} and how much noise changes it. Means over watched "
        f"clients. {origin}",
        columns=[
            ReportColumn("title", "method", align="left"),
            ReportColumn("table", "sends", align="left"),
            *(ReportColumn(f"{name}_auc", f"AUC, {name}", "{:.3f}") for name in _ATTACKERS),
            *(ReportColumn(f"{name}_precision_at_k", f"P@k, {name}", "{:.3f}") for name in _ATTACKERS),
            ReportColumn("chance", "chance", "{:.3f}"),
            ReportColumn("clients", "clients"),
            ReportColumn(_UTILITY, _UTILITY.upper(), "{:.4f}"),
            ReportColumn("utility_change", "change by noise", "{:+.4f}"),
        ],
        rows=rows,
    )


def _row(
    record: RunRecord,
    name: str,
    table: str,
    attacks: Mapping[str, Mapping[str, Any]],
    unguarded: RunRecord | None,
) -> dict[str, Any]:
    run, utility = record.id, record.metric(_UTILITY)
    row: dict[str, Any] = {
        "dataset": run.dataset, "paper": run.paper, "protocol": run.protocol, "method": run.method,
        "title": name, "table": table, "clients": attacks["norm"]["clients"],
        "chance": attacks["norm"]["chance"],
    }  # fmt: skip
    for attacker in _ATTACKERS:
        for measure in ("auc", "auc_error", "precision_at_k", f"precision_at_{FEW}"):
            row[f"{attacker}_{measure}"] = attacks[attacker][measure]
    without = unguarded if unguarded is not None and unguarded.id != run else None
    return row | {
        _UTILITY: utility,
        "utility_change": None if without is None else utility - without.metric(_UTILITY),
        **origin_columns([record]),
        AGAINST: [] if without is None else folders_of([without]),
    }


def _without_noise(method: str) -> str:
    """The same method with unguarded uploads."""
    composition = parse(method)
    changes = tuple(change for change in composition.changes if change[0] not in _NOISE)
    return str(replace(composition, changes=changes))
