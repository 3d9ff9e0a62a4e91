"""Tables of metrics: our numbers under both protocols beside the printed ones.

The csv is complete: one row per line, dataset, protocol and metric. The tables to read are one per dataset,
or one over all datasets for a single line. Their columns are the printed number, ours under the published
protocol, the difference, and ours under the clean protocol. A second table has the exact metrics of the same
lines.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from fedrec.config.papers import BEST_FEDERATED, BOTH, Artefact, Line
from fedrec.config.printed import printed
from fedrec.config.protocol import rules_name, short_name
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.runs import DIVERGED
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import ArtefactRuns, artefact_runs_of, stem_of
from fedrec.reporting.diverged import diverged_notes, mark_of
from fedrec.reporting.exact import EXACT_METRICS_NOTE, exact_notes
from fedrec.reporting.provenance import devices_of, mean_over_seeds, rounds_of
from fedrec.reporting.tables.draw_counter_note import draw_counter_sentences
from fedrec.reporting.tables.inactive_users import inactive_users
from fedrec.reporting.tables.paper_table import own_notes, table_caption, unavailable_notes
from fedrec.reporting.tables.table import (
    AGAINST,
    PRINTED,
    RUNS,
    ReportColumn,
    ReportTable,
    Row,
    write_forms,
)
from fedrec.runs.exact import EXACT_METRICS, exact_name, is_exact, metric_title
from fedrec.runs.provenance_columns import origin_columns
from fedrec.runs.record import RunRecord

LAYOUT = Layout("table", needs=("runs", "splits", "models"), optional={"users": ("interactions",)})
_ALL_DATASETS = "values"
"""The part of a table whose rows are datasets."""
_EXACT_SHOWN = ("exact_hr@10", "exact_ndcg@10", "exact_mrr@10")
"""The exact metrics that tables show; the csv has all."""
_DESCRIPTION = (
    "Numbers at the round that each protocol reports. Published: the paper's own protocol, which leaks the "
    "held-out item. Clean: fedrec's protocol without the leak.{} "
)
_DECIDING = (PRINTED, *(f"_{protocol}" for protocol in BOTH))
"""Endings of the keys of the deciding columns, which come first: pages are narrower than tables."""
_FURTHER_PROTOCOLS = {
    "neutral": " Neutral: as clean, but clients sample neither held-out items nor candidates as negatives.",
    "temporal": " Temporal: as clean, but one time splits all users; few take part.",
}
"""Descriptions of further protocols, for tables that have runs under them."""


def build(target: Target, project: Project) -> None:
    """Write the table of metrics of an artefact."""
    subject = artefact_runs_of(target, project)
    artefact = subject.artefact
    rows, exact = metric_rows(subject), exact_rows(subject)
    captions = {
        dataset: table_caption(artefact, records, _description(records))
        for dataset, records in _by_dataset(subject).items()
    }
    of_dataset = draw_counter_sentences(subject) | unavailable_notes(artefact, subject.unavailable)
    caption = table_caption(artefact, subject.records, _description(subject.records))
    tables = metric_tables(artefact, rows, caption, own_notes(artefact), of_dataset, captions)
    write_forms(stem_of(target, project), [*rows, *exact], with_exact(subject, tables, exact))


def _description(records: Sequence[RunRecord]) -> str:
    """A description of the numbers of a table, with the protocols that they are under."""
    there = {rules_name(run.protocol) for run in records}
    return _DESCRIPTION.format("".join(words for name, words in _FURTHER_PROTOCOLS.items() if name in there))


def with_exact(
    subject: ArtefactRuns, tables: Sequence[ReportTable], rows: Sequence[Row]
) -> list[ReportTable]:
    """Tables, each followed by that of the exact metrics of its lines; a note counts runs without them."""
    artefact = subject.artefact
    name = f"{artefact.title} ({artefact.paper}, {artefact.name})"
    caption = f"{name}, exact metrics of the same runs. {EXACT_METRICS_NOTE}The csv has metrics at 20, too."
    shown = replace(artefact, metrics=_EXACT_SHOWN)
    at_ten = [row for row in rows if row["metric"] in _EXACT_SHOWN]
    exact = {table.part: table for table in metric_tables(shown, at_ten, caption, [], {})}
    every: list[ReportTable] = []
    for table in tables:
        records = subject.records if table.part == _ALL_DATASETS else _by_dataset(subject)[table.part]
        notes = exact_notes(records)
        if table.part in exact:
            beside = exact[table.part]
            every += [table, replace(beside, notes=[*beside.notes, *notes], part=f"{table.part}-exact")]
        else:
            every.append(replace(table, notes=[*table.notes, *notes]))
    return every


def _by_dataset(subject: ArtefactRuns) -> dict[str, list[RunRecord]]:
    """The runs by dataset of an artefact; the list of a dataset may be empty."""
    return {
        dataset: [record for record in subject.records if record.id.dataset == dataset]
        for dataset in subject.artefact.datasets
    }


def exact_rows(subject: ArtefactRuns) -> list[dict[str, Any]]:
    """Rows of exact metrics, for datasets where any run has them; empty if the artefact's own are exact."""
    own = subject.artefact
    there = {record.id.dataset for record in subject.records if record.exact_metrics}
    if _is_exact(own) or not there:
        return []
    datasets = tuple(dataset for dataset in own.datasets if dataset in there)
    exact = replace(own, metrics=EXACT_METRICS, datasets=datasets, printed=None)
    groups = {
        key: group
        for key, group in subject.groups.items()
        if not any(record.leaves_out_candidates for record in group)
    }
    return metric_rows(replace(subject, artefact=exact, groups=groups))


