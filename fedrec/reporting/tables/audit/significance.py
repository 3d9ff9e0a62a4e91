"""Which differences between methods are more than chance: every method against the best, and popularity."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedrec.audit.differences import REFERENCE, difference_rows
from fedrec.audit.significance import ALPHA, least_seeds
from fedrec.config.protocol import short_name
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import finished_runs, of_one_protocol_seed, stem_of
from fedrec.reporting.diverged import diverged_notes, mark_of
from fedrec.reporting.evaluated import evaluated_notes, evaluated_records
from fedrec.reporting.exact import exact_notes
from fedrec.reporting.provenance import origin_sentence, provenance_of_rows
from fedrec.reporting.tables.table import Chapter, ReportColumn, ReportTable, Row, write_forms
from fedrec.runs.exact import metric_title

LAYOUT = Layout("table", needs=("runs", "evaluated"), selection="comparison")
CHAPTER = Chapter(
    "Significance: which differences are more than chance",
    "Every method is compared with the best of its table and with popularity, user by user. A difference "
    f"whose interval holds 0, or whose p is {ALPHA} or more, is no evidence that one method is better. "
    "Conclusions come from the clean protocol; the tables of others are folded.",
    order=4,
)


def build(target: Target, project: Project) -> None:
    """Write the table of differences between the runs of a target."""
    records = of_one_protocol_seed(finished_runs(target, project))
    theirs = evaluated_records(target, project, records)
    rows = difference_rows([*records, *theirs], project.methods)
    notes = [*exact_notes(records), *evaluated_notes(target, theirs)]
    write_forms(stem_of(target, project), rows, significance_tables(rows, notes), CHAPTER)


def significance_tables(rows: Sequence[Row], lacking: Sequence[str] = ()) -> list[ReportTable]:
    """A table per dataset, protocol and metric; below each what is `lacking`."""
    groups = dict.fromkeys((row["dataset"], row["protocol"], row["metric"]) for row in rows)
    return [
        ReportTable(
            caption=f"Differences on {dataset} under the {short_name(protocol)} protocol: test "
            f"{metric_title(metric)} of each method, minus that of the best and of popularity, paired by "
            "user. Columns: mean difference with its 95 % bootstrap interval, matched-pairs rank-biserial "
            "correlation, and p of the randomisation test and of Wilcoxon's signed-rank test, both with "
            "Holm's correction over the table. " + origin_sentence(provenance_of_rows(shown)),
            columns=[
                ReportColumn("title", "method", align="left"),
                ReportColumn("value", metric_title(metric), "{:.4f}", ranked=True),
                *_columns("best", "best"),
                *_columns("reference", REFERENCE),
            ],
            rows=[{**row, **_marks(row)} for row in shown],
            notes=[
                _seeds_note(len(provenance_of_rows(shown)["seeds"])),
                *diverged_notes(shown, "title"),
                *lacking,
            ],
            aside=protocol != "clean",
        )
        for dataset, protocol, metric in groups
        for shown in [
            [
                row
                for row in rows
                if (row["dataset"], row["protocol"], row["metric"]) == (dataset, protocol, metric)
            ]
        ]
    ]


def _columns(side: str, name: str) -> list[ReportColumn]:
    return [
        ReportColumn(f"{side}_difference", f"to {name} [interval]", "{:+.4f}"),
        ReportColumn(f"{side}_effect", f"effect, {name}", "{:+.2f}"),
        ReportColumn(f"{side}_randomisation_holm", f"p to {name}, randomisation", "{:.2g}"),
        ReportColumn(f"{side}_wilcoxon_holm", f"p to {name}, Wilcoxon", "{:.2g}"),
    ]


def _marks(row: Mapping[str, Any]) -> Row:
    """The marks behind numbers: an interval beside its difference, which stays sortable."""
    diverged = mark_of(row)
    return ({"value_mark": diverged} if diverged else {}) | {
        f"{side}_difference_mark": f" {row[f'{side}_interval']}"
        for side in ("best", "reference")
        if row.get(f"{side}_interval") is not None
    }


def _seeds_note(seeds: int) -> str:
    needed = least_seeds(ALPHA)
    if seeds >= needed:
        return f"Tests over the {seeds} seeds are in the csv."
    return (
        f"The tests are over users and say nothing about other seeds: a paired test over seeds needs "
        f"{needed} seeds to reach p < {ALPHA}, and the runs here have {seeds}."
    )
