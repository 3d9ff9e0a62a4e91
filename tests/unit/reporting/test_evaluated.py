"""Systems that fedrec did not train, beside runs: in comparisons, tables of significance and the leaderboard."""

import csv
import json
import shutil
from dataclasses import replace

import pytest

from fedrec.errors import ConfigurationError, ResultError
from fedrec.files.checked_json import read_checked_json, write_checked_json
from fedrec.plan.leaderboard import LEADERBOARD
from fedrec.plan.runs import RunId
from fedrec.reporting.build import build
from fedrec.reporting.stored import build_named, stored_runs
from fedrec.runs.results import records_below
from fedrec.runs.store import RunStore, packed_run
from tests.made_runs import write_run
from tests.projects import Made
from tests.unit.reporting.tables import test_leaderboard

NAME = "my-als"
USERS, GOOD = test_leaderboard.USERS, test_leaderboard.GOOD
SOURCE = {"name": NAME, "file": "als.npy", "sha256": "5c0" * 21 + "1", "date": "2026-01-02T03:04:05+00:00"}
made_for_leaderboard = test_leaderboard.made


@pytest.fixture
def made(tmp_path):
    return Made(tmp_path)


def add_theirs(made, protocol="clean", *, has_exact=True, **changes):
    """A record as `fedrec evaluate` writes it; its run.json says `changes` besides."""
    results = made.folder / "results"
    run = RunId("own", "alpha", protocol, "popularity", 0)
    write_run(results, run, made.project().methods, ranks=[1] * USERS, exact=GOOD, has_exact=has_exact)
    folder = results / "evaluated/alpha" / protocol / NAME
    folder.parent.mkdir(parents=True)
    (results / run.folder).rename(folder)
    summary = read_checked_json(folder / "run.json")
    own = {"method": NAME, "settings": {}, "sources": {}, "elsewhere": SOURCE}
    trained = ("sha256", "measured")
    write_checked_json(
        folder / "run.json",
        {key: value for key, value in summary.items() if key not in trained} | own | changes,
    )


def built(project, name):
    """The rows of a table's csv, and what it shows."""
    target = project.target(name)
    build(target, project)
    with (project.results / target.files[0]).open() as stream:
        return list(csv.DictReader(stream)), (project.results / target.files[1]).read_text()


def compared(made):
    """A project with runs of both methods under both protocols, and another system."""
    project = made.project(datasets=["alpha"], evaluated=[NAME])
    for run in project.target("alpha_comparison").runs:
        write_run(project.results, run, project.methods, ranks=[20] * USERS)
    return project


def test_a_name_without_a_record_is_refused_with_the_command_that_makes_one(made):
    with pytest.raises(
        ConfigurationError, match=r"has no record of 'my-als'\. Make one with: fedrec evaluate --scores"
    ):
        made.project(evaluated=[NAME])
    add_theirs(made)
    with pytest.raises(ConfigurationError, match=r"no record of 'my-al'\. Did you mean 'my-als'"):
        made.project(evaluated=["my-al"])
    with pytest.raises(ConfigurationError, match=r"evaluated\[0\]: '../als' .text. does not match"):
        made.project(evaluated=["../als"])
    record = "evaluated/alpha/clean/my-als/run.json"
    assert record in made.project(evaluated=[NAME]).target("alpha_comparison").inputs
    assert record not in made.project().target("alpha_comparison").inputs


def test_a_comparison_has_its_numbers_its_source_and_nothing_that_fedrec_cannot_know(made):
    add_theirs(made)
    rows, shown = built(compared(made), "alpha_comparison")
    (row,) = (row for row in rows if row["method"] == NAME)
    assert (row["kind"], row["protocol"], float(row["exact_hr@10"])) == ("elsewhere", "clean", 1)
    assert float(row["hr@10"]) > 0
    assert row["source"] == "als.npy, sha256 5c05c05c, ranked 2026-01-02"
    unknown = ("paper", "rounds", "own_rounds", "seconds_per_round", "seeds", "runs", "device")
    assert [row[key] for key in unknown] == [""] * len(unknown)
    assert "scored elsewhere (als.npy, sha256 5c05c05c, ranked 2026-01-02)" in shown
    assert "No scores were given for: my-als on alpha, published." in shown


