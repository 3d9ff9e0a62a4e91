"""The page of all results, which opens in any browser and loads nothing from anywhere.

It shows the json of tables, the png and caption of figures, and what runs say of themselves. What is asked
for but missing is an error; what is not available, or was not asked for, is listed on the page.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from fedrec.config.papers import Paper
from fedrec.files.atomic import write_text
from fedrec.plan.available import without
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.page.cells import RunLinks
from fedrec.reporting.page.files import TABLE_LINKS, links_of
from fedrec.reporting.page.sections.audit import shown_audit
from fedrec.reporting.page.sections.comparisons import shown_target
from fedrec.reporting.page.sections.papers import artefact_label, shown_artefact, tables_of
from fedrec.reporting.page.sections.runs import costs_table, protocols_table, runs_table
from fedrec.runs.record import RunRecord

LAYOUT = Layout("page")
PAGE_FOLDER = Path(__file__).resolve().parent
"""The folder of the template of the page, its style and its script."""


def build(target: Target, project: Project) -> None:
    """Write the page that a target asks for."""
    records = [RunRecord(project.results / run.folder) for run in target.runs]
    page = project.results / target.files[0]
    write_page(page, project.results, project.papers, project.targets.names, target.content, records)


def write_page(
    page: Path,
    results: Path,
    papers: Mapping[str, Paper],
    forms: Mapping[str, str],
    content: Mapping[str, Any],
    records: Sequence[RunRecord],
) -> None:
    """Write the page about what is below `results`; the same files give the same page.

    `forms` says of every target whether it is a table or a figure. `content` names what is shown: `datasets`
    whose methods are compared, `targets` that compare them, `artefacts` of papers asked for and those of them
    that were `built`, tables of `statistics`, targets of the `audit`, and why data are `unavailable`.
    `records` are the runs behind it.
    """
    runs = sorted(records, key=lambda record: (record.id, str(record.folder)))
    links = RunLinks(results, page, frozenset(record.id.folder for record in runs))
    text = _template().render(
        **_inline_files(),
        protocols=protocols_table(runs),
        comparisons=_comparisons(results, forms, content, links),
        audit=shown_audit(results, {name: forms[name] for name in content["audit"]}, papers, links),
        papers=_built_artefacts(results, papers, forms, content, links),
        statistics=_statistics(page, results, content["statistics"], links),
        provenance=runs_table(runs, links) if runs else None,
        costs=costs_table(runs) if runs else None,
        **_missing(papers, content),
        schemes=_schemes(papers),
        unavailable=content["unavailable"],
        papers_by_name=papers,
    )
    write_text(page, text)


def _inline_files() -> dict[str, Any]:
    """The style and the script of the page, and the hashes by which its policy allows them."""
    style, script = (_page_file(name) for name in ("page.css", "page.js"))
    return {
        "style": Markup(style),  # noqa: S704 - a file of this package
        "script": Markup(script),  # noqa: S704 - a file of this package
        "style_hash": _hash_of(style),
        "script_hash": _hash_of(script),
    }


def _comparisons(
    results: Path, forms: Mapping[str, str], content: Mapping[str, Any], links: RunLinks
) -> list[tuple[str, list[Any]]]:
    """Each available dataset with the targets that compare methods on it."""
    elsewhere = {*content["artefacts"], *content["statistics"], *content["audit"]}
    targets = [target for target in dict.fromkeys(content["targets"]) if target not in elsewhere]
    return [
        (
            dataset,
            [
                shown_target(results, target, forms[target], links)
                for target in targets
                if target.startswith(f"{dataset}_")
            ],
        )
        for dataset in dict.fromkeys(content["datasets"])
        if dataset not in content["unavailable"]
    ]


def _built_artefacts(
    results: Path,
    papers: Mapping[str, Paper],
    forms: Mapping[str, str],
    content: Mapping[str, Any],
    links: RunLinks,
) -> list[tuple[Paper, list[Any]]]:
    """Each paper with its artefacts that were built."""
    built = set(content["built"])
    return [
        (
            paper,
            [
                shown_artefact(results, artefact, forms[artefact.target], content["unavailable"], links)
                for artefact in paper.artefacts.values()
                if artefact.target in built
            ],
        )
        for paper in papers.values()
    ]


def _statistics(page: Path, results: Path, names: Sequence[str], links: RunLinks) -> list[tuple[Any, ...]]:
    """Each table of statistics: its name, its tables and links to its files."""
    stems = {name: results / "tables" / name for name in names}
    return [(name, tables_of(stem, links), links_of(stem, TABLE_LINKS, page)) for name, stem in stems.items()]


def _missing(papers: Mapping[str, Paper], content: Mapping[str, Any]) -> dict[str, Any]:
    """What the page does not show, or not whole: for want of data, or because nobody asked for it."""
    unavailable: Mapping[str, str] = content["unavailable"]
    asked, built = set(content["artefacts"]), set(content["built"])
    every = [artefact for paper in papers.values() for artefact in paper.artefacts.values()]
    reasons = {artefact.target: without(artefact, unavailable) for artefact in every}
    unasked = [
        (
            paper,
            [
                (artefact, artefact_label(artefact.name))
                for artefact in paper.artefacts.values()
                if artefact.target not in asked
            ],
        )
        for paper in papers.values()
    ]
    return {
        "unbuilt": [
            (artefact, artefact_label(artefact.name), reasons[artefact.target])
            for artefact in every
            if artefact.target in asked - built
        ],
        "partial": [
            (artefact, artefact_label(artefact.name), reasons[artefact.target])
            for artefact in every
            if artefact.target in built and reasons[artefact.target]
        ],
        "uncompared": [name for name in dict.fromkeys(content["datasets"]) if name in unavailable],
        "unasked": [(paper, artefacts) for paper, artefacts in unasked if artefacts],
    }


def _schemes(papers: Mapping[str, Paper]) -> list[tuple[Paper, list[tuple[str, str]]]]:
    """Each paper's schemes, which nothing is built for, with what they show."""
    return [
        (paper, [(artefact_label(name), what) for name, what in paper.schemes.items()])
        for paper in papers.values()
        if paper.schemes
    ]


@cache
def _page_file(name: str) -> str:
    return (PAGE_FOLDER / name).read_text(encoding="utf-8")


def _template() -> Any:  # noqa: ANN401 - jinja2's own type says no more
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["breakable"] = _breakable
    return environment.from_string(_page_file("page.html"))


def _breakable(text: str) -> Markup:
    """The text, to be broken before the settings in a method's name rather than anywhere."""
    return escape(text).replace("[", Markup("<wbr>["))


def _hash_of(text: str) -> str:
    """What the page's policy calls an inline style or script that may be used."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"
