"""Tables of verdicts: the printed effect of each claim, our effect under every condition, and the verdict.

The csv is complete: one row per claim, dataset and metric, with its runs and the command that trains missing
ones, and one row per claim over all its datasets. The markdown has a count of verdicts, then one table per
paper.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from fedrec.audit.effects import LEVEL, Divergence, Effect, Evidence
from fedrec.audit.verdict_summary import (
    ALL,
    UNTUNED,
    YES,
    deciding_rows,
    is_counted,
    summarise_verdicts,
    summary_sentences,
)
from fedrec.audit.verdicts import (
    DIVERGENCE_RULE,
    JUDGED_BY,
    NOT_REPRODUCED,
    OPEN,
    RULE,
    TOO_FEW,
    UNTESTED,
    VERDICTS,
    Finding,
    Judgement,
    judge,
    verdict_counts,
)
from fedrec.config.claims import COSTS_LITTLE, Claim
from fedrec.config.conditions import MAIN, PUBLISHED, Condition
from fedrec.config.names import parse
from fedrec.config.papers import Paper
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.runs import DIVERGED
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import stem_of
from fedrec.reporting.diverged import SHOWN_NUMBER_NOTE, rounds_text
from fedrec.reporting.provenance import provenance
from fedrec.reporting.tables.table import (
    AGAINST,
    DIVERGED_MARK,
    RUNS,
    Chapter,
    ReportColumn,
    ReportTable,
    Row,
    write_forms,
)
from fedrec.runs.exact import metric_title
from fedrec.runs.record import RunRecord

LAYOUT = Layout("table", needs=("runs",), selection="claims")
_VERDICT = f"{MAIN.key}_verdict"
_OTHERS = "others"
_MANY = 12
"""The number of reasons below a table; the csv has all."""
EFFECTS = (
    "An effect is the metric of the claim's own line minus that of its rival, on the test items at the "
    f"reported round. Intervals are {LEVEL:.0%} intervals over users and seeds. {JUDGED_BY.upper()} decides: "
    "by exact ranks where runs store them, else by the rank among 99 candidates."
)
"""The meaning of the numbers, for captions."""
_EXPLAINED = "docs/protocols.md, section Verdicts, has the rule."
CHAPTER = Chapter(
    "Verdicts on the papers’ claims",
    "Each row is one claim on one dataset: the printed effect, our effect under the paper's own protocol, "
    "which leaks, and our effect without the leak. We judge a claim only if our runs reproduce its numbers, "
    f"and always by the same rule. {UNTUNED} So “reversed” does not say that a method cannot be made to "
    "work.",
    rule=f"{EFFECTS} {RULE} {_EXPLAINED}",
    order=1,
)


def build(target: Target, project: Project) -> None:
    """Judge the claims of a target by its runs, and write the table.

    A claim whose runs are not finished is not an error: its row says so, and how to train them.
    """
    content = target.content
    papers = content.get("papers") or list(project.papers)
    evidence = Evidence(
        project.results, project.methods, content["seeds"], content["rounds"], content["unavailable"],
        set(target.runs), project.training, [Condition(**condition) for condition in content["conditions"]],
    )  # fmt: skip
    claims = [claim for claim in project.claims if claim.paper in papers]
    write_verdicts(stem_of(target, project), claims, evidence, project.papers)


def write_verdicts(
    stem: Path, claims: Sequence[Claim], evidence: Evidence, papers: Mapping[str, Paper]
) -> None:
    """Judge claims and write all forms of the table."""
    rows = verdict_rows(judge(claims, evidence), evidence.results)
    conditions = evidence.conditions
    chapter = replace(CHAPTER, counts=list(claim_counts(rows, papers)), finding=summary_sentences(rows))
    tables = [summary_table(rows, stem.name, conditions), *verdict_tables(rows, conditions)]
    write_forms(stem, rows, tables, chapter, [table_of_all(rows, conditions)])


def verdict_rows(judgements: Iterable[Judgement], results: Path) -> list[Row]:
    """One row per claim, dataset and metric; after each claim, a row that counts its verdicts."""
    rows: list[Row] = []
    for _, group in groupby(judgements, key=lambda judgement: judgement.claim.id):
        of_claim = list(group)
        rows += [_row(judgement, results) for judgement in of_claim]
        overall = {
            f"{key}_verdict": verdict_counts(
                one.findings[key].verdict for one in of_claim if one.findings[key].decides
            )
            for key in of_claim[0].findings
        }
        rows.append(_about(of_claim[0].claim) | {"dataset": ALL, "metric": JUDGED_BY} | overall)
    return rows


def claim_counts(rows: Sequence[Row], papers: Mapping[str, Paper]) -> Iterator[dict[str, Any]]:
    """Counts of the verdicts of each paper, by the metric that decides, once per dataset.

    `datasets` are those with runs to judge one claim by at the least: what is counted in `verdicts`;
    `elsewhere` counts all others, and `not_counted` those that are left out.
    """
    verdict_of = f"{MAIN.key}_verdict"
    for paper in dict.fromkeys(str(row["paper"]) for row in rows):
        deciding = [row for row in deciding_rows(rows) if row["paper"] == paper]
        own = [row for row in deciding if is_counted(row)]
        judged = [row for row in own if row[verdict_of] not in OPEN]
        datasets = list(dict.fromkeys(str(row["dataset"]) for row in own if row[verdict_of] != UNTESTED))
        counted = Counter(row[verdict_of] for row in own if row["dataset"] in datasets)
        yield {
            "paper": papers[paper].title if paper in papers else paper,
            "claims": len({row["claim"] for row in deciding}),
            "judged": len({row["claim"] for row in judged}),
            "datasets": datasets,
            "elsewhere": len(own) - counted.total(),
            "not_counted": len(deciding) - len(own),
            "one_seed": summarise_verdicts(own).with_one_seed,
            "verdicts": [
                [verdict, counted[verdict]] for verdict in VERDICTS if verdict not in OPEN or counted[verdict]
            ],
        }


def summary_table(rows: Sequence[Row], name: str, conditions: Sequence[Condition]) -> ReportTable:
    """The counts of verdicts of each paper and of all; the caption explains all tables.

    `name` is the stem of the table's files.
    """
    papers = dict.fromkeys(str(row["paper"]) for row in rows)
    groups = {paper: [row for row in rows if row["paper"] == paper] for paper in papers} | {ALL: rows}
    left_out = dict.fromkeys(
        f"{row['dataset']} ({row['not_counted']})" for row in rows if row.get("not_counted")
    )
    caption = (
        f"How many claims survive, by {JUDGED_BY.upper()}. Each claim counts once per dataset; only claims "
        f"that our runs reproduce are judged. {UNTUNED} "
        + (f"Shown, but not counted: {', '.join(left_out)}. " if left_out else "")
        + f"{EFFECTS} {_EXPLAINED} `fedrec runs {name} ROW` lists the runs behind a row: give its number, or "
        "words in it."
    )
    columns = (
        ReportColumn("condition", "condition", align="left"),
        ReportColumn("paper", "paper", align="left"),
        ReportColumn("rows", "claims on datasets"),
        ReportColumn("judged", "judged"),
        *(ReportColumn(verdict, verdict) for verdict in VERDICTS),
        ReportColumn("by_exact_ranks", "judged by exact ranks"),
        ReportColumn("with_one_seed", "judged by one seed"),
        ReportColumn("found_published", "not reproduced, effect shown under published"),
        ReportColumn("not_counted", "not counted"),
        ReportColumn("repeated", "repeat another"),
    )
    lines = []
    for condition in conditions:
        for paper, group in groups.items():
            one = summarise_verdicts(group, condition)
            lines.append(
                {
                    "condition": condition.title,
                    "paper": paper,
                    "rows": one.rows,
                    "judged": one.judged,
                    **{verdict: one.counts.get(verdict, 0) for verdict in VERDICTS},
                    "by_exact_ranks": one.by_exact_ranks,
                    "with_one_seed": one.with_one_seed,
                    "found_published": one.found_published,
                    "not_counted": one.not_counted,
                    "repeated": one.repeated,
                }
            )
    return ReportTable(caption, columns, lines)


def verdict_tables(rows: Sequence[Row], conditions: Sequence[Condition]) -> list[ReportTable]:
    """One table per paper."""
    columns = _columns(conditions)
    tables = []
    for paper, of_paper in _by_paper(rows).items():
        caption = f"Verdicts on the claims of {paper}. {_trained(of_paper)}"
        shown = _shown(of_paper, conditions, repeated=False)
        tables.append(ReportTable(caption, columns, shown, _notes(of_paper, conditions)))
    return tables


def table_of_all(rows: Sequence[Row], conditions: Sequence[Condition]) -> ReportTable:
    """One table of all papers, whose reader chooses rows; every row names its claim.

    The deciding columns come first, since pages are narrower than the table.
    """
    columns = (
        ReportColumn("claim", "claim", align="left"),
        ReportColumn("dataset", "dataset", align="left"),
        ReportColumn("printed", "printed", "{:+.4f}"),
        ReportColumn(MAIN.key, MAIN.heading, "{:+.4f}"),
        ReportColumn(_VERDICT, "verdict", align="left"),
        ReportColumn("metric", "metric", align="left"),
        ReportColumn("paper", "paper", align="left"),
        ReportColumn(PUBLISHED.key, "published", "{:+.4f}"),
        ReportColumn("published_verdict", "found under published", align="left"),
        ReportColumn("reproduced", "reproduced", align="left"),
        ReportColumn("against", "against", align="left"),
        ReportColumn(f"{MAIN.key}_seeds", "seeds", align="left"),
        ReportColumn("decides", "decides", align="left"),
        ReportColumn(_OTHERS, "under other conditions", align="left"),
    )
    others = [condition for condition in conditions if condition != MAIN]
    by_paper = _by_paper(rows)
    shown = [
        {**row, "paper": paper, _OTHERS: _under_others(row, others)}
        for paper, of_paper in by_paper.items()
        for row in _shown(of_paper, conditions, repeated=True)
    ]
    caption = (
        "Claims of all papers. Numbers are effects: printed, under the clean protocol, and under the "
        f"published protocol, with {LEVEL:.0%} intervals. The verdict is the one for: {MAIN.title}. The "
        f"metric that decides has “{YES}” in the column “decides”."
    )
    notes = [
        f"{paper}: {note}" for paper, of_paper in by_paper.items() for note in _notes(of_paper, conditions)
    ]
    return ReportTable(
        f"{caption} {_trained(rows)}",
        columns,
        shown,
        notes,
        choosers=("paper", "dataset", "metric", _VERDICT),
    )


def _by_paper(rows: Sequence[Row]) -> dict[str, list[Row]]:
    return {paper: list(group) for paper, group in groupby(rows, key=lambda row: str(row["paper"]))}


def _under_others(row: Row, conditions: Sequence[Condition]) -> str | None:
    """The verdicts and effects of a shown row under conditions, where there are effects."""
    texts = [
        f"{condition.title}: {row[f'{condition.key}_verdict']}, {row[condition.key]:+.4f}"
        f"{row.get(f'{condition.key}_mark', '')}, {row[f'{condition.key}_seeds']}"
        for condition in conditions
        if row.get(condition.key) is not None
    ]
    return "; ".join(texts) or None


def _columns(conditions: Sequence[Condition]) -> list[ReportColumn]:
    """The columns of a paper's table: the claim, then its effect and verdict under each condition."""
    under = {
        condition: (
            ReportColumn(condition.key, f"effect, {condition.heading} [interval]", "{:+.4f}"),
            ReportColumn(f"{condition.key}_seeds", f"seeds, {condition.heading}", align="left"),
            ReportColumn(f"{condition.key}_verdict", f"verdict, {condition.title}", align="left"),
        )
        for condition in conditions
    }
    return [
        ReportColumn("claim", "claim", align="left"),
        ReportColumn("dataset", "dataset", align="left"),
        ReportColumn("metric", "metric", align="left"),
        ReportColumn("decides", "decides", align="left"),
        ReportColumn("against", "against", align="left"),
        ReportColumn("printed", "effect, printed", "{:+.4f}"),
        ReportColumn(PUBLISHED.key, "effect, published [interval]", "{:+.4f}"),
        ReportColumn("published_verdict", "found under published", align="left"),
        ReportColumn("reproduced", "reproduced", align="left"),
        *(column for columns in under.values() for column in columns),
    ]


