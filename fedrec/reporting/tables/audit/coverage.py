"""Coverage of the printed numbers: how many have one of ours, how many agree, and why the others do not.

Ours are under the published protocol, which the papers print. Two kinds of numbers are never compared: one
that a paper copied from another paper, and a setting that our configuration copied from print.

Each cause of a difference is tested:

- A cause of the configuration (`reference: causes:`) has a bound: the largest difference that it explains, or
  a run that must come as near to print as a number that agrees.
- *Unstated setting* requires that a search covered the setting, and that one of its trials comes that near.
- *Print against itself* requires that the rest of the paper gives another number.
- A gain has the cause of the numbers that it compares.

A difference without such a cause is unexplained.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedrec.audit.agreement import LEAST_TOLERANCE
from fedrec.audit.printed_contradictions import Contradiction, PrintedGain, contradictions, printed_gains
from fedrec.config.causes import ALWAYS, AT_MOST, FIELDS, FITS, NOT_AVAILABLE, Cause, is_about
from fedrec.config.printed import Printed, PrintedKey, printed_numbers
from fedrec.evaluation.metrics import METRICS
from fedrec.plan.cause_runs import cause_run
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.runs import DIVERGED
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import stem_of
from fedrec.reporting.diverged import SHOWN_NUMBER_NOTE
from fedrec.reporting.tables.our_numbers import BASES, Ours, Tried, ours_in, tried_run
from fedrec.reporting.tables.table import (
    DIVERGED_MARK,
    Chapter,
    ReportColumn,
    ReportTable,
    Row,
    write_forms,
)
from fedrec.runs.record import RunRecord

LAYOUT = Layout("table", needs=("runs",))
AGREES, DIVERGES, NOT_RUN, UNEXPLAINED = "agrees", "diverges", "not run yet", "unexplained"
UNSTATED = "setting unstated"
ONE_SEED = "one seed"
TAKEN_OVER = "taken over"
COPIED = "copied"
AGAINST_ITSELF = "print against itself"
GAIN_ALONE = "gain alone"
"""A gain that differs, though all numbers that it compares agree."""
POINTS = 0.02
"""How far ours may be from a printed gain, in hundreds of percent, or from a count, as a share of print."""
CHAPTER = Chapter(
    "Coverage: every printed number, and ours",
    "Each printed number beside ours, under the papers' own protocol and under the clean one. Where ours "
    "differs, or where we have none, the table names the cause.",
    order=0,
)
_FORMS = {
    "fraction": "{:.4f}",
    "percent": "{:.2f}",
    "count": "{:,.0f}",
    "MB": "{:,.4f}",
    "s": "{:,.4f}",
    "": "{:g}",
}
"""How numbers of each unit are spelt, in print and ours; what has no unit is a rate."""
_SETTLED = (AGREES, TAKEN_OVER, DIVERGES, COPIED, NOT_RUN, NOT_AVAILABLE)
"""Standings that another table says nothing more of."""
_RANKINGS = tuple(dict.fromkeys(metric.partition("@")[0].upper() for metric in METRICS))


@dataclass(frozen=True)
class Explanations:
    """Explanations why printed numbers have no equal among ours."""

    causes: Sequence[Cause] = ()
    """Those of the configuration."""
    fits: Mapping[tuple[str, PrintedKey], Tried | None] = field(default_factory=dict)
    """The number of the run that a cause names, if it is there; None of one that diverged."""
    contradictions: Mapping[PrintedKey, Contradiction] = field(default_factory=dict)
    gains: Mapping[PrintedKey, PrintedGain] = field(default_factory=dict)


def build(target: Target, project: Project) -> None:
    """Write the table of all printed numbers, by the tables and figures of papers that a target names."""
    content, numbers = target.content, printed_numbers()
    explanations = Explanations(
        content["causes"],
        _fits(target, project),
        contradictions(project.papers, project.methods, numbers),
        printed_gains(project.papers, project.methods, numbers),
    )
    rows = coverage_rows(ours_in(project, content["sources"], content["tried"]), explanations)
    write_forms(stem_of(target, project), rows, coverage_tables(rows), CHAPTER)


def _fits(target: Target, project: Project) -> dict[tuple[str, PrintedKey], Tried | None]:
    """The numbers of the runs that causes name, for the printed metrics that each is about."""
    there = set(target.runs)
    fits: dict[tuple[str, PrintedKey], Tried | None] = {}
    for cause in target.content["causes"]:
        for key in printed_numbers() if FITS in cause else ():
            if key[5] not in METRICS or not is_about(cause, key) or key[2] not in project.catalogue:
                continue
            run = cause_run(project, cause[FITS], key[0], key[2])
            if run in there:
                fits[cause[FITS], key] = tried_run(RunRecord(project.results / run.folder), key[5])
    return fits


def coverage_rows(ours: Mapping[PrintedKey, Ours], explanations: Explanations) -> list[Row]:
    """One row per printed number: ours, whether they agree, and the cause where they do not."""
    rows = {key: _row(key, number, ours.get(key), explanations) for key, number in printed_numbers().items()}
    rows = _agreeing_in_the_mean(rows)
    for key in sorted(explanations.gains, key=lambda key: bool(explanations.gains[key].mean)):
        if rows[key]["standing"] in (UNEXPLAINED, DIVERGES):
            rows[key] = _following(rows[key], [rows[part] for part in explanations.gains[key].parts])
    return list(_agreeing_in_the_mean(rows).values())


def _row(key: PrintedKey, number: Printed, own: Ours | None, explanations: Explanations) -> Row:
    found = Ours() if own is None else own
    row: dict[str, Any] = {
        **dict(zip(FIELDS, key, strict=True)),
        "unit": number.unit,
        "printed": number.value,
        "published": found.published,
        "clean": found.clean,
        "runs": list(found.runs),
    }
    if found.published is not None:
        row |= {"difference": found.published - number.value, "tolerance": _tolerance(number, found)}
    row["standing"], row["why"] = _verdict_on_number(key, number, own, explanations)
    if found.published is not None and key[5] in METRICS:
        row["rests_on"] = found.basis
    return row | {f"{protocol}_{DIVERGED}": words for protocol, words in found.diverged.items()}


def _tolerance(number: Printed, own: Ours) -> float:
    """How far ours may be from a printed number, in its unit, and agree."""
    if number.unit == "fraction":
        return own.tolerance
    return 100 * POINTS if number.unit == "percent" else POINTS * abs(number.value)


def _verdict_on_number(
    key: PrintedKey, number: Printed, own: Ours | None, explanations: Explanations
) -> tuple[str, str]:
    """The standing of a printed number, and why in a sentence where one is known."""
    if number.taken_from is not None:
        return TAKEN_OVER, f"{number.taken_from} printed this very number, with settings of its own"
    if own is None or (own.published is None and "published" not in own.diverged):
        # No cause explains a difference that nobody has seen.
        gone = (one for one in explanations.causes if one["cause"] == NOT_AVAILABLE and is_about(one, key))
        return next(((NOT_AVAILABLE, str(one["why"])) for one in gone), (NOT_RUN, ""))
    if own.is_copied:
        return COPIED, "our configuration takes it from this table"
    contradiction = explanations.contradictions.get(key)
    if contradiction is not None and contradiction.is_gain:
        return AGAINST_ITSELF, contradiction.why
    if "published" in own.diverged:
        return _diverged(key, number, own, explanations)
    assert own.published is not None, "what has no number diverged, or was not run"
    if _agrees(number, own, number.value):
        return AGREES, ""
    for cause in explanations.causes:
        if is_about(cause, key) and _holds(cause, key, number, own.published, explanations):
            return str(cause["cause"]), str(cause["why"])
    if contradiction is not None and any(_agrees(number, own, other) for other in contradiction.others):
        return AGAINST_ITSELF, contradiction.why
    return _by_trials(number, own) or (UNEXPLAINED, _what_was_tried(key, number, own, explanations))


def _diverged(key: PrintedKey, number: Printed, own: Ours, explanations: Explanations) -> tuple[str, str]:
    """The standing of a number behind which a run diverged: only another run can explain it."""
    before = own.published is not None and _agrees(number, own, number.value)
    near = "; the number from before would agree" if before else ""
    why = f"a run behind it diverged {own.diverged['published']}{near}"
    for cause in explanations.causes:
        if FITS in cause and is_about(cause, key) and _reaches(cause, key, number, explanations):
            return str(cause["cause"]), f"{cause['why']}; {why}"
    # At settings that the paper does not state, it is ours that diverge.
    unstated = _by_trials(number, own)
    return (UNSTATED, f"{unstated[1]}; {why}") if unstated else (DIVERGES, why)


def _holds(cause: Cause, key: PrintedKey, number: Printed, value: float, explanations: Explanations) -> bool:
    """Whether a cause of the configuration explains the difference of a number that it is about."""
    if FITS in cause:
        return _reaches(cause, key, number, explanations)
    scale = {"fraction": 1.0, "percent": 100.0}.get(number.unit, abs(number.value))
    return bool(cause.get(ALWAYS)) or abs(value - number.value) <= cause[AT_MOST] * scale


def _reaches(cause: Cause, key: PrintedKey, number: Printed, explanations: Explanations) -> bool:
    """Whether the run that a cause names is there, and comes as near to print as a number that agrees."""
    tried = explanations.fits.get((cause[FITS], key))
    return tried is not None and tried.reaches(number.value)


def _by_trials(number: Printed, own: Ours) -> tuple[str, str] | None:
    """The standing of a number that a trial of a search for its settings reaches."""
    reaching = [one for one in own.tried if one.reaches(number.value)]
    if not reaching:
        return None
    nearest = min(reaching, key=lambda one: abs(one.value - number.value))
    return UNSTATED, (
        f"the paper does not state {', '.join(own.searched)}; of {len(own.tried)} settings that were tried "
        f"{len(reaching)} reach print, {nearest.method} with {nearest.value:.4f}"
    )


def _what_was_tried(key: PrintedKey, number: Printed, own: Ours, explanations: Explanations) -> str:
    """The attempts that did not explain a number: runs that causes name, and trials of searches."""
    attempts = []
    for cause in explanations.causes if key[5] in METRICS else ():
        if FITS in cause and is_about(cause, key):
            tried = explanations.fits.get((cause[FITS], key))
            missing = "diverges" if (cause[FITS], key) in explanations.fits else "is not run yet"
            attempts.append(f"{cause[FITS]} {missing if tried is None else f'gives {tried.value:.4f}'}")
    if own.tried:
        nearest = min(own.tried, key=lambda one: abs(one.value - number.value))
        attempts.append(
            f"no setting that was tried reaches print (nearest of {len(own.tried)}: {nearest.value:.4f})"
        )
    elif own.searched:
        attempts.append(f"no trial of a search for {', '.join(own.searched)} is there")
    return "; ".join(attempts)


def _following(row: Row, parts: Sequence[Row]) -> Row:
    """The row of a gain that differs, with the cause of those numbers that it compares, and that differ."""
    seen = [one for one in parts if one["standing"] not in (NOT_RUN, NOT_AVAILABLE)]
    missed = [one for one in seen if one["standing"] not in (AGREES, ONE_SEED)]
    if not missed:
        if row["standing"] == DIVERGES:
            return row
        return {**row, "standing": GAIN_ALONE, "why": "the numbers that it compares agree"}
    first = next((one for one in missed if one["standing"] == UNEXPLAINED), missed[0])
    name = " ".join(str(first[field]) for field in ("method", "variant", "metric") if first[field])
    return {**row, "standing": first["standing"], "why": f"follows from {name}"}


def _agrees(number: Printed, own: Ours, printed: float) -> bool:
    """Whether ours agrees with a number of the unit and size of a printed one."""
    return own.published is not None and abs(own.published - printed) <= _tolerance(number, own)


def _agreeing_in_the_mean(rows: Mapping[PrintedKey, Row]) -> dict[PrintedKey, Row]:
    """The rows, of which those of one seed say so whose printed number another table has, and there agrees.

    That is a number of the same runs with others among them: papers print the mean over five seeds wherever
    they print it.
    """
    agreeing: dict[tuple[object, ...], list[Row]] = {}
    for row in rows.values():
        if row["standing"] == AGREES:
            agreeing.setdefault(_what_is_printed(row), []).append(row)
    settled: dict[PrintedKey, Row] = {}
    for key, row in rows.items():
        runs = _published_runs(row)
        if row["standing"] not in _SETTLED and len(runs) == 1:
            others = [one for one in agreeing.get(_what_is_printed(row), []) if runs < _published_runs(one)]
            if others:
                seeds = len(_published_runs(others[0]))
                why = f"ours is of one seed; in {others[0]['table']}, the mean over {seeds} seeds, it agrees"
                row = {**row, "standing": ONE_SEED, "why": why}
        settled[key] = row
    return settled


def _what_is_printed(row: Row) -> tuple[object, ...]:
    return tuple(row[key] for key in ("paper", "dataset", "metric", "unit", "printed"))


def _published_runs(row: Row) -> set[str]:
    """The runs behind our number under the published protocol."""
    return {folder for folder in row["runs"] if "/published-" in folder}


def coverage_tables(rows: Sequence[Row]) -> list[ReportTable]:
    """A table of counts by paper, one of what agreements rest on, and one of all numbers."""
    kinds = list(dict.fromkeys(_ordered({str(row["standing"]) for row in rows})))
    counts = []
    for paper, own in _by_paper(rows):
        standings = Counter(row["standing"] for row in own)
        with_ours = sum(row["published"] is not None for row in own)
        counts.append({"paper": paper, "printed": len(own), "ours": with_ours, **standings})
    least = 100 * LEAST_TOLERANCE
    summary = ReportTable(
        f"{len(rows):,} printed numbers: how many have a number of ours under the papers' own protocol, how "
        "many agree, and why the others do not. A fraction agrees within half the width of our 95 % interval "
        f"over users, or within {least:g} points if that is more; a gain within {100 * POINTS:g} percentage "
        f"points; counts, sizes and times within {POINTS:.0%}.{_diverging(kinds)} {_ranked(rows)}",
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
        "Every printed number, and ours under both protocols. “Difference” is ours under the published "
        "protocol minus print; the number agrees if this is at most “tolerance”.",
        [
            *(ReportColumn(name, name, align="left") for name in FIELDS),
            ReportColumn("printed", "printed"),
            *(ReportColumn(name, heading) for name, heading in headings.items()),
            ReportColumn("difference", "difference", "{:+}"),
            ReportColumn("tolerance", "tolerance"),
            ReportColumn("standing", "standing", align="left"),
            ReportColumn("why", "why", align="left"),
        ],
        [{**row, **_marks(row), "form": _FORMS[row["unit"]]} for row in rows],
        [f"{DIVERGED_MARK} A run behind it diverged. {SHOWN_NUMBER_NOTE}"] if any(map(_marks, rows)) else (),
        part="numbers",
        aside=True,
    )
    return [summary, _resting(rows), numbers]


def _by_paper(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """The rows of each paper, and all of them."""
    papers = dict.fromkeys(str(row["paper"]) for row in rows)
    return [*((paper, [row for row in rows if row["paper"] == paper]) for paper in papers), ("all", [*rows])]


def _resting(rows: Sequence[Row]) -> ReportTable:
    """Agreeing ranking metrics by the origin of their settings: fitted to print, searched, or neither."""
    counts = []
    for paper, own in _by_paper([row for row in rows if "rests_on" in row]):
        agreeing = [row for row in own if row["standing"] == AGREES]
        bases = Counter(str(row["rests_on"]) for row in agreeing)
        counts.append({"paper": paper, "ours": len(own), AGREES: len(agreeing), **bases})
    return ReportTable(
        "Ranking metrics with a number of ours: how many agree, and where the settings of their runs come "
        "from. Checked: at least one setting was fitted to print. Searched: none was fitted, and a search on "
        "validation found at least one. Neither: neither of these.",
        [
            ReportColumn("paper", "paper", align="left"),
            ReportColumn("ours", "have ours"),
            ReportColumn(AGREES, AGREES),
            *(ReportColumn(basis, basis) for basis in BASES),
        ],
        [dict.fromkeys(BASES, 0) | row for row in counts],
        part="rests",
    )


def _ranked(rows: Sequence[Row]) -> str:
    """The counts of ranking metrics: sizes, settings and times agree more easily."""
    ranked = [row for row in rows if row["metric"] in METRICS]
    ours, agreeing = (
        sum(row["published"] is not None for row in ranked),
        sum(row["standing"] == AGREES for row in ranked),
    )
    printed = {row["metric"].partition("@")[0].upper() for row in ranked}
    names = ", ".join(name for name in _RANKINGS if name in printed)
    return (
        f"Of the {len(ranked):,} ranking metrics ({names}), {ours:,} have a number of ours, and {agreeing:,} "
        "agree."
    )


def _diverging(kinds: Iterable[str]) -> str:
    if DIVERGES not in kinds:
        return ""
    return (
        f" “{DIVERGES}”: training left the finite numbers, so the number of an earlier round is not compared."
    )


def _marks(row: Row) -> dict[str, str]:
    """The marks behind our numbers of a row."""
    return {
        f"{protocol}_mark": DIVERGED_MARK
        for protocol in ("published", "clean")
        if row.get(f"{protocol}_{DIVERGED}")
    }


def _ordered(kinds: Iterable[str]) -> list[str]:
    """Standings in the order of the table: agreement first, open cases last."""
    last = (UNEXPLAINED, NOT_RUN)
    return sorted(kinds, key=lambda kind: (kind != AGREES, kind in last and 1 + last.index(kind), kind))
