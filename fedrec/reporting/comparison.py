"""Methods side by side: HR and NDCG of the reported round, under each protocol."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedrec.reporting.significances import MARKS
from fedrec.reporting.tables import Column, Row, Table

_SHOWN = ("hr@10", "ndcg@10")


def comparison_rows(runs: Sequence[Mapping[str, Any]]) -> list[Row]:
    """One row per method, paper and protocol: metrics of the protocol's own round, mean over seeds."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for run in runs:
        groups.setdefault((run["method"], run["paper"], run["protocol"]["name"]), []).append(run)
    return [_row(*key, group) for key, group in groups.items()]


def comparison_table(rows: Sequence[Row], dataset: str, titles: Mapping[str, str]) -> Table:
    """The published and the clean protocol beside each other, best methods first under clean.

    `titles` holds what each method is called in the table.
    """
    merged: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        kind = "clean" if row["protocol"] == "clean" else "published"
        one = merged.setdefault(
            (row["method"], row["paper"]), {"method": titles[row["method"]], "paper": row["paper"]}
        )
        one |= {f"{name}_{kind}": row[name] for name in (*_SHOWN, "seconds_per_round")}
        one |= {f"{name}_{kind}_mark": row.get(f"{name}_mark") or "" for name in _SHOWN}
    shown = sorted(merged.values(), key=lambda row: -row.get("hr@10_clean", 0.0))
    hashes = sorted({str(row["split_hash"])[:8] for row in rows})
    seeds = sorted({str(row["seeds"]) for row in rows})
    # One round says all there is to say of popularity.
    rounds = sorted({int(row["rounds"]) for row in rows} - {1})
    return Table(
        caption=f"Methods on {dataset}: test HR@10 and NDCG@10 at the round each protocol reports, under the "
        "paper's published protocol, which leaks the held-out item, and under the clean one. Settings of the "
        f"paper named, but for those in brackets; trained for {' or '.join(map(str, rounds))} rounds. "
        f"Seeds {', '.join(seeds)}; splits {', '.join(hashes)}; "
        "hashes of code are in the csv.",
        columns=[
            Column("method", "method", align="left"),
            Column("paper", "settings of", align="left"),
            *(
                Column(f"{name}_{kind}", f"{name.upper()}, {kind}", "{:.4f}")
                for kind in ("published", "clean")
                for name in _SHOWN
            ),
            Column("seconds_per_round_clean", "s a round", "{:.3f}"),
        ],
        rows=shown,
        notes=[MARKS] if any(row.get(f"{name}_mark") for row in rows for name in _SHOWN) else [],
    )


def _row(method: str, paper: str, protocol: str, runs: Sequence[Mapping[str, Any]]) -> Row:
    rule = runs[0]["protocol"]["round_rule"]
    found = [run["metrics"][rule]["test"] for run in runs]
    metrics = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
    spread = (
        {f"{name}_sd": float(np.std([one[name] for one in found], ddof=1)) for name in found[0]}
        if len(found) > 1
        else {}
    )
    return {
        "method": method,
        "paper": paper,
        "protocol": protocol,
        "round_rule": rule,
        "round": runs[0]["rounds"][rule],
        "rounds": runs[0]["settings"]["rounds"],
        "seeds": " ".join(str(run["seed"]) for run in runs),
        **metrics,
        **spread,
        "seconds_per_round": float(np.median([run["measured"]["seconds_per_round"] for run in runs])),
        "device": runs[0]["measured"]["device"],
        "split_hash": runs[0]["split"],
        "method_code": runs[0]["code"]["method"],
        "engine_code": runs[0]["code"]["engine"],
    }