def _about(claim: Claim) -> dict[str, Any]:
    return {"paper": claim.paper, "claim": claim.id, "text": claim.text, "kind": claim.kind}


def _row(judgement: Judgement, results: Path) -> Row:
    """The csv row of a judgement, with the origin of its numbers."""
    records = [RunRecord(results / run.folder) for run in judgement.runs]
    origins = {name: " ".join(values) for name, values in provenance(records).items() if name != "devices"}
    rounds = sorted({int(record.settings["rounds"]) for record in records})
    findings = {PUBLISHED.key: judgement.published, **judgement.findings}
    sides = [one.effect.compared for one in findings.values() if one.effect is not None]
    return {
        **_about(judgement.claim),
        "dataset": judgement.dataset,
        "not_counted": judgement.claim.not_counted.get(judgement.dataset, ""),
        "metric": judgement.metric,
        "shown_in": judgement.artefact.name,
        "line": judgement.claim.line,
        "against": _against(judgement),
        "printed": judgement.printed,
        **_numbers(judgement.published, PUBLISHED.key),
        "published_verdict": judgement.published.verdict,
        **{
            name: value
            for key, finding in judgement.findings.items()
            for name, value in (_numbers(finding, key) | _judged_by(finding, key)).items()
        },
        "reason": judgement.reason,
        "command": judgement.command,
        **{
            f"{key}_{DIVERGED}": _diverged(finding.diverged)
            for key, finding in findings.items()
            if finding.diverged
        },
        "rounds": " ".join(map(str, rounds)),
        "shortened": any("rounds" in dict(parse(run.method).changes) for run in judgement.runs),
        **origins,
        RUNS: [run.folder for side in sides for run in side.runs],
        AGAINST: [run.folder for side in sides for run in side.runs_against],
    }


