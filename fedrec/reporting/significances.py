"""Which differences between methods are more than chance: every method against the best, and popularity."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrec.audit.significance import ALPHA, Comparison, compare, holm, least_seeds, over_seeds
from fedrec.config.methods import title
from fedrec.config.names import parse
from fedrec.config.protocol import short_name
from fedrec.errors import ResultError
from fedrec.evaluation.metrics import per_user
from fedrec.reporting.panels import distinct
from fedrec.reporting.results import Result, origins_told, provenance_of_rows, read_result
from fedrec.reporting.tables import Column, Row, Table, write_forms
from fedrec.runs.finished import Finished

REFERENCE = "popularity"
_SHOWN = ("hr@10", "ndcg@10")
BEST, ABOVE = "ᵇ", "ᵖ"
MARKS = (
    f"{BEST} not significantly below the best of its column, {ABOVE} significantly above {REFERENCE}: "
    f"randomisation test over users, Holm-corrected, p < {ALPHA}."
)


def write_significances(folders: Sequence[Path], methods: Mapping[str, Any], out: Path) -> None:
    """Write the table of the runs in `folders` (`out`.csv, .md, .tex)."""
    results = sorted((read_result(folder) for folder in folders), key=lambda result: result.run)
    rows = significance_rows(results, methods)
    write_forms(out, rows, significance_tables(rows, provenance_of_rows(rows)))


def significance_rows(results: Sequence[Result], methods: Mapping[str, Any]) -> list[Row]:
    """One row per dataset, protocol, metric and method, compared with the best there and with popularity.

    Users are paired, each with its mean over seeds; p-values of one table are corrected together.
    """
    rows: list[Row] = []
    groups = distinct((one.run.dataset, short_name(one.run.protocol)) for one in results)
    for dataset, kind in groups:
        there = [one for one in results if (one.run.dataset, short_name(one.run.protocol)) == (dataset, kind)]
        origins = _origins(there)
        for metric in _SHOWN:
            found = _compared(_values(there, metric), dataset, kind, metric, methods)
            rows += [{**row, **origins[row["paper"], row["method"]]} for row in found]
    return rows


def significance_tables(rows: Sequence[Row], about: Mapping[str, Sequence[str]]) -> list[Table]:
    """A table per dataset, protocol and metric."""
    seeds = len(about["seeds"])
    return [
        Table(
            caption=f"Differences on {dataset} under the {kind} protocol: test {metric.upper()} of each "
            "method, less that of the best and of popularity, paired by user: mean difference, its 95 % "
            "bootstrap interval, matched-pairs rank-biserial correlation, and p of the randomisation test "
            "and of Wilcoxon's signed-rank test, Holm-corrected over the table. " + origins_told(about),
            columns=[
                Column("title", "method", align="left"),
                Column("value", metric.upper(), "{:.4f}", ranked=True),
                *_columns("best", "best"),
                *_columns("reference", REFERENCE),
            ],
            rows=[
                {**row, **_intervals(row)}
                for row in rows
                if (row["dataset"], row["protocol"], row["metric"]) == (dataset, kind, metric)
            ],
            notes=[_about_seeds(seeds)],
        )
        for dataset, kind, metric in distinct(
            (row["dataset"], row["protocol"], row["metric"]) for row in rows
        )
    ]


def marks(rows: Sequence[Row]) -> dict[tuple[str, str, str, str], str]:
    """By paper, method, protocol and metric, what a table writes behind a number: see `MARKS`."""
    found = {}
    for row in rows:
        to_best, to_reference = row.get("best_randomisation_holm"), row.get("reference_randomisation_holm")
        mark = BEST if to_best is not None and to_best >= ALPHA else ""
        above = to_reference is not None and to_reference < ALPHA and row["reference_difference"] > 0
        found[row["paper"], row["method"], row["protocol"], row["metric"]] = mark + (ABOVE if above else "")
    return found


def _columns(key: str, name: str) -> list[Column]:
    return [
        Column(f"{key}_difference", f"to {name} [interval]", "{:+.4f}"),
        Column(f"{key}_effect", f"effect, {name}", "{:+.2f}"),
        Column(f"{key}_randomisation_holm", f"p to {name}, randomisation", "{:.2g}"),
        Column(f"{key}_wilcoxon_holm", f"p to {name}, Wilcoxon", "{:.2g}"),
    ]


def _intervals(row: Row) -> Row:
    """What stands behind differences: so a difference can be sorted by and has its interval beside it."""
    return {
        f"{key}_difference_mark": f" {row[f'{key}_interval']}"
        for key in ("best", "reference")
        if row.get(f"{key}_interval") is not None
    }


def _about_seeds(seeds: int) -> str:
    needed = least_seeds(ALPHA)
    if seeds >= needed:
        return f"Tests over the {seeds} seeds are in the csv."
    return (
        f"A paired test over seeds can reach p < {ALPHA} with {needed} seeds at the least; there "
        f"{'is' if seeds == 1 else 'are'} {seeds}, so that differences between users are tested, and not "
        "those between repetitions."
    )


def _origins(results: Sequence[Result]) -> dict[tuple[str, str], Row]:
    """Of each method as a paper trains it, the seeds, splits and code of its runs."""
    found: dict[tuple[str, str], Row] = {}
    for key in distinct(map(_followed, results)):
        own = [one for one in results if _followed(one) == key]
        found[key] = {
            "seeds": " ".join(str(one.run.seed) for one in own),
            "split_hash": " ".join(distinct(one.summary["split"] for one in own)),
            "method_code": " ".join(distinct(one.summary["code"]["method"] for one in own)),
            "engine_code": " ".join(distinct(one.summary["code"]["engine"] for one in own)),
        }
    return found


def _followed(result: Result) -> tuple[str, str]:
    """The paper whose settings a run follows, and its method; runs alike in both differ in the seed."""
    return result.run.paper, result.run.method


def _values(results: Sequence[Result], metric: str) -> dict[tuple[str, str], NDArray[np.float64]]:
    """Of each method as a paper trains it, seeds x users; all have the same users."""
    found: dict[tuple[str, str], list[NDArray[np.float64]]] = {}
    everyone: NDArray[np.int32] | None = None
    for result in results:
        users, ranks = Finished(result.folder).ranks()
        everyone = users if everyone is None else everyone
        if not np.array_equal(users, everyone):
            raise ResultError(
                f"{result.folder}: has other users than {results[0].folder}, so that they cannot be paired. "
                "Train both on the same split."
            )
        found.setdefault(_followed(result), []).append(per_user(ranks, metric))
    return {key: np.stack(values) for key, values in found.items()}


def _compared(
    values: Mapping[tuple[str, str], NDArray[np.float64]],
    dataset: str,
    kind: str,
    metric: str,
    methods: Mapping[str, Any],
) -> list[Row]:
    mean = {key: float(found.mean()) for key, found in values.items()}
    order = sorted(values, key=lambda key: -mean[key])
    against = {"best": order[0]}
    reference = [key for key in order if parse(key[1]).name == REFERENCE]
    if reference:
        against["reference"] = reference[0]
    rows: dict[tuple[str, str], dict[str, Any]] = {
        (paper, method): {
            "dataset": dataset, "protocol": kind, "metric": metric, "paper": paper, "method": method,
            "title": title(methods, method, ["rounds"]), "value": mean[paper, method],
            "users": values[paper, method].shape[1],
        }
        for paper, method in order
    }  # fmt: skip
    for key, other in against.items():
        compared = {one: row for one, row in rows.items() if one != other}
        found = [compare(values[one].mean(0), values[other].mean(0)) for one in compared]
        for test in ("randomisation", "wilcoxon"):
            corrected = holm([getattr(one, test) for one in found])
            for row, one, p in zip(compared.values(), found, corrected, strict=True):
                row |= {f"{key}_{test}": getattr(one, test), f"{key}_{test}_holm": p}
        for (own, row), one in zip(compared.items(), found, strict=True):
            row |= {**_spelled(key, other[1], one), **_over_seeds(key, values[own], values[other])}
    return list(rows.values())


def _spelled(key: str, other: str, found: Comparison) -> Row:
    return {
        f"{key}": other,
        f"{key}_difference": found.difference,
        f"{key}_low": found.low,
        f"{key}_high": found.high,
        f"{key}_interval": f"[{found.low:+.4f}, {found.high:+.4f}]",
        f"{key}_effect": found.effect,
    }


def _over_seeds(key: str, own: NDArray[np.float64], other: NDArray[np.float64]) -> Row:
    if len(own) != len(other) or len(own) < least_seeds(ALPHA):
        return {}
    found = over_seeds(own.mean(1), other.mean(1))
    return {f"{key}_over_seeds": found.randomisation}
