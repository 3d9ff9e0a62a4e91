"""The answers of the leaderboard in words with numbers: made from its rows, and saying what they lack."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedrec.audit.significance import ALPHA
from fedrec.reporting.tables.leaderboard_rows import (
    FEDERATED_KINDS,
    LEADING_METRIC,
    best_on_validation,
)

_Rows = Sequence[dict[str, Any]]
_WHERE = "exact NDCG@10, clean protocol"


def answers(rows: _Rows) -> list[str]:
    """Whether personalisation helps, whether federated training reaches centralised, and at what price."""
    return [_personalisation(rows), _federated(rows), _price(rows)]


def _personalisation(rows: _Rows) -> str:
    pairs = [row for row in rows if row["kind"] == "personalised" and row["backbone"]]
    done = [row for row in pairs if "backbone_difference" in row]
    asked = "Does personalisation help once nothing leaks? "
    if not done:
        return (
            f"{asked}No answer yet: none of {len(pairs)} comparisons with a backbone tuned alike has "
            "finished "
            "searches and runs."
        )
    mean = float(np.mean([row["backbone_difference"] for row in done]))
    return (
        f"{asked}Of {len(done)} comparisons with its own backbone tuned alike, it is "
        f"{_outcomes(done, 'backbone')}. "
        f"The mean difference is {mean:+.4f} ({_WHERE}, {_rest_on(done)}).{_lacking(len(pairs), len(done))}"
    )


def _federated(rows: _Rows) -> str:
    asked = "Does a federated method reach centralised training? "
    best, datasets = _best_federated(rows), list(dict.fromkeys(row["dataset"] for row in rows))
    if not best:
        return (
            f"{asked}No answer yet: on none of {len(datasets)} datasets both have finished searches and runs."
        )
    parts = "; ".join(
        f"{row['dataset']}: {row['title']} {row['central_difference']:+.4f} "
        f"[{row['central_low']:+.4f}, {row['central_high']:+.4f}]"
        for row in best
    )
    return (
        f"{asked}The federated method that is best on validation is {_outcomes(best, 'central')}, of "
        f"{len(best)} "
        f"datasets. Differences to the best centralised one: {parts} ({_WHERE}, {_seeds(best)})."
        f"{_lacking(len(datasets), len(best), 'datasets')}"
    )


def _price(rows: _Rows) -> str:
    asked = "At what price? "
    best = _best_federated(rows)
    if not best:
        return f"{asked}No answer yet: no federated method that could be compared has runs."
    least, most = (end(row["megabytes_per_client"] for row in best) for end in (min, max))
    moved = f"{least:.1f}" if f"{least:.1f}" == f"{most:.1f}" else f"{least:.1f} to {most:.1f}"
    attacked = [row["auc"] for row in best if "auc" in row]
    exposed = (
        f"Of {len(attacked)} of {len(best)}, uploads were attacked: training items are found with an AUC of "
        f"{max(attacked):.2f} at most."
        if attacked
        else f"Uploads were attacked of none of {len(best)}: nothing is known of their exposure."
    )
    return (
        f"{asked}These methods move {moved} MB per client in training, both ways (clean protocol, "
        f"{_rest_on(best)}). {exposed}"
    )


def _best_federated(rows: _Rows) -> list[dict[str, Any]]:
    """Of each dataset the federated row that is best on validation, where a centralised one is there."""
    found = []
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        there = [row for row in rows if row["dataset"] == dataset and LEADING_METRIC in row]
        best = best_on_validation(there, FEDERATED_KINDS)
        if best is not None and "central_difference" in best:
            found.append(best)
    return found


def _outcomes(rows: _Rows, side: str) -> str:
    """How many rows are better, worse, and not told apart, by p after Holm."""
    told = [row[f"{side}_difference"] for row in rows if row[f"{side}_holm"] < ALPHA]
    better = sum(difference > 0 for difference in told)
    words = f"better in {better}, worse in {len(told) - better}, not told apart in {len(rows) - len(told)}"
    return f"{words} (p after Holm, {ALPHA})"


def _rest_on(rows: _Rows) -> str:
    return f"{', '.join(dict.fromkeys(row['dataset'] for row in rows))}, {_seeds(rows)}"


def _seeds(rows: Sequence[Mapping[str, Any]]) -> str:
    few, many = (end(row["seeds_shown"] for row in rows) for end in (min, max))
    number = str(few) if few == many else f"{few} to {many}"
    return f"{number} {'seed' if many == 1 else 'seeds'}"


def _lacking(whole: int, done: int, what: str = "comparisons") -> str:
    if done == whole:
        return ""
    return f" Of {whole} {what}, {whole - done} lack finished searches or runs."