def _judged_by(finding: Finding, key: str) -> dict[str, Any]:
    """The verdict under a condition, and what it rests on."""
    return {
        f"{key}_p_holm": finding.p_holm,
        f"{key}_gate": finding.way,
        f"{key}_decides": YES if finding.decides else "",
        f"{key}_repeats": finding.repeats,
        f"{key}_verdict": finding.verdict,
        f"{key}_reason": finding.reason,
    }


def _diverged(lines: Iterable[Divergence]) -> str:
    """Which lines diverged, and when."""
    return "; ".join(f"{line.line} {rounds_text(line.rounds, line.seeds)}" for line in lines)


def _against(judgement: Judgement) -> str:
    """The rival of an effect: under the main condition, and under published if that is another line."""
    main, published = judgement.findings[MAIN.key].effect, judgement.published.effect
    if main is not None:
        same = published is None or _rival(published) == _rival(main)
        return _rival(main) + ("" if same or published is None else f"; published: {_rival(published)}")
    if published is not None:
        return _rival(published)
    others = judgement.claim.over
    return others[0] if len(others) == 1 else f"the best of {len(others)}"


def _rival(effect: Effect) -> str:
    """The rival of an effect, and the lines that were not run."""
    compared = effect.compared
    return compared.rival + (f" ({', '.join(compared.not_run)} not run)" if compared.not_run else "")


