"""Tables of verdicts: the printed effect of each claim, ours under both protocols, and what follows.

The csv is long and complete: one row per claim, dataset and metric, with what is missing and how to get it,
and one per claim over all its datasets. To be read there is one table per paper.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from fedrec.audit.verdicts import (
    JUDGED_BY,
    LEVEL,
    RULE,
    Effect,
    Evidence,
    Judgement,
    counted,
    judge,
    ranks_below,
)
from fedrec.config.claims import Claim
from fedrec.config.names import parse
from fedrec.reporting.results import Result, provenance
from fedrec.reporting.tables import Column, Row, Table, write_forms

ALL = "all"
"""Stands for the dataset in the row of a claim as a whole."""
_COLUMNS = (
    Column("claim", "claim", align="left"),
    Column("dataset", "dataset", align="left"),
    Column("metric", "metric", align="left"),
    Column("printed", "effect, printed", "{:+.4f}"),
    Column("published", "effect, published [interval]", "{:+.4f}"),
    Column("clean", "effect, clean [interval]", "{:+.4f}"),
    Column("verdict", "verdict", align="left"),
)
EFFECTS = (
    "differences between the line a claim is about and the best of those it is compared with, in metrics of "
    "the test items, as printed, and as trained here under the paper's published protocol, which leaks the "
    "held-out item, and under the clean one, at the round each reports. Intervals: "
    f"{LEVEL:.0%}, by resampling users. {RULE} Over all datasets {JUDGED_BY.upper()} decides."
)
"""What is shown and what follows from it."""


def write_verdicts(
    results: Path,
    claims: Sequence[Claim],
    methods: Mapping[str, Any],
    seeds: Sequence[int],
    rounds: int | None,
    unavailable: Mapping[str, str],
    out: Path,
    runs: Sequence[Path] | None = None,
) -> None:
    """Judge claims by the runs there are, and write `out`.csv, `out`.md and `out`.tex.

    With `runs` (their run.json), by these alone: what else lies in the folder has no say.
    A claim whose runs are not finished is not an error: its row says so, and how to train them.
    """
    evidence = Evidence(results, ranks_below(results, runs), methods, seeds, rounds, unavailable)
    rows = verdict_rows(judge(claims, evidence), results)
    write_forms(out, rows, verdict_tables(rows))


def verdict_rows(judgements: Iterable[Judgement], results: Path) -> list[Row]:
    """One row per claim, dataset and metric; after each claim what it comes to over all its datasets."""
    rows: list[Row] = []
    for _, group in groupby(judgements, key=lambda one: one.claim.id):
        found = list(group)
        rows += [_row(one, results) for one in found]
        overall = counted(one.verdict for one in found if one.metric == JUDGED_BY)
        rows.append(_about(found[0].claim) | {"dataset": ALL, "metric": JUDGED_BY, "verdict": overall})
    return rows


def verdict_tables(rows: Sequence[Row], *, on_page: bool = False) -> list[Table]:
    """One table per paper.

    On a page tables are sorted, are wider than a narrow screen and have the rule above them: there a claim is
    said in every row, the verdict comes second, and captions tell no more than where the numbers come from.
    """
    first, *others, last = _COLUMNS
    columns = (first, last, *others) if on_page else _COLUMNS
    said = "." if on_page else f": {EFFECTS}"
    tables = []
    for paper, group in groupby(rows, key=lambda row: str(row["paper"])):
        found = list(group)
        caption = f"What becomes of the claims of {paper}{said} {_trained(found)}"
        tables.append(Table(caption, columns, _shown(found, repeated=on_page), _notes(found)))
    return tables


def _about(claim: Claim) -> dict[str, Any]:
    return {"paper": claim.paper, "claim": claim.id, "text": claim.text, "kind": claim.kind}


def _row(one: Judgement, results: Path) -> Row:
    """Everything there is to say of a judgement, with where its numbers come from."""
    found = [Result(run, results / run.folder) for run in one.runs]
    origins = {name: " ".join(values) for name, values in provenance(found).items() if name != "devices"}
    rounds = sorted({int(result.summary["settings"]["rounds"]) for result in found})
    return {
        **_about(one.claim),
        "dataset": one.dataset,
        "metric": one.metric,
        "shown_in": one.artefact.name,
        "line": one.claim.line,
        "printed": one.printed,
        **_numbers(one.published, "published"),
        **_numbers(one.clean, "clean"),
        "verdict": one.verdict,
        "reason": one.reason,
        "command": one.command,
        "rounds": " ".join(map(str, rounds)),
        "shortened": any("rounds" in dict(parse(run.method).changes) for run in one.runs),
        **origins,
    }


def _numbers(effect: Effect | None, kind: str) -> dict[str, Any]:
    if effect is None:
        return {}
    return {
        kind: effect.value,
        f"{kind}_low": effect.low,
        f"{kind}_high": effect.high,
        f"{kind}_compared_with": effect.rival,
        f"{kind}_compared_value": effect.base,
        f"{kind}_users": effect.users,
    }


def _shown(rows: Sequence[Row], *, repeated: bool) -> list[Row]:
    """The rows as a reader sees them: a claim is said once, or in every row, effects have their intervals."""
    return [
        {
            "claim": row["text"] if place == 0 or repeated else "",
            "dataset": row["dataset"],
            "metric": row["metric"].upper(),
            "printed": row.get("printed"),
            **_interval(row, "published"),
            **_interval(row, "clean"),
            "verdict": row["verdict"],
        }
        for _, group in groupby(rows, key=lambda row: row["claim"])
        for place, row in enumerate(group)
    ]


def _interval(row: Row, kind: str) -> Row:
    """An effect under a protocol, where there is one, and what stands behind it."""
    if row.get(kind) is None:
        return {}
    low, high = row[f"{kind}_low"], row[f"{kind}_high"]
    return {kind: row[kind], f"{kind}_mark": f" [{low:+.4f}, {high:+.4f}]"}


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
        f"Trained for {' or '.join(map(str, rounds))} rounds; seeds {_listed(rows, 'seeds')}; protocols "
        f"{_listed(rows, 'protocols')}; splits {_listed(rows, 'splits')}; code {_listed(rows, 'code')}."
    )


def _notes(rows: Sequence[Row]) -> list[str]:
    """Which data are missing and why, and how many rows lack runs."""
    reasons = dict.fromkeys(row["reason"] for row in rows if row.get("reason") and not row["command"])
    untrained = sum(bool(row.get("command")) for row in rows)
    how = f"{untrained} rows lack runs that are not trained here; the csv has the command for each."
    return [*reasons, *([how] if untrained else [])]


def _distinct(rows: Sequence[Row], key: str) -> list[str]:
    return sorted({word for row in rows for word in str(row.get(key) or "").split()})


def _listed(rows: Sequence[Row], key: str) -> str:
    return ", ".join(_distinct(rows, key))
