"""A table, a table of the audit or a figure layout is one file: nothing else is told of it."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.conftest import HALF_WRITTEN, ROOT

TABLE = '''
"""How many runs a line has."""

from fedrec.plan.layouts import Layout
from fedrec.reporting.artefact_runs import artefact_runs_of
from fedrec.reporting.tables.paper_table import METHOD_COLUMN, write_paper_table
from fedrec.reporting.tables.table import ReportColumn
from fedrec.runs.provenance_columns import origin_columns

LAYOUT = Layout("table", needs=("runs",))


def build(target, project):
    subject = artefact_runs_of(target, project)
    rows = [
        {"method": subject.label(subject.artefact.lines[key[0]]), "count": len(group), **origin_columns(group)}
        for key, group in subject.groups.items()
    ]
    write_paper_table(target, project, subject, rows, [METHOD_COLUMN, ReportColumn("count", "runs counted")])
'''
AUDIT = '''
"""How many runs are compared."""

from fedrec.plan.layouts import Layout
from fedrec.reporting.artefact_runs import finished_runs, stem_of
from fedrec.reporting.tables.table import Chapter, ReportColumn, ReportTable, write_forms
from fedrec.runs.provenance_columns import origin_columns

LAYOUT = Layout("table", needs=("runs",), selection="comparison")


def build(target, project):
    runs = finished_runs(target, project)
    rows = [{"what": "runs", "count": len(runs), **origin_columns(runs)}]
    columns = [ReportColumn("what", "what", align="left"), ReportColumn("count", "count")]
    chapter = Chapter("A tally of ours", "Read it as a number.")
    write_forms(stem_of(target, project), rows, [ReportTable("All runs.", columns, rows)], chapter)
'''
FIGURE = '''
"""Dots: the metric of each line."""

from fedrec.plan.layouts import Layout
from fedrec.reporting.figures.chart import build_figure, chart
from fedrec.reporting.figures.panels import legend
from fedrec.reporting.figures.figure_data import line_rows, over_seeds_columns
from fedrec.reporting.figures.style import blank_figure, looks

LAYOUT = Layout("figure", needs=("runs",))


def build(target, project):
    build_figure(target, project, draw)


def draw(subject):
    return chart(subject, line_rows(subject, rows), figure_of, "A dot for each method.")


def rows(subject, line, records):
    yield over_seeds_columns("hr@10", [record.metric("hr@10") for record in records], records)


def figure_of(artefact, rows):
    figure, look = blank_figure(3, 2), looks(row["method"] for row in rows)
    axes = figure.subplots()
    for place, row in enumerate(rows):
        axes.plot([place], [row["mean"]], **look[row["method"]].line(label=row["label"]))
    legend(figure, [look[row["method"]].handle(row["label"]) for row in rows])
    return figure
'''
SCRIPT = """
import sys
from pathlib import Path

import fedrec
from fedrec.config.papers import Artefact, Line
from fedrec.reporting.build import build
from fedrec.reporting.page.page import write_page
from fedrec.runs.results import records_below
from tests.federations import METHODS
from tests.made_project import project_with
from tests.made_runs import write_run

assert Path(fedrec.__file__).is_relative_to(sys.argv[1]), fedrec.__file__
results = Path(sys.argv[1]) / "results"
lines = (Line(run="fedmf"), Line(run="pfedrec"))
artefacts = [
    Artefact("pfedclr", "table98", "A table of ours", "sums", ("ml-100k",), ("hr@10",), lines),
    Artefact("pfedclr", "fig99", "A figure of ours", "dots", ("ml-100k",), ("hr@10",), lines),
]
chosen = {"methods": ["popularity", "fedmf"], "datasets": ["ml-100k"], "seeds": [0]}
project = project_with(results, {}, *artefacts, **chosen)
targets = [project.target(name) for name in ("pfedclr_table98", "pfedclr_fig99", "audit_tally")]
assert targets[2].name in project.targets.audit_targets()
for run in {run for target in targets for run in target.runs}:
    write_run(results, run, METHODS, rounds=3, whole=True)
for target in targets:
    build(target, project)
content = {name: [] for name in ("datasets", "targets", "statistics")}
shown = [artefact.target for artefact in artefacts]
content |= {"artefacts": shown, "built": shown, "kept": {}, "prefix": "", "audit": ["audit_tally"], "unavailable": {}}
names = project.targets.names
write_page(results / "page.html", results, project.papers, names, content, records_below(results), METHODS)
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Built by a copy of the package with three files more."""
    folder = tmp_path_factory.mktemp("package")
    shutil.copytree(ROOT / "fedrec", folder / "fedrec", ignore=HALF_WRITTEN)
    for path, text in {"tables/sums": TABLE, "tables/audit/tally": AUDIT, "figures/dots": FIGURE}.items():
        (folder / f"fedrec/reporting/{path}.py").write_text(text)
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder / "results"


def test_a_new_table_is_one_file(results):
    text = (results / "tables/pfedclr_table98.md").read_text()
    assert "| FedMF" in text
    assert {path.suffix for path in (results / "tables").glob("pfedclr_table98.*")} == {
        ".csv",
        ".md",
        ".tex",
        ".json",
    }
    assert (
        "runs/pfedclr/ml-100k/published-pfedclr/pfedrec/seed0"
        in (results / "tables/pfedclr_table98.csv").read_text()
    )


def test_a_new_figure_is_one_file(results):
    assert (results / "figures/pfedclr_fig99.png").stat().st_size > 500
    assert "A dot for each method." in (results / "figures/pfedclr_fig99.txt").read_text()


def test_a_new_table_of_the_audit_is_one_file(results):
    assert "| runs |     4 |" in (results / "tables/audit_tally.md").read_text()


def test_the_page_has_their_chapters_by_itself(results):
    page = (results / "page.html").read_text()
    for part in (
        "A tally of ours",
        "Read it as a number.",
        "Table 98: A table of ours",
        "Figure 99: A figure of ours",
    ):
        assert part in page
    assert '<table id="audit_tally-1"' in page
    assert '<table id="pfedclr_table98-values"' in page
    assert page.count("data:image/svg+xml;base64,") == 1