def _numbers(finding: Finding, key: str) -> dict[str, Any]:
    effect = finding.effect
    if effect is None:
        return {}
    return {
        key: effect.value,
        f"{key}_low": effect.low,
        f"{key}_high": effect.high,
        f"{key}_p": effect.p,
        f"{key}_compared_with": effect.compared.rival,
        f"{key}_compared_value": effect.base,
        f"{key}_users": effect.users,
        f"{key}_differ": effect.differ,
        f"{key}_seeds": " ".join(map(str, effect.compared.seeds)),
    }


def _shown(rows: Sequence[Row], conditions: Sequence[Condition], *, repeated: bool) -> list[Row]:
    """The rows as shown: the text of a claim stands once or in every row, and effects have intervals."""
    return [
        {
            "claim": row["text"] if index == 0 or repeated else "",
            "dataset": row["dataset"],
            "metric": metric_title(row["metric"]),
            "decides": row.get(f"{MAIN.key}_decides"),
            "against": row.get("against"),
            "printed": row.get("printed"),
            **_interval(row, PUBLISHED.key),
            "published_verdict": row.get("published_verdict"),
            "reproduced": _reproduced(row),
            **{name: value for condition in conditions for name, value in _under(row, condition.key).items()},
            **{key: row[key] for key in (RUNS, AGAINST) if key in row},
        }
        for _, group in groupby(rows, key=lambda row: row["claim"])
        for index, row in enumerate(group)
    ]


def _under(row: Row, key: str) -> Row:
    """The cells of a row for a condition."""
    return {
        **_interval(row, key),
        f"{key}_seeds": _seeds_text(row.get(f"{key}_seeds")),
        f"{key}_verdict": row.get(f"{key}_verdict"),
    }


def _seeds_text(seeds: str | None) -> str | None:
    """How many seeds an effect is the mean of; None where there is no effect."""
    if not seeds:
        return None
    many = len(seeds.split())
    return f"{many} seed{'s' * (many > 1)}"


def _reproduced(row: Row) -> str | None:
    """Whether a claim is reproduced under its paper's protocol, and by which check; None if not checked."""
    way = row.get(f"{MAIN.key}_gate")
    if not way:
        return None
    return f"no ({way})" if row[f"{MAIN.key}_verdict"] == NOT_REPRODUCED else f"yes ({way})"


def _interval(row: Row, key: str) -> Row:
    """An effect under a condition, with its interval and mark, if it has a value."""
    diverged = DIVERGED_MARK if row.get(f"{key}_{DIVERGED}") else ""
    if row.get(key) is None:
        return {f"{key}_mark": diverged} if diverged else {}
    low, high = row[f"{key}_low"], row[f"{key}_high"]
    return {key: row[key], f"{key}_mark": f"{diverged} [{low:+.4f}, {high:+.4f}]"}