def _is_exact(artefact: Artefact) -> bool:
    """Whether the metrics of an artefact are of ranks among all items."""
    return artefact.has_exact_ranks


def metric_rows(subject: ArtefactRuns) -> list[dict[str, Any]]:
    """One row per line, dataset, protocol and metric; gains after what they compare."""
    artefact = subject.artefact
    inactive = inactive_users(subject.data, artefact)
    compares = any(line.gain for line in artefact.lines)
    rows: list[dict[str, Any]] = []
    for dataset in artefact.datasets:
        for protocol in _protocols_on(subject, dataset):
            for metric in artefact.metrics:
                shown: dict[str, Row] = {}
                numbers: dict[str, dict[int, Row]] = {}
                for index, line in enumerate(artefact.lines):
                    row = _row(artefact, line, subject.label(line), dataset, protocol, metric)
                    group = subject.groups.get((index, dataset, protocol), ())
                    if group:
                        row |= _measured(artefact, line, group, metric, inactive.get(dataset))
                        if compares:
                            by_seed = _by_seed(artefact, line, group, metric, inactive.get(dataset))
                            numbers[row["line"]] = by_seed
                    elif line.run is None:
                        row |= _derived(subject, line, shown, numbers)
                    if "value" in row or DIVERGED in row:
                        shown[row["line"]] = row
                    rows.append(_compared(row))
    return rows


def _protocols_on(subject: ArtefactRuns, dataset: str) -> list[str]:
    """The protocols of an artefact on a dataset: published, clean, and further ones that have runs."""
    there = {protocol for _, of, protocol in subject.groups if of == dataset}
    return [name for name in subject.artefact.protocols if short_name(name) in BOTH or name in there]


def metric_tables(
    artefact: Artefact,
    rows: Sequence[Row],
    caption: str,
    notes: Sequence[str],
    of_dataset: Mapping[str, str],
    captions: Mapping[str, str] = MappingProxyType({}),
) -> list[ReportTable]:
    """One table per dataset, or for an artefact of one line a single table whose rows are the datasets.

    `of_dataset` has notes by dataset, `captions` the caption of a dataset's own table.
    """
    if not rows:
        return []
    if len(artefact.lines) == 1:
        # The best of several datasets says nothing about the method.
        numbers = [replace(column, ranked=False) for column in _columns_of(artefact, rows)]
        columns = [ReportColumn("dataset", "dataset", align="left"), *numbers]
        caption = f"{caption} Method {rows[0]['line']}."
        divergences = diverged_notes(_of_runs(rows), "dataset", "protocol")
        notes = [*notes, *_taken_over(rows), *divergences, *of_dataset.values()]
        return [ReportTable(caption, columns, _shown(rows, "dataset"), notes, _ALL_DATASETS)]
    tables = []
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        own = [row for row in rows if row["dataset"] == dataset]
        columns = [ReportColumn("line", "method", align="left"), *_columns_of(artefact, own)]
        about = f"{captions.get(dataset, caption)} Dataset {dataset}."
        divergences = diverged_notes(_of_runs(own), "line", "protocol")
        below = [
            *notes,
            *_taken_over(own),
            *divergences,
            *([of_dataset[dataset]] if dataset in of_dataset else []),
        ]
        tables.append(ReportTable(about, columns, _shown(own, "line"), below, dataset))
    return tables