def test_differences_are_tested_also_where_it_has_no_exact_ranks(made):
    add_theirs(made, has_exact=False)
    rows, shown = built(compared(made), "audit_significance")
    theirs = {row["metric"]: row for row in rows if row["method"] == NAME}
    assert set(theirs) == {"hr@10", "ndcg@10"}
    assert float(theirs["hr@10"]["reference_difference"]) == 1
    others = [row for row in rows if row["metric"] == "hr@10" and row["protocol"] == "clean"]
    assert {row["best"] for row in others} == {NAME, ""}
    assert any(row["metric"] == "exact_hr@10" for row in rows)
    assert "my-als (scored elsewhere)" in shown
    assert "It has no exact metrics, because its scores do not cover all items." in shown


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"split": "0" * 64},
            "were ranked on a different split than the runs. Delete the folder, then: fedrec",
        ),
        ({"method": "other"}, "has no record of my-als on alpha under clean"),
        ({"elsewhere": None}, "has no record of my-als"),
    ],
)
def test_a_record_that_is_not_what_its_folder_says_is_an_error(made, changes, said):
    add_theirs(made, **changes)
    with pytest.raises(ResultError, match=said):
        built(compared(made), "alpha_comparison")


@pytest.mark.parametrize("has_exact", [True, False])
def test_the_leaderboard_ranks_it_by_its_exact_metric(made_for_leaderboard, has_exact):
    made = made_for_leaderboard
    add_theirs(made, has_exact=has_exact)
    project = test_leaderboard.trained(made, evaluated=[NAME])
    rows, shown = built(project, LEADERBOARD)
    (row,) = (row for row in rows if row["method"] == NAME)
    assert (row["kind"], row["search"], row["kilobytes_up"], row["validation"]) == ("elsewhere", "", "", "")
    if has_exact:
        assert float(row["exact_ndcg@10"]) == 1
        assert row["central_against"] == "ease"
        assert float(row["central_difference"]) > 0
    else:
        assert row["state"] == "no scores of all items"
    assert "scored elsewhere" in shown
    plan = json.loads(project.target(LEADERBOARD).as_json())
    assert plan["content"]["evaluated"] == {"there": ["evaluated/alpha/clean/my-als"], "lacking": []}


def test_a_store_takes_records_in_and_shows_them_on_the_leaderboard_alone(made_for_leaderboard, tmp_path):
    """The record lies beside packed runs; the note of whoever gave the scores is shown."""
    made = made_for_leaderboard
    add_theirs(made, elsewhere={**SOURCE, "note": "ALS of a library, d 8, chosen on validation."})
    project = test_leaderboard.trained(made)
    store = RunStore(tmp_path / "store")
    store.add([packed_run(record) for record in records_below(project.results / "runs")])
    split = next(iter(store.every_run())).summary["split"]
    store.split_hashes = lambda: {("alpha", "clean"): split}
    assert store.add_evaluated(project.results) == ["evaluated/alpha/clean/my-als"]
    assert store.evaluated() == ["evaluated/alpha/clean/my-als"]
    stored = replace(stored_runs(store, project), datasets=frozenset({"alpha"}))
    built_there = replace(
        project, stored=stored, configuration={**project.configuration, "results": str(tmp_path / "built")}
    )
    shutil.copytree(project.results / "data", tmp_path / "built/data")
    build_named(built_there, store, [LEADERBOARD], 1)
    shown = (tmp_path / "built/tables/leaderboard.md").read_text()
    assert "scored elsewhere" in shown
    assert "Its note says: ALS of a library, d 8, chosen on validation." in shown
    compared = built_there.target("alpha_comparison").content
    assert "evaluated" not in compared


def test_a_store_refuses_a_record_of_another_split(made, tmp_path):
    add_theirs(made)
    store = RunStore(tmp_path / "store")
    store.split_hashes = lambda: {("alpha", "clean"): "another"}
    with pytest.raises(ResultError, match="ranked on another split than that of the stored runs"):
        store.add_evaluated(made.folder / "results")
    assert store.evaluated() == []