def _trained(rows: Sequence[Row]) -> str:
    """Rounds, seeds and protocols of the runs behind rows; the csv has the hashes of each row."""
    if not _distinct(rows, "seeds"):
        return "No runs exist here."
    rounds = sorted(map(int, _distinct(rows, "rounds")))
    shortened = dict.fromkeys(str(row["paper"]) for row in rows if row.get("shortened"))
    targets = " ".join(f"audit_{paper}" for paper in shortened)
    early = (
        f"Runs for {' and '.join(shortened)} have fewer rounds than the paper: this is a first look, and no "
        f"verdict. `snakemake {targets}` trains all rounds. "
    )
    return (early if shortened else "") + (
        f"Trained for {' or '.join(map(str, rounds))} rounds under the protocols "
        f"{_listed(rows, 'protocols')}; {_seeds(rows)}. The csv lists splits and code."
    )


def _seeds(rows: Sequence[Row]) -> str:
    """The seeds that effects are means of, or how many effects have only one seed."""
    keys = (PUBLISHED.key, MAIN.key)
    of_effects = [row[f"{key}_seeds"] for row in rows for key in keys if row.get(f"{key}_seeds")]
    if len(set(of_effects)) == 1:
        return f"seeds {', '.join(of_effects[0].split())}"
    alone, most = (
        sum(len(seeds.split()) == 1 for seeds in of_effects),
        max(len(seeds.split()) for seeds in of_effects),
    )
    return (
        f"{alone} of {len(of_effects)} effects have one seed, so that their intervals are over users only; "
        f"the others have up to {most} seeds"
    )


def _notes(rows: Sequence[Row], conditions: Sequence[Condition]) -> list[str]:
    """Notes below a table: missing data, reasons of verdicts, repeated claims, missing and diverged runs."""
    reasons = dict.fromkeys(row["reason"] for row in rows if row.get("reason") and not row["command"])
    untrained = sum(bool(row.get("command")) for row in rows)
    how = f"{untrained} rows lack runs of some seeds or lines; the csv has the commands that train them."
    divergences = dict.fromkeys(
        f"{row['dataset']}, {key}: {row[f'{key}_{DIVERGED}']}"
        for row in rows
        for key in (PUBLISHED.key, *(condition.key for condition in conditions))
        if row.get(f"{key}_{DIVERGED}")
    )
    diverged = f"{DIVERGED_MARK} Diverged: {'; '.join(divergences)}. {SHOWN_NUMBER_NOTE} {DIVERGENCE_RULE}"
    unlike = [
        f"{row['text']}, {row['dataset']}, {metric_title(row['metric'])}"
        for row in rows
        if _is_not_so_in_print(row)
    ]
    repeated = [
        f"{row['text']}, {row['dataset']} ({row[f'{MAIN.key}_repeats']})"
        for row in rows
        if row.get(f"{MAIN.key}_repeats")
    ]
    once = f"Not counted, because another claim compares the same runs: {'; '.join(repeated)}."
    print_itself = f"The printed numbers themselves contradict: {'; '.join(unlike)}."
    return [
        *reasons,
        *([print_itself] if unlike else []),
        *filter(None, (_reasons(rows, verdict) for verdict in (NOT_REPRODUCED, TOO_FEW))),
        *([once] if repeated else []),
        *([how] if untrained else []),
        *([diverged] if divergences else []),
    ]


def _reasons(rows: Sequence[Row], verdict: str) -> str:
    """The reasons of one verdict, by the metric that decides; a verdict by its interval needs no reason."""
    reasons = dict.fromkeys(
        f"{row['dataset']}, {row[f'{MAIN.key}_reason']}"
        for row in deciding_rows(rows)
        if row[f"{MAIN.key}_verdict"] == verdict and row[f"{MAIN.key}_reason"]
    )
    more = f" The csv has {len(reasons) - _MANY} more." if len(reasons) > _MANY else ""
    title = f"{verdict.capitalize()}, {JUDGED_BY.upper()}"
    return f"{title}: {'. '.join(list(reasons)[:_MANY])}.{more}" if reasons else ""


def _is_not_so_in_print(row: Row) -> bool:
    """Whether a paper claims an improvement that its own numbers do not show."""
    return row["kind"] != COSTS_LITTLE and row.get("printed") is not None and row["printed"] <= 0


def _distinct(rows: Sequence[Row], key: str) -> list[str]:
    return sorted({word for row in rows for word in str(row.get(key) or "").split()})


def _listed(rows: Sequence[Row], key: str) -> str:
    return ", ".join(_distinct(rows, key))