def _of_runs(rows: Sequence[Row]) -> list[Row]:
    """The rows of runs, without those that are computed from other rows."""
    return [row for row in rows if not row["of_lines"]]


def _taken_over(rows: Sequence[Row]) -> list[str]:
    """A note on printed numbers that the paper copied from another paper."""
    whose = sorted({row["printed_of"] for row in rows if row.get("printed_of")})
    if not whose:
        return []
    return [
        f"A printed number with a name behind it ({', '.join(whose)}) equals that paper's to the last digit. "
        "So it was copied, not measured with these settings, and is not compared with ours."
    ]


def _shown(rows: Sequence[Row], by: str) -> list[dict[str, Any]]:
    """Long rows merged into the shown ones: one row for each value of the column `by`."""
    shown: dict[str, dict[str, Any]] = {}
    for row in rows:
        merged = shown.setdefault(row[by], {by: row[by]})
        if row["of_lines"]:
            merged |= {"unranked": True, "form": "{:.2f}"}
        metric, protocol = row["metric"], short_name(row["protocol"])
        for key, name in (("value", f"{metric}_{protocol}"), ("sd", f"{metric}_{protocol}_sd")):
            merged[name] = row.get(key)
        if mark := mark_of(row):
            merged |= {f"{metric}_{protocol}_mark": mark}
            if row.get("difference") is not None:
                merged |= {f"{metric}_difference_mark": mark}
        if row.get("printed") is not None:
            merged[f"{metric}_printed"] = row["printed"]
            merged[f"{metric}_printed_sd"] = row.get("printed_sd")
            if row.get("printed_of"):
                merged[f"{metric}_printed_mark"] = f" ({row['printed_of']})"
        if protocol == "published":
            merged[f"{metric}_difference"] = row.get("difference")
        for key in (RUNS, AGAINST):
            if row.get(key):
                merged[key] = list(dict.fromkeys([*merged.get(key, ()), *row[key]]))
    return list(shown.values())


def _columns_of(artefact: Artefact, rows: Sequence[Row]) -> list[ReportColumn]:
    """The columns of all metrics: printed, published and clean first, since they decide."""
    every = [column for metric in artefact.metrics for column in _columns(metric, rows)]
    return sorted(every, key=lambda column: not column.key.endswith(_DECIDING))


def _columns(metric: str, rows: Sequence[Row]) -> list[ReportColumn]:
    """The columns of a metric that have numbers."""
    name = metric_title(metric)
    further = dict.fromkeys(short_name(row["protocol"]) for row in rows if row.get("value") is not None)
    possible = [
        ReportColumn(f"{metric}_printed", f"{name}, printed", "{:.4f}", ranked=True),
        ReportColumn(f"{metric}_published", f"{name}, published", "{:.4f}", ranked=True),
        ReportColumn(f"{metric}_clean", f"{name}, clean", "{:.4f}", ranked=True),
        ReportColumn(f"{metric}_difference", f"{name}, published minus printed", "{:+.4f}"),
        *(
            ReportColumn(f"{metric}_{protocol}", f"{name}, {protocol}", "{:.4f}", ranked=True)
            for protocol in further
            if protocol not in BOTH and rules_name(protocol) == protocol
        ),
    ]
    protocols = {short_name(row["protocol"]) for row in rows}
    there = dict.fromkeys(further, True) | {
        "printed": any(row.get("printed") is not None for row in rows),
        "published": "published" in protocols,
        "difference": any(row.get("difference") is not None for row in rows),
        "clean": "clean" in protocols,
    }
    return [column for column in possible if there[column.key.removeprefix(f"{metric}_")]]


