"""How many of the printed numbers have ours beside them, how many agree, and why the others do not.

Ours are taken from the csv of every table of a paper that was built, and of figures whose numbers a paper
says, under the published protocol, which is what the papers print. Causes are data: `reference: causes:` of
the configuration says which cells have which, and of some how much they can explain at most. A number that
a paper took over from another one is none of its own settings, and counts as that. Of others, a setting
that had to be searched for is one that the paper does not state; what differs without any such cause is
unexplained.
"""

import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from fedrec.config.method_entries import SEARCHED
from fedrec.config.methods import resolve
from fedrec.config.papers import BEST_FEDERATED, Artefact, Line, artefacts_of
from fedrec.config.printed import Printed, PrintedKey, published
from fedrec.config.protocol import short_name
from fedrec.evaluation.metrics import METRICS
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.runs import DIVERGED
from fedrec.plan.targets import Target, files_of
from fedrec.reporting.diverged import WHAT_IS_SHOWN, rounds_words
from fedrec.reporting.subject import stem_of, subject_of
from fedrec.reporting.tables.table import (
    DIVERGED_MARK,
    Chapter,
    ReportColumn,
    ReportTable,
    Row,
    write_forms,
)

LAYOUT = Layout("table")
AGREES, DIVERGES, NOT_RUN, UNEXPLAINED = "agrees", "diverges", "not run yet", "unexplained"
UNSTATED = "setting unstated"
ONE_SEED = "one seed"
TAKEN_OVER = "taken over"
_NOT_TO_BE_HAD = "dataset not to be had"
"""The cause for which there will never be a number of ours."""
POINTS = 0.02
"""How far ours may be from a printed fraction, and by what share of it from a printed count, to agree."""
CHAPTER = Chapter(
    "Coverage: every printed number, and ours",
    "Each printed number beside ours under the protocol that the papers use, and under the clean one. Where "
    "ours differ, or there is none, the cause is named.",
    order=0,
)
_METRICS = {
    **{name: name for name in ("users", "items", "interactions", "sparsity", "share_of_users")},
    **{name: name for name in ("space_client", "space_server", "parameters", "epochs", "time_total")},
    "seconds": "time_per_round",
    "rate": "learning_rate",
}
"""Columns of tables that are not of metrics, and what the printed numbers call them."""
_FORMS = {
    "fraction": "{:.4f}",
    "percent": "{:.2f}",
    "count": "{:,.0f}",
    "MB": "{:,.4f}",
    "s": "{:,.4f}",
    "": "{:g}",
}
"""How numbers of each unit are spelt, in print and ours; what has no unit is a rate."""
_SHARES = {
    "share_above_0.1": "share of |C| entries above 1e-1",
    "share_above_0.01": "share of |C| entries above 1e-2",
}
"""Columns of the heat maps of tables, of which print has those of the shared one, in percent."""
_OF_TRAINING = ("epochs", "time_total")
"""Those of them that a run that diverged has no proper number of."""
_RANKINGS = tuple(dict.fromkeys(metric.partition("@")[0].upper() for metric in METRICS))
_CHANGES = (("relative gain", 1.0), ("relative loss", -1.0))
_FIELDS = ("paper", "table", "dataset", "method", "variant", "metric")


@dataclass(frozen=True)
class Ours:
    """Our number under the published and under the clean protocol, and the runs behind them."""

    published: float | None = None
    clean: float | None = None
    runs: tuple[str, ...] = ()
    diverged: Mapping[str, str] = field(default_factory=dict)
    """By `published` and `clean`, in words in which round runs behind it diverged, where any did."""
    searched: tuple[str, ...] = ()
    """Settings behind it that the paper does not state, so that they were searched for."""


def build(target: Target, project: Project) -> None:
    """Write the table of all printed numbers, by the tables and figures of papers that a target names."""
    rows = coverage_rows(ours_in(project, target.content["sources"]), target.content["causes"])
    write_forms(stem_of(target, project), rows, coverage_tables(rows), CHAPTER)


