"""The table of what uploads reveal: attackers' success on each method, beside what noise costs."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedrec.audit.uploads import FEW, attack_uploads
from fedrec.config.methods import title
from fedrec.config.names import parse
from fedrec.config.protocol import short_name
from fedrec.reporting.panels import distinct
from fedrec.reporting.results import Result, origins_told, provenance_of_rows, read_result
from fedrec.reporting.tables import Column, Row, Table, write_forms
from fedrec.runs.finished import Finished

_NOISE = ("ldp", "ldp_clip", "dp_noise")
"""Settings that guard uploads."""
_ATTACKERS = ("norm", "direction", "consecutive")
_UTILITY = "hr@10"


def write_uploads(folders: Sequence[Path], methods: Mapping[str, Any], out: Path) -> None:
    """Write the table of the runs in `folders`, which kept traffic (`out`.csv, .md, .tex)."""
    results = sorted((read_result(folder) for folder in folders), key=lambda result: result.run)
    rows = upload_rows(results, methods)
    write_forms(out, rows, upload_tables(rows, provenance_of_rows(rows)))


def upload_rows(results: Sequence[Result], methods: Mapping[str, Any]) -> list[Row]:
    """One row per run and uploaded item table."""
    plain = {
        (one.run.dataset, short_name(one.run.protocol), one.run.method, one.run.seed): one for one in results
    }
    rows = []
    for result in results:
        run = result.run
        print(f"{run.dataset}, {short_name(run.protocol)}: {run.method}", file=sys.stderr)
        without = plain.get((run.dataset, short_name(run.protocol), _without_noise(run.method), run.seed))
        opened = Finished(result.folder)
        for table, found in attack_uploads(opened.tensors, opened.clients).items():
            rows.append(_row(result, title(methods, run.method, ["rounds"]), table, found, without))
    return rows


def upload_tables(rows: Sequence[Row], about: Mapping[str, Sequence[str]]) -> list[Table]:
    """A table per dataset and protocol."""
    return [
        Table(
            caption=f"What uploads reveal on {dataset}, {kind} protocol: how well a server finds a client's "
            "training items in what it sends in one round (upload less download): by the length of a row's "
            "change, by its direction, and by the difference of two uploads one after the other. AUC 0.5 is "
            f"chance; precision at k, k the client's number of training items, beside its chance; the last "
            f"columns tell the test {_UTILITY.upper()} and what noise takes from it. Mean over watched "
            f"clients. {origins_told(about)}",
            columns=[
                Column("title", "method", align="left"),
                Column("table", "sends", align="left"),
                *(Column(f"{name}_auc", f"AUC, {name}", "{:.3f}") for name in _ATTACKERS),
                *(Column(f"{name}_precision_at_k", f"P@k, {name}", "{:.3f}") for name in _ATTACKERS),
                Column("chance", "chance", "{:.3f}"),
                Column("clients", "clients"),
                Column(_UTILITY, _UTILITY.upper(), "{:.4f}"),
                Column("utility_change", "change by noise", "{:+.4f}"),
            ],
            rows=[row for row in rows if (row["dataset"], row["protocol"]) == (dataset, kind)],
        )
        for dataset, kind in distinct((row["dataset"], row["protocol"]) for row in rows)
    ]


def _row(
    result: Result, name: str, table: str, found: Mapping[str, Mapping[str, Any]], without: Result | None
) -> Row:
    run, utility = result.run, result.metric(_UTILITY)
    row: dict[str, Any] = {
        "dataset": run.dataset, "paper": run.paper, "protocol": short_name(run.protocol),
        "method": run.method, "title": name, "seed": run.seed, "table": table,
        "clients": found["norm"]["clients"], "chance": found["norm"]["chance"],
    }  # fmt: skip
    for attacker in _ATTACKERS:
        for measure in ("auc", "auc_error", "precision_at_k", f"precision_at_{FEW}"):
            row[f"{attacker}_{measure}"] = found[attacker][measure]
    noised = without is not None and without.run != run
    return row | {
        _UTILITY: utility,
        "utility_change": utility - without.metric(_UTILITY) if without is not None and noised else None,
        "split_hash": result.summary["split"],
        "engine_code": result.summary["code"]["engine"],
        "method_code": result.summary["code"]["method"],
    }


def _without_noise(method: str) -> str:
    """The same method with unguarded uploads."""
    composition = parse(method)
    kept = tuple(change for change in composition.changes if change[0] not in _NOISE)
    return str(replace(composition, changes=kept))
