"""The report: one page of all results, which opens in any browser and loads nothing from anywhere.

Its numbers come from the csv files of tables and figures and from the files of runs. What is
asked for but missing is an error; what cannot be had, or was not asked for, is listed on the page.
"""

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from fedrec.config.papers import DATALESS, UNTRAINED, Artefact, Paper
from fedrec.errors import ResultError
from fedrec.files.atomic import write_text
from fedrec.plan.available import can_be_built, without
from fedrec.plan.layouts import Layout
from fedrec.reporting.report_artefacts import comparison_of, label, shown_of, statistics_of
from fedrec.reporting.report_audit import audited
from fedrec.reporting.report_runs import costs_view, finished_run, protocols_view, provenance_view

PAGE = Path(__file__).resolve().parent / "page"
"""The template of the page, its style and its script."""


def page_files() -> list[Path]:
    """The files of the page that are no Python sources: a rule that makes it depends on them, too."""
    return sorted(path for path in PAGE.iterdir() if path.is_file())


def write_report(
    results: Path,
    papers: Mapping[str, Paper],
    chosen: Sequence[Artefact],
    *,
    datasets: Sequence[str],
    selections: Sequence[str],
    unavailable: Mapping[str, str],
    runs: Sequence[Path],
    audit: Sequence[str] = (),
    out: Path,
) -> None:
    """Write the page `out` about what is below `results`.

    `chosen` are the tables and figures asked for, `datasets` those whose methods are compared
    (`tables/<dataset>_comparison.csv`), `selections` the tables of statistics
    (`tables/<selection>_statistics.csv`), `unavailable` the reason for each dataset or split
    (`dataset/protocol`) that cannot be had, `runs` the folders of finished runs, and `audit` the
    tables of the audit (`tables/<name>.csv`). The same files give the same page.
    """
    finished = sorted((finished_run(folder) for folder in set(runs)), key=lambda run: run.key)
    asked = {one.target for one in chosen}
    every = [one for paper in papers.values() for one in paper.artefacts.values()]
    built = [one for one in every if one.target in asked and can_be_built(one, _layout_of(one), unavailable)]
    compared = [name for name in dict.fromkeys(datasets) if name not in unavailable]
    style, script = (_page_file(name) for name in ("report.css", "report.js"))
    page = _template().render(
        style=Markup(style),  # noqa: S704 - a file of this package
        script=Markup(script),  # noqa: S704 - a file of this package
        style_hash=_hash_of(style),
        script_hash=_hash_of(script),
        protocols=protocols_view(finished),
        comparisons=[(name, comparison_of(results, name, out)) for name in compared],
        audit=audited(results, audit, papers, out),
        papers=[
            (paper, [shown_of(results, one, unavailable, out) for one in built if one.paper == name])
            for name, paper in papers.items()
        ],
        statistics=[(name, *statistics_of(results, name, out)) for name in dict.fromkeys(selections)],
        provenance=provenance_view(finished, out) if finished else None,
        costs=costs_view(finished) if finished else None,
        unbuilt=[
            (one, label(one.name), without(one, unavailable))
            for one in every
            if one.target in asked and one not in built
        ],
        partial=[
            (one, label(one.name), without(one, unavailable)) for one in built if without(one, unavailable)
        ],
        uncompared=[name for name in dict.fromkeys(datasets) if name in unavailable],
        unasked=[
            (paper, [(one, label(one.name)) for one in paper.artefacts.values() if one.target not in asked])
            for paper in papers.values()
            if any(one.target not in asked for one in paper.artefacts.values())
        ],
        schemes=[
            (paper, [(label(name), what) for name, what in paper.schemes.items()])
            for paper in papers.values()
            if paper.schemes
        ],
        unavailable=unavailable,
        papers_by_name=papers,
    )
    write_text(out, page)


@cache
def _page_file(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8")


def _template() -> Any:  # noqa: ANN401 - jinja2's own type says no more
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["breakable"] = _breakable
    return environment.from_string(_page_file("report.html"))


def _breakable(text: str) -> Markup:
    """The text, to be broken before the settings in a method's name rather than anywhere."""
    return escape(text).replace("[", Markup("<wbr>["))


def _hash_of(text: str) -> str:
    """What the page's policy calls an inline style or script that may be used."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"


def _layout_of(artefact: Artefact) -> Layout:
    needs = (
        () if artefact.layout in DATALESS else ("statistics",) if artefact.layout in UNTRAINED else ("runs",)
    )
    return Layout(artefact.form, needs)


def folders_of_runs(named: Sequence[str], listed: Sequence[Path]) -> list[Path]:
    """The folders behind names of runs, given on the command line or one per line in files.

    A name is a run's folder, its run.json, or a pattern with `*`. Brackets are no pattern:
    they stand in names of methods.
    """
    found: dict[Path, None] = {}
    for name in [*named, *_lines(listed)]:
        paths = _matching(name) if "*" in name else [Path(name)]
        if not paths:
            raise ResultError(f"{name}: no run matches this pattern.")
        found |= {path.parent if path.name == "run.json" else path: None for path in paths}
    return list(found)


def _lines(files: Sequence[Path]) -> Iterator[str]:
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ResultError(f"{file}: no such file; it should name one run per line.") from None
        yield from (line.strip() for line in text.splitlines() if line.strip())


def _matching(pattern: str) -> list[Path]:
    path = Path(pattern)
    start = Path(path.anchor) if path.anchor else Path()
    inner = pattern.removeprefix(path.anchor).replace("[", "[[]")
    return sorted(found for found in start.glob(inner) if found.name == "run.json" or found.is_dir())
