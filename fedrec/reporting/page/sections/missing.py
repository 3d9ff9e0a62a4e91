"""The table of missing or incomplete results: name, reason, and the command that builds them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedrec.config.papers import Artefact, Paper
from fedrec.plan.availability import without
from fedrec.reporting.page.cells import PageTable, page_table
from fedrec.reporting.page.sections.papers import artefact_label
from fedrec.reporting.tables.table import ReportColumn, ReportTable, Row

_NOT_STORED = "needs models, which are not stored, or has no stored runs"


def missing_table(papers: Mapping[str, Paper], content: Mapping[str, Any]) -> PageTable | None:
    """The missing results of a page's papers and datasets; None if nothing is missing."""
    rows = [row for paper in papers.values() for row in _of_paper(paper, content)]
    rows += [
        {"what": dataset, "which": "methods compared", "why": content["unavailable"][dataset]}
        for dataset in dict.fromkeys(content["datasets"])
        if dataset in content["unavailable"]
    ]
    if schemes := {paper.title: list(paper.schemes) for paper in papers.values() if paper.schemes}:
        which = "; ".join(f"{title}: {listed_in_short(names)}" for title, names in schemes.items())
        rows.append({"what": "schemes", "which": which, "why": "show no data, so there is nothing to build"})
    if not rows:
        return None
    table = ReportTable(
        "Results that are missing on this page, or incomplete, and the commands that build them.",
        [
            ReportColumn("what", "paper or dataset", align="left"),
            ReportColumn("which", "tables and figures", align="left"),
            ReportColumn("why", "why", align="left"),
            ReportColumn("command", "command", align="left"),
        ],
        rows,
    )
    return page_table("missing-table", table)


def _of_paper(paper: Paper, content: Mapping[str, Any]) -> Iterator[Row]:
    asked, built = set(content["artefacts"]), set(content["built"])
    reasons: dict[tuple[bool, str], list[Artefact]] = {}
    unasked = []
    for artefact in paper.artefacts.values():
        lacking = without(artefact, content["unavailable"])
        if artefact.target not in asked:
            unasked.append(artefact.name)
        elif lacking or artefact.target not in built:
            why = "; ".join(f"{name}: {reason}" for name, reason in lacking.items())
            reasons.setdefault((artefact.target in built, why), []).append(artefact)
    for (partly, why), artefacts in reasons.items():
        names, targets = zip(*((artefact.name, artefact.target) for artefact in artefacts), strict=True)
        if why:
            lead = "shown without " if partly else "no dataset is available: "
            yield _row(paper, names, lead + why)
        else:
            yield _row(paper, names, _NOT_STORED, f"snakemake --cores 2 {' '.join(targets)}")
    if unasked:
        yield _row(paper, unasked, "not asked for", f"snakemake --cores 2 {paper.name}")


def _row(paper: Paper, names: Sequence[str], why: str, command: str | None = None) -> Row:
    return {"what": paper.title, "which": listed_in_short(names), "why": why, "command": command}


def listed_in_short(names: Sequence[str]) -> str:
    """`2 tables (1, 3) and 1 figure (10)` for `table1`, `table3` and `fig10`."""
    labels: dict[str, list[str]] = {}
    for name in names:
        word, _, number = artefact_label(name).partition(" ")
        labels.setdefault(word.lower() if number else "other", []).append(number or word)
    return " and ".join(
        f"{len(numbers)} {word}{'s' if len(numbers) > 1 and word != 'other' else ''} ({', '.join(numbers)})"
        for word, numbers in labels.items()
    )
