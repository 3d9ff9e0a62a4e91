"""The page's table of runs."""

import pytest

from fedrec.config.methods import load_methods
from fedrec.files.checked_json import read_checked_json, write_checked_json
from fedrec.plan.runs import RunId
from fedrec.reporting.page.cells import RunLinks
from fedrec.reporting.page.sections.runs import runs_table
from fedrec.runs.record import RunRecord
from tests.conftest import ROOT
from tests.made_runs import write_run


@pytest.fixture
def shown(tmp_path):
    """The table of runs with these versions of fedrec."""
    methods = load_methods(ROOT / "config/methods.yaml")

    def table(versions):
        records = []
        for seed, version in enumerate(versions):
            run = RunId("pfedclr", "filmtrust", "clean", "mf", seed)
            folder = write_run(tmp_path, run, methods, whole=True).folder
            summary = read_checked_json(folder / "run.json")
            summary["measured"]["versions"] = {"fedrec": version, "torch": "2"}
            write_checked_json(folder / "run.json", summary)
            records.append(RunRecord(folder))
        return runs_table(records, RunLinks(tmp_path, tmp_path / "report.html"))

    return table


def test_versions_that_all_runs_have_are_said_once(shown):
    table = shown(["0", "0"])
    constant = {heading: cell.text for heading, cell in table.constant}
    assert constant["versions"] == "fedrec 0, torch 2"
    assert not table.notes


def test_versions_that_differ_have_a_number_and_are_told_below(shown):
    table = shown(["0", "1", "0"])
    place = [column.key for column in table.columns].index("versions")
    assert [row[place].text for row in table.rows] == ["1", "2", "1"]
    assert list(table.notes) == ["versions 1: fedrec 0, torch 2.", "versions 2: fedrec 1, torch 2."]


def test_exact_metrics_stand_beside_sampled_ones_and_a_run_without_has_a_dash(tmp_path):
    methods = load_methods(ROOT / "config/methods.yaml")
    records = [
        write_run(
            tmp_path,
            RunId("pfedclr", "filmtrust", "clean", "mf", seed),
            methods,
            ranks=(1, 2),
            exact=(1, 11),
            has_exact=bool(seed),
            whole=True,
        )
        for seed in (0, 1)
    ]
    table = runs_table(records, RunLinks(tmp_path, tmp_path / "report.html"))
    headings = [column.heading for column in table.columns]
    assert [row[headings.index("exact HR@10")].text for row in table.rows] == ["–", "0.5000"]
    assert list(table.notes) == ["1 of 2 runs have no exact metrics: they stored no ranks among all items."]
