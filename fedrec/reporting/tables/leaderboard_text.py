"""The answers of the leaderboard in sentences, computed from its rows, with the number of missing ones."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedrec.audit.significance import ALPHA
from fedrec.config.claims import NOT_COUNTED
from fedrec.reporting.tables.leaderboard_rows import (
    FEDERATED_KINDS,
    LEADING_METRIC,
    best_on_validation,
)

_Rows = Sequence[dict[str, Any]]
_METRIC_AND_PROTOCOL = "exact NDCG@10, clean protocol"
_FOUR_DIGITS = 0.00005


def answers(rows: _Rows) -> list[str]:
    """Answer three questions: does personalisation help, is federated as good as centralised, at which price?

    Rows of datasets that are not counted are left out.
    """
    counted = [row for row in rows if not row.get(NOT_COUNTED)]
    return [_personalisation(counted), _federated(counted), _price(counted)]


def not_counted_notes(rows: _Rows) -> list[str]:
    """Notes on datasets that the answers and mean ranks leave out, with the reason."""
    reasons = {row["dataset"]: row[NOT_COUNTED] for row in rows if row.get(NOT_COUNTED)}
    return [
        f"{dataset} is shown, but does not count in these answers and in mean ranks: {reason}."
        for dataset, reason in reasons.items()
    ]


def _personalisation(rows: _Rows) -> str:
    pairs = [row for row in rows if row["kind"] == "personalised" and row["backbone"]]
    done = [row for row in pairs if "backbone_difference" in row]
    question = "Does personalisation help once nothing leaks?"
    if not done:
        return (
            f"{question} No answer yet: {len(pairs)} of {len(pairs)} comparisons with a backbone lack "
            "finished searches or runs."
        )
    mean = float(np.mean([row["backbone_difference"] for row in done]))
    return (
        f"{question} In {len(done)} comparisons, a method whose clients keep item tables meets its "
        "backbone, both tuned by the same rule. By exact NDCG@10 it is "
        f"{_outcomes(done, 'backbone', 'in')}. By exact HR@10 it is {_outcomes(done, 'backbone_hr', 'in')}. "
        f"The mean difference is {mean:+.4f} ({_METRIC_AND_PROTOCOL}, {_rest_on(done)}; p below {ALPHA} "
        f"after Holm's correction).{_under_neutral(done)}{_lacking(len(pairs), len(done), 'comparisons')}"
    )


def _under_neutral(rows: _Rows) -> str:
    """The same comparisons under the neutral protocol."""
    there = [row for row in rows if "backbone_neutral_difference" in row]
    if not there:
        return ""
    return (
        f" Under the neutral protocol, {len(there)} of these have runs: by sampled HR@10 it is "
        f"{_outcomes(there, 'backbone_neutral', 'in')}."
    )


def _federated(rows: _Rows) -> str:
    question = "Does a federated method reach centralised training?"
    best, datasets = _best_federated(rows), len({row["dataset"] for row in rows})
    if not best:
        return f"{question} No answer yet: {datasets} of {datasets} datasets lack finished searches or runs."
    of_papers = _best_federated([row for row in rows if row["kind"] == "centralised" or row["is_of_papers"]])
    among_papers = f" Among the papers' methods: {_differences(of_papers)}." if of_papers else ""
    own = [row for row in best if not _twins(rows, row)]
    return (
        f"{question} We compare the best federated with the best centralised method, both chosen by sampled "
        f"NDCG@10 on validation: {_outcomes(own, 'central', 'on')} of {len(own)} (p below {ALPHA} after "
        f"Holm's correction). Differences: {_differences(best)}.{_equal_centralised(rows, best)}"
        f"{among_papers} All are in exact NDCG@10 ({_seeds(best)})."
        f"{_lacking(datasets, len(best), 'datasets')}"
    )


def _equal_centralised(rows: _Rows, best: _Rows) -> str:
    """A sentence on best federated methods that equal a centralised method, and so count for neither side."""
    return "".join(
        f" On {row['dataset']}, {row['title']} and the centralised {' and '.join(twins)} have the same "
        "number to four digits: this does not count."
        for row in best
        if (twins := _twins(rows, row))
    )


def _twins(rows: _Rows, row: dict[str, Any]) -> list[str]:
    """The centralised methods with the same number as a federated row: both may compute the same model."""
    return [
        other["title"]
        for other in rows
        if (other["dataset"], other["kind"]) == (row["dataset"], "centralised")
        and LEADING_METRIC in other
        and abs(other[LEADING_METRIC] - row[LEADING_METRIC]) < _FOUR_DIGITS
    ]


def _differences(rows: _Rows) -> str:
    return "; ".join(
        f"{row['dataset']}: {row['title']} {row['central_difference']:+.4f} "
        f"[{row['central_low']:+.4f}, {row['central_high']:+.4f}]"
        for row in rows
    )


def _price(rows: _Rows) -> str:
    question = "At which price?"
    best = _best_federated(rows)
    if not best:
        return f"{question} No answer yet: no federated method that could be compared has runs."
    least, most = (f"{end(row['megabytes_per_client'] for row in best):.1f}" for end in (min, max))
    moved = least if least == most else f"{least} to {most}"
    missing = [row["title"] for row in best if "auc" not in row]
    not_attacked = f". Uploads of {' and '.join(dict.fromkeys(missing))} were not attacked" if missing else ""
    attacked = [row["auc"] for row in rows if row["kind"] in FEDERATED_KINDS and "auc" in row]
    exposed = (
        f"Attacks on the uploads of {len(attacked)} federated methods find training items with an AUC of "
        f"{min(attacked):.2f} to {max(attacked):.2f}{not_attacked}."
        if attacked
        else "No uploads were attacked, so exposure is unknown."
    )
    return (
        f"{question} The best federated methods move {moved} MB per client in all of training, both ways "
        f"(clean protocol, {_rest_on(best)}). {exposed}"
    )


def _best_federated(rows: _Rows) -> list[dict[str, Any]]:
    """The federated row that is best on validation, on each dataset with a centralised one."""
    best_rows = []
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        there = [row for row in rows if row["dataset"] == dataset and LEADING_METRIC in row]
        best = best_on_validation(there, FEDERATED_KINDS)
        if best is not None and "central_difference" in best:
            best_rows.append(best)
    return best_rows


def _outcomes(rows: _Rows, side: str, where: str) -> str:
    """The numbers of rows that are better, worse and undecided by p after Holm's correction."""
    decided = [row[f"{side}_difference"] for row in rows if row[f"{side}_holm"] < ALPHA]
    better = sum(difference > 0 for difference in decided)
    worse, open_ = len(decided) - better, len(rows) - len(decided)
    return f"better {where} {better}, worse {where} {worse}, undecided {where} {open_}"


def _rest_on(rows: _Rows) -> str:
    return f"{', '.join(dict.fromkeys(row['dataset'] for row in rows))}, {_seeds(rows)}"


def _seeds(rows: _Rows) -> str:
    few, many = (end(row["seeds_shown"] for row in rows) for end in (min, max))
    number = str(few) if few == many else f"{few} to {many}"
    return f"{number} {'seed' if many == 1 else 'seeds'}"


def _lacking(whole: int, done: int, things: str) -> str:
    return "" if done == whole else f" {whole - done} of {whole} {things} lack finished searches or runs."
