"""The page of all results, which opens in any browser and needs no network.

It begins with the finding, as sentences and a figure. Then it shows the json of tables, the svg and caption
of figures, and the records of runs. A requested file that is missing is an error. The page lists results that
are not available or were not requested, and leaves out empty chapters.
"""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from fedrec.config.methods import Methods
from fedrec.config.names import parse
from fedrec.config.papers import Paper
from fedrec.files.atomic import write_text
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.front_figure import Front, front_of
from fedrec.reporting.headline import headline, largest_group
from fedrec.reporting.method_scores import CLEAN, PUBLISHED, MethodScore, read_method_scores
from fedrec.reporting.page.cells import RunLinks
from fedrec.reporting.page.files import TABLE_LINKS, links_of
from fedrec.reporting.page.sections.audit import shown_audit
from fedrec.reporting.page.sections.comparisons import SLOPE, ShownTarget, shown_target
from fedrec.reporting.page.sections.front import shown_front
from fedrec.reporting.page.sections.missing import missing_table
from fedrec.reporting.page.sections.papers import shown_artefact, tables_of
from fedrec.reporting.page.sections.runs import COMMANDS, costs_table, example, protocols_table, runs_tables
from fedrec.runs.record import RunRecord

LAYOUT = Layout("page")
PAGE_FOLDER = Path(__file__).resolve().parent
"""The folder of the pages' templates, style and script."""
_CHANGED = re.compile(r"(?<=\w)\[")
"""The begin of the settings in a method's name."""
_NO_FINDING = "This page compares no methods, so it states no finding.\n"


def build(target: Target, project: Project) -> None:
    """Write the page that a target asks for."""
    records = [RunRecord(project.results / run.folder) for run in target.runs]
    page = project.results / target.files[0]
    write_page(
        page,
        project.results,
        project.papers,
        project.targets.names,
        target.content,
        records,
        project.methods,
    )


def write_page(
    page: Path,
    results: Path,
    papers: Mapping[str, Paper],
    forms: Mapping[str, str],
    content: Mapping[str, Any],
    records: Sequence[RunRecord],
    methods: Methods,
) -> None:
    """Write the page of the files below `results`, the page of its runs, and its finding as text.

    The same files give the same page. `forms` has the form of every target, table or figure. `records` are
    the runs behind the page. The keys of `content`:

    - `datasets`: datasets with comparisons of methods; `targets`: the comparisons; `prefix`: of their names
    - `artefacts`: requested tables and figures of papers; `built`: those that were built; `kept`: files of
      those that are shown as stored
    - `statistics`: tables of statistics; `audit`: targets of the audit
    - `unavailable`: reasons for data that are not available
    """
    runs = sorted(records, key=_runs_order)
    links = RunLinks(results, page, frozenset(record.id.folder for record in runs))
    scores = _method_scores(results, content)
    main_scores = largest_group([one for of_dataset in scores.values() for one in of_dataset])
    comparisons = _comparisons(results, forms, content, scores, links)
    front = _front(records, methods, main_scores)
    shows_the_same = front is not None and _runs_of(front.scores) == _runs_of(main_scores)
    slopes = {_slope_of(one.dataset, content) for one in main_scores[:1] if front is None or shows_the_same}
    slope = next((one for _, shown in comparisons for one in shown if one.name in slopes), None)
    audit = shown_audit(results, {name: forms[name] for name in content["audit"]}, papers, links)
    sentences = [
        *headline(main_scores if front is None else front.scores),
        *(sentence for chapter in audit for sentence in chapter.finding),
    ]
    text = _template("page.html").render(
        **_inline_files(),
        runs_page=links.runs_page.name,
        finding=sentences,
        picture=slope if front is None else None,
        front=None if front is None else shown_front(front, links),
        comparisons=[(dataset, [one for one in shown if one is not slope]) for dataset, shown in comparisons],
        verdicts=[chapter for chapter in audit if chapter.decides],
        # Chapters without verdicts come last.
        audit=sorted(
            (chapter for chapter in audit if not chapter.decides), key=lambda chapter: bool(chapter.counts)
        ),
        papers=_built_artefacts(results, papers, forms, content, links),
        statistics=_statistics(page, results, content["statistics"], links),
        protocols=protocols_table(runs),
        missing=missing_table(papers, content),
        counts=_counts(runs),
    )
    runs_text = _template("runs.html").render(
        **_inline_files(),
        front_page=page.name,
        datasets=runs_tables(runs, links),
        commands=COMMANDS if runs else (),
        example=example(runs[0]) if runs else "",
        costs=costs_table(runs) if runs else None,
        long_tables=[(chapter.title, table) for chapter in audit for table in chapter.elsewhere],
    )
    # The page comes last: if it exists, the files that it links to exist, too.
    write_text(links.runs_page, runs_text)
    write_text(page, text)
    write_text(page.with_suffix(".txt"), "\n".join(sentences) + "\n" if sentences else _NO_FINDING)