def _row(
    artefact: Artefact, line: Line, label: str, dataset: str, protocol: str, metric: str
) -> dict[str, Any]:
    """A row without our numbers: its line, dataset and metric, and the printed number."""
    row: dict[str, Any] = {
        "paper": artefact.paper, "artefact": artefact.name, "dataset": dataset, "protocol": protocol,
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
        row |= {"printed": number.value, "printed_sd": number.sd, "printed_of": number.taken_from}
    return row


def _measured(
    artefact: Artefact, line: Line, group: Sequence[RunRecord], metric: str, inactive: Sequence[int] | None
) -> dict[str, Any]:
    """Our number over seeds, and its origin.

    There is none if all runs diverged before it, or if one lacks the ranks of an exact metric: the mean of
    the others would be over different seeds.
    """
    numbered = [record for record in group if record.has_numbers()]
    if not numbered:
        return origin_columns(group)
    wanted = exact_name(metric) if _is_exact(artefact) else metric
    if is_exact(wanted) and not all(record.exact_metrics for record in numbered):
        return origin_columns(group)
    users = inactive if "inactive" in (line.label or "") else None
    number = mean_over_seeds(record.metric_of(wanted, users=users) for record in numbered)
    first = numbered[0].summary
    rule = numbered[0].round_rule
    return {
        "value": number.mean, "sd": number.sd, "settings_of": first["paper"], "run": first["method"],
        "at": rule, "round": rounds_of(group, rule), **origin_columns(group),
        "device": devices_of(group),
    }  # fmt: skip


def _by_seed(
    artefact: Artefact, line: Line, group: Sequence[RunRecord], metric: str, inactive: Sequence[int] | None
) -> dict[int, Row]:
    """Our number by seed, for seeds that have one."""
    measured = {record.id.seed: _measured(artefact, line, [record], metric, inactive) for record in group}
    return {seed: row for seed, row in measured.items() if "value" in row}


def _derived(
    subject: ArtefactRuns, line: Line, shown: Mapping[str, Row], numbers: Mapping[str, Mapping[int, Row]]
) -> dict[str, Any]:
    """A gain in percent, or a mean of gains, if all its parts have numbers; and the parts that diverged."""
    if line.mean:
        parts = [shown[name] for name in line.mean if name in shown]
        if len(parts) < len(line.mean):
            return {}
        return _gathered(parts) | _mean_of(parts)
    assert line.gain is not None, "a line is a run, a gain or a mean"
    below, above = line.gain
    compared = _federated(subject, above) if below == BEST_FEDERATED else [below]
    bases = [shown[label] for label in compared if label in shown]
    if not bases or above not in shown:
        return {}
    # Any line that diverged might have been the best.
    return _gathered([*bases, shown[above]]) | _gain(
        numbers[above], [numbers[base["line"]] for base in bases]
    )


def _gathered(parts: Sequence[Row]) -> dict[str, Any]:
    """The parts of a number that diverged; empty if none did."""
    diverged = list(dict.fromkeys(one for part in parts for one in part.get(DIVERGED, ())))
    return {DIVERGED: diverged} if diverged else {}


def _mean_of(parts: Sequence[Row]) -> dict[str, Any]:
    if any("value" not in part for part in parts):
        return {}
    return {"value": sum(part["value"] for part in parts) / len(parts)} | {
        key: list(dict.fromkeys(folder for part in parts for folder in part[key])) for key in (RUNS, AGAINST)
    }


def _gain(above: Mapping[int, Row], bases: Sequence[Mapping[int, Row]]) -> dict[str, Any]:
    """The gain of a line on the best of others, over the seeds that both have; None without such a line.

    Over different seeds, means would differ by the seeds, too.
    """
    shared = [above.keys() & base.keys() for base in bases]
    pairs = [
        (_over(base, seeds), _over(above, seeds)) for base, seeds in zip(bases, shared, strict=True) if seeds
    ]
    base, own = max(pairs, key=lambda pair: pair[0]["value"], default=(None, None))
    if base is None or own is None or not base["value"]:
        return {}
    gain = 100 * (own["value"] - base["value"]) / base["value"]
    return {"value": gain, RUNS: own[RUNS], AGAINST: base[RUNS]}


def _over(line: Mapping[int, Row], seeds: Collection[int]) -> Row:
    """The mean of a line over some of its seeds, and the runs of these seeds."""
    some = [row for seed, row in line.items() if seed in seeds]
    value = mean_over_seeds(row["value"] for row in some).mean
    return {"value": value, RUNS: [folder for row in some for folder in row[RUNS]]}


def _federated(subject: ArtefactRuns, but: str) -> list[str]:
    """The lines that the paper calls federated, but for one."""
    return [
        subject.label(line)
        for line in subject.artefact.lines
        if line.is_called_federated and subject.label(line) != but
    ]


def _compared(row: dict[str, Any]) -> dict[str, Any]:
    """The row with its difference from print, for the published protocol only.

    A number that the paper copied from another one is not compared.
    """
    both = row.get("value") is not None and row.get("printed") is not None and not row.get("printed_of")
    if both and short_name(row["protocol"]) == "published":
        row["difference"] = row["value"] - row["printed"]
    return row
