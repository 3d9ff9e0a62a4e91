"""Tables of verdicts: the printed effect of each claim, ours under both protocols, and what follows.

The csv is long and complete: one row per claim, dataset and metric, with its runs, with what is missing and
how to get it, and one per claim over all its datasets. To be read there is a count, then one table per paper.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from fedrec.audit.verdict_summary import (
    ALL,
    FULL_SEEDS,
    UNTUNED,
    deciding_rows,
    summarise_verdicts,
    summary_sentences,
)
from fedrec.audit.verdicts import (
    DIVERGENCE_RULE,
    JUDGED_BY,
    LEVEL,
    OPEN,
    RULE,
    UNTESTED,
    VERDICTS,
    Effect,
    Evidence,
    Judgement,
    judge,
    verdict_counts,
)
from fedrec.config.claims import Claim
from fedrec.config.names import parse
from fedrec.config.papers import BOTH, Paper
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.runs import DIVERGED
from fedrec.plan.targets import Target
from fedrec.reporting.diverged import WHAT_IS_SHOWN, rounds_words
from fedrec.reporting.provenance import provenance
from fedrec.reporting.subject import stem_of
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
from fedrec.runs.record import RunRecord

LAYOUT = Layout("table", needs=("runs",), selection="judged")
_COLUMNS = (
    ReportColumn("claim", "claim", align="left"),
    ReportColumn("dataset", "dataset", align="left"),
    ReportColumn("metric", "metric", align="left"),
    ReportColumn("against", "against", align="left"),
    ReportColumn("printed", "effect, printed", "{:+.4f}"),
    ReportColumn("published", "effect, published [interval]", "{:+.4f}"),
    ReportColumn("published_verdict", "found under published", align="left"),
    ReportColumn("clean", "effect, clean [interval]", "{:+.4f}"),
    ReportColumn("clean_seeds", "seeds", align="left"),
    ReportColumn("verdict", "verdict", align="left"),
)
_SUMMARY_COLUMNS = (
    ReportColumn("paper", "paper", align="left"),
    ReportColumn("rows", "claims on datasets"),
    ReportColumn("decided", "decided"),
    ReportColumn("reproduced", "reproduced"),
    ReportColumn("reproduced_reversed", "reproduced, then reversed"),
    ReportColumn("unfound_reversed", "reversed, not found under published"),
    ReportColumn("few_seeds_reversed", f"reversed, fewer than {FULL_SEEDS} seeds"),
    ReportColumn("weaker", "weaker"),
    ReportColumn("holds", "holds"),
    ReportColumn("diverges", "diverges"),
    ReportColumn("untested", "not testable here"),
)
EFFECTS = (
    "differences between the line a claim is about and the best of those it is compared with, in metrics of "
    "the test items, as printed, and as trained here under the paper's published protocol, which leaks the "
    "held-out item, and under the clean one, at the round each reports. Intervals: "
    f"{LEVEL:.0%}, by resampling users, each the mean of its seeds: they do not tell how far another seed "
    f"would be, nor that there are many claims. {RULE} What is found under the published protocol is judged "
    f"by the same rule, of the effect there. Over all datasets {JUDGED_BY.upper()} decides."
)
"""What is shown and what follows from it."""
CHAPTER = Chapter(
    "Verdicts on the papers’ claims",
    "Each row is one claim on one dataset: the advantage that the paper prints, the one we find under "
    "its own protocol, which leaks, and the one under the clean protocol, with intervals over users. "
    "The verdict follows from the clean interval and the printed number by rule, never by hand; beside it "
    "stands what the same rule says of the effect under the paper’s own protocol, so that what the leak made "
    "is told apart from what we do not find at all. “Reversed” speaks of a claim under the clean protocol, "
    f"with the paper’s settings. {UNTUNED} So it does not say that a method cannot be made to work.",
    rule=f"Effects are {EFFECTS}",
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
        set(target.runs), project.training,
    )  # fmt: skip
    claims = [claim for claim in project.claims if claim.paper in papers]
    write_verdicts(stem_of(target, project), claims, evidence, project.papers)


def write_verdicts(
    stem: Path, claims: Sequence[Claim], evidence: Evidence, papers: Mapping[str, Paper]
) -> None:
    """Judge claims and write all forms of the table."""
    rows = verdict_rows(judge(claims, evidence), evidence.results)
    chapter = replace(
        CHAPTER,
        counts=list(claim_counts(rows, papers)),
        finding=summary_sentences(summarise_verdicts(rows)),
    )
    tables = [summary_table(rows, stem.name), *verdict_tables(rows)]
    write_forms(stem, rows, tables, chapter, verdict_tables(rows, on_page=True))


def verdict_rows(judgements: Iterable[Judgement], results: Path) -> list[Row]:
    """One row per claim, dataset and metric; after each claim what it comes to over all its datasets."""
    rows: list[Row] = []
    for _, group in groupby(judgements, key=lambda judgement: judgement.claim.id):
        of_claim = list(group)
        rows += [_row(judgement, results) for judgement in of_claim]
        deciding = [judgement for judgement in of_claim if judgement.metric == JUDGED_BY]
        overall = verdict_counts(judgement.verdict for judgement in deciding)
        rows.append(_about(of_claim[0].claim) | {"dataset": ALL, "metric": JUDGED_BY, "verdict": overall})
    return rows


def claim_counts(rows: Sequence[Row], papers: Mapping[str, Paper]) -> Iterator[dict[str, Any]]:
    """What became of the claims of each paper, by the metric that decides, once for every tested dataset.

    `datasets` are those with runs to judge one claim by at the least: what is counted in `verdicts`;
    `elsewhere` counts all others. Of the reversed, `reproduced` are those that were reproduced first.
    """
    for paper in dict.fromkeys(str(row["paper"]) for row in rows):
        own = [row for row in deciding_rows(rows) if row["paper"] == paper]
        tested = [row for row in own if row["verdict"] not in OPEN]
        datasets = list(dict.fromkeys(str(row["dataset"]) for row in own if row["verdict"] != UNTESTED))
        reached = Counter(row["verdict"] for row in own if row["dataset"] in datasets)
        yield {
            "paper": papers[paper].title if paper in papers else paper,
            "claims": len({row["claim"] for row in own}),
            "tested": len({row["claim"] for row in tested}),
            "datasets": datasets,
            "elsewhere": len(own) - reached.total(),
            "reproduced": summarise_verdicts(own).reproduced_reversed,
            "seeds": FULL_SEEDS,
            "verdicts": [
                [verdict, reached[verdict]] for verdict in VERDICTS if verdict not in OPEN or reached[verdict]
            ],
        }


def summary_table(rows: Sequence[Row], name: str) -> ReportTable:
    """How many claims of each paper survive, and of all; its caption states the rule for all tables.

    `name` is that of the table's files.
    """
    papers = dict.fromkeys(str(row["paper"]) for row in rows)
    groups = {paper: [row for row in rows if row["paper"] == paper] for paper in papers}
    counted = [(name, summarise_verdicts(group)) for name, group in (*groups.items(), (ALL, rows))]
    caption = (
        f"How many claims survive, each counted once for every dataset, by {JUDGED_BY.upper()}. A claim is "
        "reproduced where it holds under its paper's published protocol and every line it compares has "
        f"{FULL_SEEDS} seeds under both protocols. {UNTUNED} Effects are {EFFECTS} The runs behind each row "
        f"are named in {name}.csv; `fedrec runs {name} ROW` lists them, by words of a row or its number."
    )
    lines = [
        {"paper": name, "rows": summary.rows, "decided": summary.decided, **asdict(summary)}
        for name, summary in counted
    ]
    return ReportTable(caption, _SUMMARY_COLUMNS, lines)


def verdict_tables(rows: Sequence[Row], *, on_page: bool = False) -> list[ReportTable]:
    """One table per paper.

    On a page tables are sorted and are wider than a narrow screen: there every row names its claim, and the
    verdict comes second.
    """
    first, *others, last = _COLUMNS
    columns = (first, last, *others) if on_page else _COLUMNS
    tables = []
    for paper, group in groupby(rows, key=lambda row: str(row["paper"])):
        of_paper = list(group)
        caption = f"What becomes of the claims of {paper}. {_trained(of_paper)}"
        tables.append(ReportTable(caption, columns, _shown(of_paper, repeated=on_page), _notes(of_paper)))
    return tables


def _about(claim: Claim) -> dict[str, Any]:
    return {"paper": claim.paper, "claim": claim.id, "text": claim.text, "kind": claim.kind}


def _row(judgement: Judgement, results: Path) -> Row:
    """Everything there is to say of a judgement, with where its numbers come from."""
    records = [RunRecord(results / run.folder) for run in judgement.runs]
    origins = {name: " ".join(values) for name, values in provenance(records).items() if name != "devices"}
    rounds = sorted({int(record.settings["rounds"]) for record in records})
    effects = [effect for effect in (judgement.published, judgement.clean) if effect is not None]
    return {
        **_about(judgement.claim),
        "dataset": judgement.dataset,
        "metric": judgement.metric,
        "shown_in": judgement.artefact.name,
        "line": judgement.claim.line,
        "against": _against(judgement),
        "printed": judgement.printed,
        **_numbers(judgement.published, "published"),
        "published_verdict": judgement.published_verdict,
        **_numbers(judgement.clean, "clean"),
        "verdict": judgement.verdict,
        "reason": judgement.reason,
        "command": judgement.command,
        **_diverged(judgement),
        "rounds": " ".join(map(str, rounds)),
        "shortened": any("rounds" in dict(parse(run.method).changes) for run in judgement.runs),
        **origins,
        RUNS: [run.folder for effect in effects for run in effect.runs],
        AGAINST: [run.folder for effect in effects for run in effect.runs_against],
    }


def _diverged(judgement: Judgement) -> dict[str, str]:
    """Which of its lines diverged under which protocol, and when; nothing where none did."""
    found: dict[str, list[str]] = {}
    for one in judgement.diverged:
        words = f"{one.line} {rounds_words(one.rounds, one.seeds)}"
        found.setdefault(f"{one.protocol}_{DIVERGED}", []).append(words)
    return {key: "; ".join(words) for key, words in found.items()}


def _against(judgement: Judgement) -> str:
    """The line an effect is the difference to, the best of those compared: under clean, and published."""
    published, clean = judgement.published, judgement.clean
    if clean is not None:
        same = published is None or _rival(published) == _rival(clean)
        return _rival(clean) + ("" if same or published is None else f"; published: {_rival(published)}")
    if published is not None:
        return _rival(published)
    others = judgement.claim.over
    return others[0] if len(others) == 1 else f"the best of {len(others)}"


def _rival(effect: Effect) -> str:
    """The best of the lines that an effect is compared with, and which of them were not run."""
    return effect.rival + (f" ({', '.join(effect.not_run)} not run)" if effect.not_run else "")


def _numbers(effect: Effect | None, protocol: str) -> dict[str, Any]:
    if effect is None:
        return {}
    return {
        protocol: effect.value,
        f"{protocol}_low": effect.low,
        f"{protocol}_high": effect.high,
        f"{protocol}_compared_with": effect.rival,
        f"{protocol}_compared_value": effect.base,
        f"{protocol}_users": effect.users,
        f"{protocol}_seeds": " ".join(map(str, effect.seeds)),
    }


def _shown(rows: Sequence[Row], *, repeated: bool) -> list[Row]:
    """The rows as a reader sees them: a claim is said once, or in every row, effects have their intervals."""
    return [
        {
            "claim": row["text"] if place == 0 or repeated else "",
            "dataset": row["dataset"],
            "metric": row["metric"].upper(),
            "against": row.get("against"),
            "printed": row.get("printed"),
            **_interval(row, "published"),
            "published_verdict": row.get("published_verdict"),
            **_interval(row, "clean"),
            "clean_seeds": _both_seeds(row),
            "verdict": row["verdict"],
            **{key: row[key] for key in (RUNS, AGAINST) if key in row},
        }
        for _, group in groupby(rows, key=lambda row: row["claim"])
        for place, row in enumerate(group)
    ]


def _interval(row: Row, protocol: str) -> Row:
    """An effect under a protocol, where there is one, and what stands behind it."""
    diverged = DIVERGED_MARK if row.get(f"{protocol}_{DIVERGED}") else ""
    if row.get(protocol) is None:
        return {f"{protocol}_mark": diverged} if diverged else {}
    low, high = row[f"{protocol}_low"], row[f"{protocol}_high"]
    return {protocol: row[protocol], f"{protocol}_mark": f"{diverged} [{low:+.4f}, {high:+.4f}]"}


def _trained(rows: Sequence[Row]) -> str:
    """How the numbers came about."""
    if not _distinct(rows, "seeds"):
        return "None of the runs is trained here."
    rounds = sorted(map(int, _distinct(rows, "rounds")))
    paper = rows[0]["paper"]
    early = (
        "These runs are shorter than the paper's, so that this is a first look and no verdict on the paper: "
        f"`snakemake audit_{paper}` trains as long as it does. "
    )
    return (early if any(row.get("shortened") for row in rows) else "") + (
        f"Trained for {' or '.join(map(str, rounds))} rounds; {_seeds(rows)}; protocols "
        f"{_listed(rows, 'protocols')}; splits {_listed(rows, 'splits')}; code {_listed(rows, 'code')}."
    )


def _seeds(rows: Sequence[Row]) -> str:
    """What seeds effects are the means of: those of all, or of how many there is one alone."""
    each = [row[f"{protocol}_seeds"] for row in rows for protocol in BOTH if row.get(f"{protocol}_seeds")]
    if len(set(each)) == 1:
        return f"seeds {', '.join(each[0].split())}"
    alone, most = sum(len(seeds.split()) == 1 for seeds in each), max(len(seeds.split()) for seeds in each)
    return f"{alone} of {len(each)} effects are of one seed, the others of up to {most} (the csv has which)"


def _both_seeds(row: Row) -> str | None:
    """The seeds of the effect under the clean protocol; then those under the other, where they differ."""
    clean, published = row.get("clean_seeds"), row.get("published_seeds")
    if not clean or not published or clean == published:
        return clean or None
    return f"{clean}; published: {published}"


def _notes(rows: Sequence[Row]) -> list[str]:
    """Which data are missing and why, what print does not say, how many rows lack runs, and what diverged."""
    reasons = dict.fromkeys(row["reason"] for row in rows if row.get("reason") and not row["command"])
    untrained = sum(bool(row.get("command")) for row in rows)
    how = f"{untrained} rows lack runs, if only of other seeds; the csv has the command for each."
    told = dict.fromkeys(
        f"{row['dataset']}, {protocol}: {row[f'{protocol}_{DIVERGED}']}"
        for row in rows
        for protocol in BOTH
        if row.get(f"{protocol}_{DIVERGED}")
    )
    diverged = f"{DIVERGED_MARK} Diverged: {'; '.join(told)}. {WHAT_IS_SHOWN} {DIVERGENCE_RULE}"
    unlike = [
        f"{row['text']}, {row['dataset']}, {row['metric'].upper()}"
        for row in rows
        if _is_not_so_in_print(row)
    ]
    print_itself = f"Print itself does not bear out: {'; '.join(unlike)}."
    return [
        *reasons,
        *([print_itself] if unlike else []),
        *([how] if untrained else []),
        *([diverged] if told else []),
    ]


def _is_not_so_in_print(row: Row) -> bool:
    """Whether a claim that something is better has no such effect in the paper's own numbers."""
    return row["kind"] != "costs_little" and row.get("printed") is not None and row["printed"] <= 0


def _distinct(rows: Sequence[Row], key: str) -> list[str]:
    return sorted({word for row in rows for word in str(row.get(key) or "").split()})


def _listed(rows: Sequence[Row], key: str) -> str:
    return ", ".join(_distinct(rows, key))