def _runs_order(record: RunRecord) -> tuple[str, str, str, str, int, str]:
    """The sort key of runs: those that differ only by protocol and seed are neighbours."""
    run = record.id
    return run.dataset, run.paper, run.method, run.protocol, run.seed, str(record.folder)


def _inline_files() -> dict[str, Any]:
    """The style and the script of the page, with the hashes that its content policy allows."""
    style, script = (_page_file(name) for name in ("page.css", "page.js"))
    return {
        "style": Markup(style),  # noqa: S704 - a file of this package
        "script": Markup(script),  # noqa: S704 - a file of this package
        "style_hash": _hash_of(style),
        "script_hash": _hash_of(script),
    }


def _method_scores(results: Path, content: Mapping[str, Any]) -> dict[str, list[MethodScore]]:
    """The method scores on each available dataset, from the csv of its slope chart."""
    return {
        dataset: read_method_scores(results / f"figures/{slope}.csv")
        for dataset in _compared_datasets(content)
        if (slope := _slope_of(dataset, content)) in content["targets"]
    }


def _front(
    records: Sequence[RunRecord], methods: Methods, main_scores: Sequence[MethodScore]
) -> Front | None:
    """The front figure of method scores; None without runs under both protocols."""
    if not main_scores:
        return None
    return front_of(
        records, methods, [one.method for one in main_scores], main_scores[0].dataset, main_scores[0].paper
    )


def _runs_of(scores: Sequence[MethodScore]) -> set[str]:
    """The runs behind method scores under the protocols that figures show."""
    return {score.runs for score in scores if score.protocol in (PUBLISHED, CLEAN)}


def _slope_of(dataset: str, content: Mapping[str, Any]) -> str:
    """The slope chart of a dataset."""
    return f"{content['prefix']}{dataset}_{SLOPE}"


def _compared_datasets(content: Mapping[str, Any]) -> list[str]:
    return [name for name in dict.fromkeys(content["datasets"]) if name not in content["unavailable"]]


def _comparisons(
    results: Path,
    forms: Mapping[str, str],
    content: Mapping[str, Any],
    scores: Mapping[str, Sequence[MethodScore]],
    links: RunLinks,
) -> list[tuple[str, list[ShownTarget]]]:
    """Each available dataset with the comparisons of methods on it."""
    elsewhere = {*content["artefacts"], *content["statistics"], *content["audit"]}
    targets = [target for target in dict.fromkeys(content["targets"]) if target not in elsewhere]
    return [
        (
            dataset,
            [
                shown_target(results, target, forms[target], scores.get(dataset, ()), links)
                # Tables come before figures, in reverse alphabetical order of forms.
                for target in sorted(targets, key=forms.__getitem__, reverse=True)
                if target.startswith(f"{content['prefix']}{dataset}_")
            ],
        )
        for dataset in _compared_datasets(content)
    ]


def _counts(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """The counts of runs, methods, datasets and seeds behind a page."""
    return {
        "runs": len(runs),
        "methods": len({parse(run.id.method).name for run in runs}),
        "datasets": sorted({run.id.dataset for run in runs}),
        "seeds": len({run.id.seed for run in runs}),
    }


def _built_artefacts(
    results: Path,
    papers: Mapping[str, Paper],
    forms: Mapping[str, str],
    content: Mapping[str, Any],
    links: RunLinks,
) -> list[tuple[Paper, list[Any]]]:
    """Each paper with its artefacts that were built; papers without any are left out."""
    built = set(content["built"])
    shown = [
        (
            paper,
            [
                shown_artefact(
                    results,
                    artefact,
                    forms[artefact.target],
                    content["unavailable"],
                    links,
                    kept=content["kept"].get(artefact.target),
                )
                for artefact in paper.artefacts.values()
                if artefact.target in built
            ],
        )
        for paper in papers.values()
    ]
    return [(paper, artefacts) for paper, artefacts in shown if artefacts]


def _statistics(page: Path, results: Path, names: Sequence[str], links: RunLinks) -> list[tuple[Any, ...]]:
    """Each table of statistics: its name, its tables and links to its files."""
    stems = {name: results / "tables" / name for name in names}
    return [(name, tables_of(stem, links), links_of(stem, TABLE_LINKS, page)) for name, stem in stems.items()]


@cache
def _page_file(name: str) -> str:
    return (PAGE_FOLDER / name).read_text(encoding="utf-8")


@cache
def _template(name: str) -> Any:  # noqa: ANN401 - jinja2's own type says no more
    environment = Environment(
        loader=FileSystemLoader(PAGE_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["breakable"] = _breakable
    return environment.get_template(name)


def _breakable(text: str) -> Markup:
    """The text with line breaks allowed before the settings of a method and before a deviation."""
    return Markup(_CHANGED.sub("<wbr>[", escape(text.replace("± ", "±\N{NO-BREAK SPACE}"))))  # noqa: S704 - escaped before


def _hash_of(text: str) -> str:
    """The hash by which the page's content policy allows an inline style or script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"