def coverage_rows(ours: Mapping[PrintedKey, Ours], causes: Sequence[Mapping[str, Any]]) -> list[Row]:
    """One row per printed number: ours, whether they agree, and the cause where they do not."""
    rows: list[Row] = []
    for key, number in published().items():
        own = ours.get(key)
        found = Ours() if own is None else own
        difference = None if found.published is None else found.published - number.value
        cause = _cause(key, number, difference, causes)
        row: dict[str, Any] = {
            **dict(zip(_FIELDS, key, strict=True)),
            "unit": number.unit,
            "printed": number.value,
        }
        row |= {"published": found.published, "clean": found.clean, "runs": list(found.runs)}
        if difference is not None:
            row["difference"] = difference
        row["standing"], row["why"] = _standing(number, own, cause)
        row |= {f"{protocol}_{DIVERGED}": words for protocol, words in found.diverged.items()}
        rows.append(row)
    return _agreeing_in_the_mean(rows)


def _agreeing_in_the_mean(rows: Sequence[Row]) -> list[Row]:
    """The rows, of which those of one seed say so whose printed number another table has, and there agrees.

    That is a number of the same runs with others among them: papers print the mean over five seeds wherever
    they print it.
    """
    agreeing: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        if row["standing"] == AGREES:
            agreeing.setdefault(_what_is_printed(row), []).append(row)
    settled = []
    for row in rows:
        runs = _published_runs(row)
        if row["standing"] not in (AGREES, TAKEN_OVER, DIVERGES) and len(runs) == 1:
            others = [one for one in agreeing.get(_what_is_printed(row), []) if runs < _published_runs(one)]
            if others:
                seeds = len(_published_runs(others[0]))
                why = f"ours is of one seed; in {others[0]['table']}, the mean over {seeds} seeds, it agrees"
                row = {**row, "standing": ONE_SEED, "why": why}
        settled.append(row)
    return settled


def _what_is_printed(row: Row) -> tuple[object, ...]:
    return tuple(row[key] for key in ("paper", "dataset", "metric", "unit", "printed"))


def _published_runs(row: Row) -> set[str]:
    """The runs behind our number under the published protocol."""
    return {folder for folder in row["runs"] if "/published-" in folder}


def coverage_tables(rows: Sequence[Row]) -> list[ReportTable]:
    """A table of counts by paper, and one of all numbers."""
    kinds = list(dict.fromkeys(_ordered({str(row["standing"]) for row in rows})))
    counts = []
    for paper in [*dict.fromkeys(row["paper"] for row in rows), "all"]:
        own = [row for row in rows if paper in ("all", row["paper"])]
        reached = Counter(row["standing"] for row in own)
        with_ours = sum(row["published"] is not None for row in own)
        counts.append({"paper": paper, "printed": len(own), "ours": with_ours, **reached})
    summary = ReportTable(
        f"Of {len(rows):,} printed numbers, how many have ours beside them under the papers' own protocol, "
        f"and how many agree: fractions within {POINTS * 100:g} points, gains within {POINTS * 100:g} points "
        f"of percent, counts, sizes and times within {POINTS:.0%}. The others by cause.{_diverging(kinds)} "
        f"{_ranked(rows)}",
        [
            ReportColumn("paper", "paper", align="left"),
            ReportColumn("printed", "printed"),
            ReportColumn("ours", "have ours"),
            *(ReportColumn(kind, kind) for kind in kinds),
        ],
        [dict.fromkeys(kinds, 0) | row for row in counts],
        part="counts",
    )
    headings = {"published": "ours, published", "clean": "ours, clean"}
    numbers = ReportTable(
        "Every printed number, ours under both protocols, and the difference of ours under the published one "
        "from print.",
        [
            *(ReportColumn(name, name, align="left") for name in _FIELDS),
            ReportColumn("printed", "printed"),
            *(ReportColumn(name, heading) for name, heading in headings.items()),
            ReportColumn("difference", "difference", "{:+}"),
            ReportColumn("standing", "standing", align="left"),
            ReportColumn("why", "why", align="left"),
        ],
        [{**row, **_marks(row), "form": _FORMS[row["unit"]]} for row in rows],
        [f"{DIVERGED_MARK} A run behind it diverged. {WHAT_IS_SHOWN}"] if any(map(_marks, rows)) else (),
        part="numbers",
        aside=True,
    )
    return [summary, numbers]


def _ranked(rows: Sequence[Row]) -> str:
    """What of it is of rankings, and not of sizes, settings or times, which agree more easily."""
    ranked = [row for row in rows if row["metric"] in METRICS]
    ours, agreeing = (
        sum(row["published"] is not None for row in ranked),
        sum(row["standing"] == AGREES for row in ranked),
    )
    printed = {row["metric"].partition("@")[0].upper() for row in ranked}
    names = ", ".join(name for name in _RANKINGS if name in printed)
    return (
        f"Of the {len(ranked):,} numbers of rankings themselves ({names}) {ours:,} have ours, "
        f"and {agreeing:,} agree."
    )


