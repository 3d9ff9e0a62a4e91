"""Finished runs made by hand, for tests of what reads them."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fedrec.config.methods import resolve
from fedrec.config.papers import Artefact
from fedrec.config.protocol_file import load_protocols, protocol_named
from fedrec.evaluation.metrics import METRICS
from fedrec.files.checked_json import write_checked_json
from fedrec.files.parquet import write_table
from fedrec.plan.runs import RunId
from fedrec.plan.selection import runs_of
from fedrec.runs.record import IN_CATALOGUE, RunRecord
from tests.conftest import ROOT

PROTOCOLS = load_protocols(ROOT / "config/protocols.yaml")
RULES = ("best_validation", "best_test", "last")
SPLIT = "5p117" * 12 + "abcd"


def curve_of(final: float, rounds: int) -> list[float]:
    """A curve that rises to `final`."""
    return [final * (1 - 0.8 ** (round_ + 1)) for round_ in range(rounds)]


def write_run(
    results: Path,
    run: RunId,
    methods: Mapping[str, Any],
    *,
    final: float = 0.5,
    rounds: int = 10,
    ranks: Sequence[int] = (1, 20),
    ranks_at: Mapping[str, Sequence[int]] | None = None,
    final_at: Mapping[str, float] | None = None,
    seconds: float = 0.5,
    whole: bool = False,
    exact: Sequence[int] | None = None,
    has_exact: bool = True,
    diverged: int | None = None,
) -> RunRecord:
    """A run whose HR@10 rises to `final` on test, and to 0.9 of it on validation; other metrics are half.

    `ranks_at` and `final_at` give other ranks and values to the rounds of some rules. A `whole` one says of
    itself and of its rounds what the page shows besides. One that `diverged` in a round has `final` before
    it, if there is a round before, and nothing from it on. Ranks among all items are `exact`, by default those
    among candidates; none are kept of one that has none.
    """
    folder = results / run.folder
    settings, sources, _ = resolve(methods, run.method, run.paper, run.dataset)
    names = [(part, metric) for part in ("validation", "test") for metric in METRICS]
    scale = {
        (part, metric): (0.9 if part == "validation" else 1.0) * (1.0 if metric == "hr@10" else 0.5)
        for part, metric in names
    }
    rise = curve_of(final, rounds)
    if diverged is not None:
        rise[diverged - 1 :] = [0.0] * (rounds - diverged + 1)
    columns: dict[str, Any] = {"round": list(range(1, rounds + 1)), "loss": [1.0] * rounds}
    columns |= {f"{part}_{metric}": [scale[part, metric] * y for y in rise] for part, metric in names}
    write_table(folder / "curve.parquet", pa.table(columns), {})
    tables = [_ranks_table(rule, (ranks_at or {}).get(rule, ranks), exact) for rule in RULES]
    if not has_exact:
        tables = [table.drop_columns([IN_CATALOGUE]) for table in tables]
    write_table(folder / "ranks.parquet", pa.concat_tables(tables), {})
    times = {"round": columns["round"], "local_seconds": [seconds] * rounds, "server_seconds": [0.0] * rounds}
    if whole:
        times |= {
            "clients": [10] * rounds,
            "bytes_down_per_client": [4] * rounds,
            "bytes_up_per_client": [4] * rounds,
        }
    write_table(folder / "timing.parquet", pa.table(times), {})
    ends = dict.fromkeys(RULES, max(rise)) | dict(final_at or {})
    reached: dict[str, dict[str, dict[str, float]]] = {
        rule: {part: {} for part in ("validation", "test")} for rule in RULES
    }
    for rule, end in ends.items():
        for part, metric in names:
            reached[rule][part][metric] = scale[part, metric] * end
    protocol = protocol_named(PROTOCOLS, run.protocol)
    summary = {
        "dataset": run.dataset,
        "method": run.method,
        "paper": run.paper,
        "protocol": protocol.as_dict(),
        "seed": run.seed,
        "settings": settings,
        "sources": sources,
        "split": SPLIT,
        "code": "c0de" * 16,
        "rounds": {"best_validation": rounds - 1, "best_test": rounds, "last": rounds},
        "metrics": reached,
        "measured": {"seconds_per_round": seconds, "device": "a device"}
        | ({"seconds": 1.0, "peak_memory_bytes": 2**30, "versions": {"fedrec": "0"}} if whole else {}),
    }
    if diverged is not None:
        best = diverged - 1 if diverged > 1 else rounds
        summary["rounds"] = {"best_validation": best, "best_test": best, "last": rounds}
        summary["diverged"] = {"round": diverged, "why": f"round {diverged}: training diverged"}
    write_checked_json(folder / "run.json", summary)
    return RunRecord(folder)


def runs_below(results: Path) -> set[RunId]:
    """The runs that were made below a folder of results."""
    return {RunRecord(path.parent).id for path in results.rglob("run.json")}


def _ranks_table(rule: str, ranks: Sequence[int], exact: Sequence[int] | None) -> pa.Table:
    """What `ranks.parquet` holds of one rule's round: users 0, 1 and so on."""
    rank = pa.array(np.array(ranks, dtype=np.float32))
    users = pa.array(np.arange(len(ranks), dtype=np.int32))
    parts = [f"{part}_rank{where}" for part in ("validation", "test") for where in ("", "_in_catalogue")]
    of_users = {"at": [rule] * len(ranks), "user": users} | dict.fromkeys(parts, rank)
    if exact is not None:
        of_users[IN_CATALOGUE] = pa.array(np.array(exact, dtype=np.float32))
    return pa.table(of_users)


def write_rows(
    data: Path, dataset: str, protocol: str, rows: Sequence[int], items: int = 50, split: str = SPLIT
) -> None:
    """A split in which user u has rows[u] training rows."""
    user, part = [], []
    for number, count in enumerate(rows):
        user += [number] * (count + 2)
        part += ["train"] * count + ["validation", "test"]
    table = pa.table(
        {
            "user": pa.array(user, pa.int32()),
            "item": pa.array([0] * len(user), pa.int32()),
            "part": pa.array(part).dictionary_encode(),
        }
    )
    rules = protocol_named(PROTOCOLS, protocol).as_dict()
    about = {"users": len(rows), "items": items, "dropped_users": [], "split": split, "protocol": rules}
    write_table(data / dataset / protocol / "split.parquet", table, about)


def made(
    results: Path,
    artefact: Artefact,
    methods: Mapping[str, Any],
    datasets: Iterable[str],
    seeds: Sequence[int] = (0,),
    **more: Any,
) -> dict[tuple[int, str, str], list[RunRecord]]:
    """A run for everything an artefact shows; final values grow with the line and the seed.

    Where they have no split yet there is one of two users, with one and two training rows.
    """
    asked = runs_of(artefact, methods, seeds, set(artefact.datasets) - set(datasets))
    for _, dataset, protocol in asked:
        if not (results / "data" / dataset / protocol / "split.parquet").is_file():
            write_rows(results / "data", dataset, protocol, [1, 2])
    return {
        key: [
            write_run(results, run, methods, **({"final": 0.3 + 0.02 * key[0] + 0.01 * run.seed} | more))
            for run in runs
        ]
        for key, runs in asked.items()
    }
