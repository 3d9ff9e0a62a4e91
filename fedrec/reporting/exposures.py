"""The table of exposure: what the draws of finished runs tell, and whether their scores follow them."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrec.audit.exposure import Drawers, described, draw_counts, vanished
from fedrec.config.methods import title
from fedrec.config.protocol import full_name, short_name
from fedrec.plan.runs import RunId
from fedrec.reporting.panels import distinct
from fedrec.reporting.results import Result, origins_told, provenance_of_rows, read_result
from fedrec.reporting.tables import Column, Row, Table, write_forms
from fedrec.runs.finished import Finished

_AT_ONCE = 8
"""Runs whose draws are counted together: each takes a number for every client and item."""
_EXPOSED = "only-pool"
"""The runs whose clients may draw held-out items, and that differ from published ones in nothing else."""


def write_exposures(folders: Sequence[Path], methods: Mapping[str, Any], out: Path) -> None:
    """Write the table of the runs in `folders` (`out`.csv, .md, .tex)."""
    results = sorted((read_result(folder) for folder in folders), key=lambda result: result.run)
    by_run = {result.run: result for result in results}
    rows = [
        {
            "title": title(methods, result.run.method, ["rounds"]),
            **_row(result, found),
            **_vanished(result, by_run),
        }
        for result, found in _exposures(results)
    ]
    write_forms(out, rows, exposure_tables(rows, provenance_of_rows(rows)))


def exposure_tables(rows: Sequence[Row], about: Mapping[str, Sequence[str]]) -> list[Table]:
    """A table per dataset: each method under each protocol."""
    return [
        Table(
            caption=f"Exposure on {dataset}: how often a client drew its test item, and each of the items it "
            "is ranked against, as a training negative; the share of clients that never drew it, of "
            "candidates never drawn; Spearman's correlation of a candidate's draws and its score after the "
            "last round, mean over clients (a model that merely remembers draws shows -1); and the share of "
            "hits at 10 that vanish where held-out items may be drawn like any other, beside new hits for "
            "each old one. " + origins_told(about),
            columns=[
                Column("title", "method", align="left"),
                Column("protocol", "protocol", align="left"),
                Column("test_held_out_mean", "draws of the test item", "{:.2f}"),
                Column("test_candidates_mean", "of a candidate", "{:.2f}"),
                Column("test_held_out_never", "test item never drawn", "{:.3f}"),
                Column("test_candidates_never", "candidate never", "{:.3f}"),
                Column("score_follows_draws", "score follows draws", "{:+.3f}"),
                Column("vanished_share", "hits that vanish", "{:.3f}"),
                Column("new_share", "new hits", "{:.3f}"),
            ],
            rows=[row for row in rows if row["dataset"] == dataset],
        )
        for dataset in distinct(row["dataset"] for row in rows)
    ]


def _exposures(results: Sequence[Result]) -> Iterator[tuple[Result, Mapping[str, Any]]]:
    """What the draws of each run tell; those on one split are drawn together."""
    for split in distinct(result.summary["split"] for result in results):
        # The same rows may be drawn from under different rules.
        there = [result for result in results if result.summary["split"] == split]
        for protocol in distinct(result.summary["protocol"]["name"] for result in there):
            alike = [one for one in there if one.summary["protocol"]["name"] == protocol]
            for first in range(0, len(alike), _AT_ONCE):
                yield from _drawn_together(alike[first : first + _AT_ONCE])


def _drawn_together(results: Sequence[Result]) -> Iterator[tuple[Result, Mapping[str, Any]]]:
    # Models are opened one at a time: each may be large.
    drawers = [Drawers.of(Finished(result.folder)) for result in results]
    counts = draw_counts(Finished(results[0].folder).clients, drawers)
    for result, drawn in zip(results, counts, strict=True):
        print(
            f"{result.run.dataset}, {short_name(result.run.protocol)}: {result.run.method}", file=sys.stderr
        )
        yield result, described(Finished(result.folder), drawn)


def _row(result: Result, found: Mapping[str, Any]) -> Row:
    run, told = result.run, result.summary
    row: dict[str, Any] = {
        "dataset": run.dataset, "paper": run.paper, "protocol": short_name(run.protocol),
        "method": run.method, "seed": run.seed, "rounds": told["settings"]["rounds"],
        "draws_per_client": found.get("draws_per_client"),
    }  # fmt: skip
    for part in ("validation", "test"):
        for whose in ("held_out", "candidates"):
            for what in ("mean", "never"):
                row[f"{part}_{whose}_{what}"] = found.get(part, {}).get(whose, {}).get(what)
    follows = found.get("score_follows_draws", {})
    return row | {
        "score_follows_draws": follows.get("mean"),
        "clients_with_correlation": follows.get("clients"),
        "split_hash": told["split"],
        "engine_code": told["code"]["engine"],
        "method_code": told["code"]["method"],
    }


def _vanished(result: Result, by_run: Mapping[RunId, Result]) -> Row:
    """What becomes of a published run's hits, where the run with exposed items was given too."""
    run = result.run
    exposed = by_run.get(RunId(run.paper, run.dataset, full_name(_EXPOSED, run.paper), run.method, run.seed))
    if short_name(run.protocol) != "published" or exposed is None:
        return {}
    found = vanished(Finished(result.folder), Finished(exposed.folder))
    hits = found["hits"]
    return {
        "hits": hits,
        "vanished": found["vanished"],
        "vanished_share": found["share"],
        "new_share": found["new"] / hits if hits else None,
    }
