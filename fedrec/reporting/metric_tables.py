"""Tables of metrics: ours under both protocols beside what the paper prints.

The csv is long and complete: one row per line, dataset, protocol and metric. To be read there
is one table per dataset, or one of all datasets for a single line, with a column for the printed
number, ours under the published protocol, their difference, and ours under the clean one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedrec.config.papers import Artefact, Line
from fedrec.config.printed import printed
from fedrec.reporting.plotted import Found, kinds_of, label_of
from fedrec.reporting.results import Result, spread
from fedrec.reporting.tables import Column, Row, Table

BEST_FEDERATED = "best federated"
"""Stands in a gain for the best of the other lines that the paper calls federated."""


def metric_rows(
    artefact: Artefact, found: Found, methods: Mapping[str, Any], inactive: Mapping[str, Sequence[int]]
) -> Sequence[Row]:
    """One row per line, dataset, protocol and metric; gains after what they compare.

    `inactive` gives, by dataset and where the artefact tells them apart, the users that count as inactive.
    """
    rows: list[dict[str, Any]] = []
    kinds = kinds_of(artefact)
    for dataset in artefact.datasets:
        for kind in kinds:
            for metric in artefact.metrics:
                values: dict[str, float] = {}
                for place, line in enumerate(artefact.lines):
                    row = _row(artefact, line, label_of(artefact, line, methods), dataset, kind, metric)
                    group = found.get((place, dataset, kind), ())
                    if group:
                        row |= _measured(artefact, line, group, metric, inactive.get(dataset))
                    elif line.run is None:
                        row |= _derived(artefact, line, values, methods)
                    if "value" in row:
                        values[row["line"]] = row["value"]
                    rows.append(_compared(row))
    return rows


def metric_tables(artefact: Artefact, rows: Sequence[Row], caption: str, notes: Sequence[str]) -> list[Table]:
    """One table per dataset; of an artefact of one line a single table, whose rows are the datasets."""
    if len(artefact.lines) == 1:
        # The best of several datasets would say nothing about the method.
        numbers = [replace(column, ranked=False) for column in _columns_of(artefact, rows)]
        columns = [Column("dataset", "dataset", align="left"), *numbers]
        return [Table(f"{caption} Method {rows[0]['line']}.", columns, _shown(rows, "dataset"), notes)]
    tables = []
    for dataset in artefact.datasets:
        of_dataset = [row for row in rows if row["dataset"] == dataset]
        columns = [Column("line", "method", align="left"), *_columns_of(artefact, of_dataset)]
        tables.append(Table(f"{caption} Dataset {dataset}.", columns, _shown(of_dataset, "line"), notes))
    return tables


def _shown(rows: Sequence[Row], by: str) -> list[dict[str, Any]]:
    """What is read of long rows: one row for each value of the column `by`."""
    shown: dict[str, dict[str, Any]] = {}
    for row in rows:
        one = shown.setdefault(row[by], {by: row[by]})
        if row["of_lines"]:
            one |= {"unranked": True, "form": "{:.2f}"}
        metric, kind = row["metric"], row["protocol"]
        for key, name in (("value", f"{metric}_{kind}"), ("sd", f"{metric}_{kind}_sd")):
            one[name] = row.get(key)
        if row.get("printed") is not None:
            one[f"{metric}_printed"] = row["printed"]
            one[f"{metric}_printed_sd"] = row.get("printed_sd")
        if kind == "published":
            one[f"{metric}_difference"] = row.get("difference")
    return list(shown.values())


def _columns_of(artefact: Artefact, rows: Sequence[Row]) -> list[Column]:
    return [column for metric in artefact.metrics for column in _columns(metric, rows)]


def _columns(metric: str, rows: Sequence[Row]) -> list[Column]:
    """The columns of a metric, of those there are numbers for."""
    name = metric.upper()
    possible = [
        Column(f"{metric}_printed", f"{name}, printed", "{:.4f}", ranked=True),
        Column(f"{metric}_published", f"{name}, published", "{:.4f}", ranked=True),
        Column(f"{metric}_difference", "difference", "{:+.4f}"),
        Column(f"{metric}_clean", f"{name}, clean", "{:.4f}", ranked=True),
    ]
    kinds = {row["protocol"] for row in rows}
    there = {
        "printed": any(row.get("printed") is not None for row in rows),
        "published": "published" in kinds,
        "difference": any(row.get("difference") is not None for row in rows),
        "clean": "clean" in kinds,
    }
    return [column for column in possible if there[column.key.removeprefix(f"{metric}_")]]


def _row(artefact: Artefact, line: Line, label: str, dataset: str, kind: str, metric: str) -> dict[str, Any]:
    """A row without our numbers: what it is about, and what the paper prints."""
    row: dict[str, Any] = {
        "paper": artefact.paper, "artefact": artefact.name, "dataset": dataset, "protocol": kind,
        "line": label, "method": line.run, "metric": metric, "of_lines": line.run is None,
    }  # fmt: skip
    number = printed(artefact.paper, artefact.printed, dataset, line.printed, metric)
    if line.run is None:
        for ending, sign in (("gain", 1), ("loss", -1)):
            wanted = f"{metric} relative {ending}"
            change = printed(artefact.paper, artefact.printed, dataset, line.printed, wanted)
            if change is not None:
                row["printed"] = sign * change.value
    elif number is not None:
        row |= {"printed": number.value, "printed_sd": number.sd}
    return row


def _measured(
    artefact: Artefact, line: Line, group: Sequence[Result], metric: str, inactive: Sequence[int] | None
) -> dict[str, Any]:
    """Our number over seeds, and where it comes from."""
    catalogue = artefact.options.get("ranks") == "catalogue"
    users = inactive if "inactive" in (line.label or "") else None
    if catalogue or users is not None:
        number = spread(one.metric_of(metric, catalogue=catalogue, users=users) for one in group)
    else:
        number = spread(one.metric(metric) for one in group)
    first = group[0].summary
    return {
        "value": number.mean, "sd": number.sd, "seeds": " ".join(str(one.run.seed) for one in group),
        "protocol_name": first["protocol"]["name"], "settings_of": first["paper"],
        "run": first["method"], "at": group[0].at, "round": first["rounds"][group[0].at],
        "split_hash": first["split"], "method_code": first["code"]["method"],
        "engine_code": first["code"]["engine"], "device": first["measured"]["device"],
    }  # fmt: skip


def _derived(
    artefact: Artefact, line: Line, values: Mapping[str, float], methods: Mapping[str, Any]
) -> dict[str, Any]:
    """A gain in percent, or the mean of gains, where all it is made of is there."""
    if line.mean:
        parts = [values[name] for name in line.mean if name in values]
        return {"value": sum(parts) / len(parts)} if len(parts) == len(line.mean) else {}
    assert line.gain is not None, "a line is a run, a gain or a mean"
    below, above = line.gain
    if below == BEST_FEDERATED:
        rivals = [
            label_of(artefact, other, methods)
            for other in artefact.lines
            if other.printed
            and other.printed[1] == "federated"
            and label_of(artefact, other, methods) != above
        ]
        base = max((values[name] for name in rivals if name in values), default=None)
    else:
        base = values.get(below)
    if base is None or above not in values or not base:
        return {}
    return {"value": 100 * (values[above] - base) / base}


def _compared(row: dict[str, Any]) -> dict[str, Any]:
    """The row with the difference from print, which is about the published protocol alone."""
    both = row.get("value") is not None and row.get("printed") is not None
    if both and row["protocol"] == "published":
        row["difference"] = row["value"] - row["printed"]
    return row


def notes_on(artefact: Artefact, unavailable: Mapping[str, str]) -> list[str]:
    """What a reader must know: the artefact's own note, and the datasets that cannot be had."""
    own: Iterable[str] = [artefact.options["note"]] if "note" in artefact.options else []
    missing = [
        f"{dataset}: not available here ({unavailable[dataset]})"
        for dataset in artefact.datasets
        if dataset in unavailable
    ]
    return [*own, *missing]