def _diverging(kinds: Iterable[str]) -> str:
    if DIVERGES not in kinds:
        return ""
    return (
        f" What {DIVERGES} was run at stated settings, and its training left the finite numbers: the number "
        "from before is not counted as agreeing, near as it may be."
    )


def _marks(row: Row) -> dict[str, str]:
    """What stands behind our numbers of a row."""
    return {
        f"{protocol}_mark": DIVERGED_MARK
        for protocol in ("published", "clean")
        if row.get(f"{protocol}_{DIVERGED}")
    }


def ours_in(project: Project, names: Iterable[str]) -> dict[PrintedKey, Ours]:
    """Our number for each printed one that a built table or figure of a paper shows."""
    ours: dict[PrintedKey, Ours] = {}
    built = set(names)
    for artefact in artefacts_of(project.papers, project.papers):
        if artefact.target not in built:
            continue
        path = project.results / files_of(artefact.form, artefact.target)[0]
        with path.open(encoding="utf-8", newline="") as stream:
            for key, protocol, number in _numbers(project, artefact, csv.DictReader(stream)):
                before = ours.get(key, Ours())
                kept = {"published": before.published, "clean": before.clean, protocol: number.value}
                ours[key] = Ours(
                    **kept,
                    runs=tuple(dict.fromkeys((*before.runs, *number.runs))),
                    diverged={**before.diverged, **({protocol: number.diverged} if number.diverged else {})},
                    searched=number.searched,
                )
    return ours


@dataclass(frozen=True)
class _OurNumber:
    """A number of a csv, if there is one, its runs, in words in which round they diverged, if any did, and
    which of their settings were searched for.
    """

    value: float | None
    runs: Sequence[str]
    diverged: str
    searched: tuple[str, ...]


def _numbers(
    project: Project, artefact: Artefact, rows: Iterable[Mapping[str, str]]
) -> Iterator[tuple[PrintedKey, str, _OurNumber]]:
    """The printed number that each number of a csv stands beside, under which protocol, and that one."""
    subject = subject_of(project.target(artefact.target), project)
    lines = {subject.label(line): line for line in artefact.lines if line.run or line.label}
    for row in rows:
        table = artefact.printed or row.get("printed_in", "").partition(", ")[2]
        protocol = short_name(row.get("protocol") or "published")
        line = lines.get(row.get("line") or row.get("method") or "")
        for metric, factor, text in _values(row):
            key = _key_of(artefact.paper, table, row["dataset"], line.printed if line else None, metric)
            diverged = _divergence(row, metric)
            if key is not None and (text or diverged) and protocol in ("published", "clean"):
                value = factor * float(text) if text else None
                searched = searched_settings(project, artefact, lines, line, row["dataset"])
                yield key, protocol, _OurNumber(value, row.get("runs", "").split(), diverged, searched)


def searched_settings(
    project: Project, artefact: Artefact, lines: Mapping[str, Line], line: Line | None, dataset: str
) -> tuple[str, ...]:
    """Settings of a line, or of those that it compares or averages, that searches found."""
    found: dict[str, None] = {}
    for run in _runs_behind(line, lines) if line is not None else ():
        _, sources, _ = resolve(project.methods, run, artefact.paper, dataset)
        found |= dict.fromkeys(name for name, source in sources.items() if source.startswith(SEARCHED))
    return tuple(found)


def _runs_behind(line: Line, lines: Mapping[str, Line]) -> list[str]:
    """The methods of a line, and of all lines that it is made of."""
    labels = [*(line.gain or ()), *line.mean]
    if BEST_FEDERATED in labels:
        labels += [label for label, one in lines.items() if one.is_called_federated]
    parts = [run for label in labels if label in lines for run in _runs_behind(lines[label], lines)]
    return list(dict.fromkeys([*([line.run] if line.run is not None else []), *parts]))


def _divergence(row: Mapping[str, str], metric: str) -> str:
    """In words in which round runs behind a number diverged; empty where none did, or it tells nothing."""
    found = row.get(DIVERGED, "").split()
    if not found or ("metric" not in row and metric not in _OF_TRAINING):
        return ""
    seeds = row.get("seeds", "").split()
    # A gain is made of rows, and has no seeds of its own.
    first = min(found, key=lambda one: int(one.partition(":")[2]))
    return rounds_words(found, len(seeds)) if seeds else rounds_words([first], 1)


def _values(row: Mapping[str, str]) -> Iterator[tuple[str, float, str]]:
    """What the numbers of a row of a csv are called in print, how many times as large, and they."""
    if "metric" in row:
        yield row["metric"], 1.0, row.get("value", "")
        for ending, sign in _CHANGES:
            yield f"{row['metric']} {ending}", sign, row.get("value", "")
        return
    for column, metric in _METRICS.items():
        if column in row:
            # A table without protocols, as that of statistics, has its printed numbers beside ours.
            yield metric, 1.0, row[column]
    for column, metric in _SHARES.items():
        if row.get("table") == "shared":
            yield metric, 100.0, row.get(column, "")


def _key_of(
    paper: str, table: str, dataset: str, line: tuple[str, str] | None, metric: str
) -> PrintedKey | None:
    """The one printed number that is meant; None where there is none, or more than one."""
    if line is not None:
        key = (paper, table, dataset, *line, metric.lower())
        return key if key in published() else None
    found = _by_cell().get((paper, table, dataset, metric.lower()), ())
    return found[0] if len(found) == 1 else None


@cache
def _by_cell() -> dict[tuple[str, str, str, str], list[PrintedKey]]:
    cells: dict[tuple[str, str, str, str], list[PrintedKey]] = {}
    for key in published():
        cells.setdefault((*key[:3], key[5]), []).append(key)
    return cells


def _cause(
    key: PrintedKey, number: Printed, difference: float | None, causes: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """The first cause that is about a cell: of every field that it names, it names the cell's value.

    One that explains so much `at_most` is no cause of a greater difference.
    """
    cell = dict(zip(_FIELDS, key, strict=True))
    in_points = (difference or 0.0) / (100 if number.unit == "percent" else 1)
    return next(
        (
            one
            for one in causes
            if all(cell[name] in one[name] for name in _FIELDS if name in one)
            and abs(in_points) <= one.get("at_most", math.inf)
        ),
        None,
    )


def _standing(number: Printed, own: Ours | None, cause: Mapping[str, Any] | None) -> tuple[str, str]:
    """What became of a printed number in a word or two, and why in a sentence where one is known."""
    if number.taken_from is not None:
        return TAKEN_OVER, f"{number.taken_from} printed this very number, with settings of its own"
    if own is not None and "published" in own.diverged:
        agrees = own.published is not None and _agrees(number, own.published)
        before = "; the number from before would agree" if agrees else ""
        why = f"a run behind it diverged {own.diverged['published']}{before}"
        # At settings that the paper does not state, it is ours that diverge.
        unstated = _unstated(own, cause)
        return (UNSTATED, f"{unstated}; {why}") if unstated else (DIVERGES, why)
    if own is not None and own.published is not None and _agrees(number, own.published):
        return AGREES, ""
    not_run = own is None or own.published is None
    # What explains a difference explains none that nobody has seen.
    if cause is not None and (not not_run or cause["cause"] == _NOT_TO_BE_HAD):
        return str(cause["cause"]), str(cause["why"])
    if own is not None and not not_run and own.searched:
        return UNSTATED, _unstated(own, cause)
    return (NOT_RUN if not_run else UNEXPLAINED), ""


def _unstated(own: Ours, cause: Mapping[str, Any] | None) -> str:
    """What the paper does not state of what is behind a number, by its cause or by searches; may be empty."""
    # A cause of another kind, as that another machine takes another time, tells nothing of settings.
    if cause is not None and cause["cause"] in (UNSTATED, UNEXPLAINED):
        return str(cause["why"]) if cause["cause"] == UNSTATED else ""
    names = ", ".join(own.searched)
    return f"the paper does not state {names}; ours were searched for" if names else ""


def _agrees(number: Printed, value: float) -> bool:
    difference = abs(value - number.value)
    if number.unit == "fraction":
        return difference <= POINTS
    if number.unit == "percent":
        return difference <= 100 * POINTS
    return difference <= POINTS * abs(number.value)


def _ordered(kinds: Iterable[str]) -> list[str]:
    """Who agrees first, what is open last."""
    last = (UNEXPLAINED, NOT_RUN)
    return sorted(kinds, key=lambda kind: (kind != AGREES, kind in last and 1 + last.index(kind), kind))
