"""`fedrec audit` as a user calls it: a run by itself, tables of many, and errors that say what to do."""

import csv
import json

import pytest

from fedrec.cli.main import main
from fedrec.config.protocol import full_name
from fedrec.plan.runs import RunId
from tests.conftest import ROOT
from tests.federations import METHODS, uniform_noise
from tests.made_runs import write_run
from tests.trained_runs import PAPER, finished, made_results

TINY = ("rounds=2", "d=4", "local_epochs=1", "participation=1")
ABOUT = {"dataset", "method", "paper", "seed", "split", "code", "protocol", "rounds"}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    sizes = {"users": 12, "items": 40, "per_user": 8, "candidates": 12}
    return made_results(tmp_path_factory.mktemp("small"), uniform_noise, **sizes)


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch):
    """Defaults name files of the project."""
    monkeypatch.chdir(ROOT)


def audit(*arguments):
    return main(["audit", *map(str, arguments)])


def printed(capsys, *arguments):
    assert audit(*arguments) == 0
    return json.loads(capsys.readouterr().out)


# A run by itself


def test_a_run_tells_of_its_draws_and_what_else_could_be_known(small, capsys):
    run = finished(small, "draw-counter", "published", "rounds=2")
    capsys.readouterr()
    found = printed(capsys, "--run", run.folder)
    assert set(found) == ABOUT | {"exposure", "hits", "uploads"}
    assert (found["protocol"], found["rounds"]) == (f"published-{PAPER}", 2)
    assert found["exposure"]["test"]["held_out"]["never"] == 1
    assert found["hits"] == (
        "to see which vanish where held-out items may be drawn, train the same under only-pool"
    )
    assert found["uploads"] == "to attack what clients send, train with --record traffic"


def test_a_run_is_compared_with_the_exposed_one_beside_it(small, capsys):
    run = finished(small, "fedmf", "published", *TINY, record=["traffic"])
    exposed = finished(small, "fedmf", "only-pool", *TINY)
    capsys.readouterr()
    found = printed(capsys, "--run", run.folder)
    assert set(found["hits"]) == {"hits", "vanished", "share", "new", "clients"}
    assert found["hits"]["clients"] == 12
    assert set(found["uploads"]) == {"Q"}
    assert set(found["uploads"]["Q"]) == {"norm", "direction", "consecutive"}
    assert found["uploads"]["Q"]["norm"]["clients"] == 12
    # Named or found, it is the same.
    assert printed(capsys, "--run", run.folder, "--exposed", exposed.folder) == found


def test_where_held_out_items_may_be_drawn_no_hit_can_vanish(small, capsys):
    """The run under only-pool is beside a clean one too, but differs from it in more."""
    finished(small, "fedmf", "only-pool", *TINY)
    run = finished(small, "fedmf", "clean", *TINY)
    capsys.readouterr()
    found = printed(capsys, "--run", run.folder)
    assert found["hits"] == "held-out items may be drawn under this protocol anyway"


def test_what_is_told_of_a_run_can_be_written(small, tmp_path, capsys):
    run = finished(small, "draw-counter", "published", "rounds=2")
    capsys.readouterr()
    assert audit("--run", run.folder, "--out", tmp_path / "audit.json") == 0
    assert capsys.readouterr().out == ""
    assert json.loads((tmp_path / "audit.json").read_text()) == printed(capsys, "--run", run.folder)


def test_a_run_elsewhere_is_audited_with_its_splits_named(small, tmp_path, capsys):
    run = finished(small, "draw-counter", "published", "rounds=2")
    moved = tmp_path / "moved"
    moved.mkdir()
    for file in run.folder.iterdir():
        (moved / file.name).write_bytes(file.read_bytes())
    assert audit("--run", moved) == 1
    assert "Name the folder of its dataset's splits with --data" in capsys.readouterr().err
    found = printed(capsys, "--run", moved, "--data", small / "data/made")
    assert found["exposure"]["test"]["held_out"]["never"] == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "audit what? Name a finished run (fedrec audit --run DIR) or a table (fedrec audit --help)."),
        (("--run", "nowhere"), "run.json: this run is not finished."),
        (("exposure", "--out", "table"), "no run was given. Name the run.json of finished runs."),
        (("significance", "--out", "table"), "no run was given. Name the run.json of finished runs."),
        (("uploads", "--out", "table"), "no run was given. Name the run.json of finished runs."),
        (("exposure", "nowhere/run.json", "--out", "table"), "nowhere/run.json: this run is not finished."),
        (("exposure", "--runs-from", "no.txt", "--out", "table"), "no.txt: there is no such file."),
        (("granularity", "--statistics", "no.json"), "no.json: there is no such file."),
        (
            ("verdicts", "--of", "pfedcrl", "--out", "table"),
            "unknown paper 'pfedcrl'. Did you mean 'pfedclr'?",
        ),
    ],
)
def test_what_is_missing_is_said(capsys, arguments, said):
    assert audit(*arguments) == 1
    assert said in capsys.readouterr().err


# Tables


def test_granularity_is_printed_or_written(tmp_path, capsys):
    assert audit("granularity") == 0
    text = capsys.readouterr().out
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) > 10
    assert any("pfedrec" in line and "ml-100k" in line for line in lines)
    assert audit("granularity", "--out", tmp_path / "granularity") == 0
    assert (tmp_path / "granularity.md").read_text().strip() == text.strip()
    assert (tmp_path / "granularity.csv").is_file()
    assert (tmp_path / "granularity.tex").is_file()


def test_runs_of_a_table_may_be_named_in_a_file(small, tmp_path, capsys):
    runs = [finished(small, "draw-counter", kind, "rounds=2").folder for kind in ("published", "clean")]
    listed = tmp_path / "runs.txt"
    listed.write_text(f"{runs[1] / 'run.json'}\n")
    out = tmp_path / "tables/exposure"
    assert audit("exposure", runs[0] / "run.json", "--runs-from", listed, "--out", out) == 0
    assert "2 runs" in capsys.readouterr().err
    text = (tmp_path / "tables/exposure.md").read_text()
    assert "| draw-counter | published |" in text
    assert "| draw-counter | clean     |" in text


def test_a_table_of_uploads_of_a_run_that_kept_none_says_how_to_keep_them(small, tmp_path, capsys):
    run = finished(small, "fedmf", "clean", *TINY)
    capsys.readouterr()
    assert audit("uploads", run.folder / "run.json", "--out", tmp_path / "uploads") == 1
    said = capsys.readouterr().err
    assert "fedmf[d=4]" in said
    assert "Train it again with --record traffic" in said
    assert not (tmp_path / "uploads.csv").exists()


def test_a_table_of_differences_is_written(small, tmp_path):
    runs = [finished(small, method, "clean") for method in ("popularity", "draw-counter[rounds=2]")]
    listed = [run.folder / "run.json" for run in runs]
    assert audit("significance", *listed, "--out", tmp_path / "differences") == 0
    assert "popularity" in (tmp_path / "differences.csv").read_text()


def steps_of(results, datasets="ml-100k=pfedclr=3", switch="pool"):
    return audit(
        "protocols", "--results", results, "--datasets", datasets,
        "--names", "popularity", "fedmf", "--switches", switch,
        "--out", results / "steps", "--figure", results / "ranks",
    )  # fmt: skip


def test_steps_are_written_from_the_runs_of_the_workflow(tmp_path):
    for kind in ("published", "only-pool", "clean"):
        for method in ("popularity", "fedmf[rounds=3]"):
            write_run(tmp_path, RunId("pfedclr", "ml-100k", full_name(kind, "pfedclr"), method, 0), METHODS)
    assert steps_of(tmp_path) == 0
    with (tmp_path / "steps.csv").open() as stream:
        found = [(row["step"], row["method"]) for row in csv.DictReader(stream)]
    assert found == [
        (step, method)
        for step in ("published", "only-pool", "upto-pool", "clean")
        for method in ("popularity", "fedmf[rounds=3]")
    ]
    assert (tmp_path / "ranks.pdf").is_file()


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"switch": "pol"}, "unknown switch 'pol'. Did you mean 'pool'? Known: pool, repeats, lists, round"),
        ({"datasets": "ml-100k"}, "--datasets ml-100k: whose settings are followed, for how long?"),
        ({"datasets": "ml-100k=pfedclr=no"}, "Write DATASET=PAPER or DATASET=PAPER=ROUNDS"),
        (
            {"datasets": "ml-100k=pfedcrl"},
            "unknown protocol 'published-pfedcrl'. Did you mean 'published-pfedclr'?",
        ),
        ({"datasets": "ml-100=pfedclr"}, "unknown dataset 'ml-100'. Did you mean 'ml-100k'?"),
        ({}, "published-pfedclr/popularity/seed0/run.json: this run is not finished."),
    ],
)
def test_steps_that_cannot_be_shown_are_refused(tmp_path, capsys, told, said):
    assert steps_of(tmp_path, **told) == 1
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_verdicts_are_written_even_where_nothing_is_trained(tmp_path):
    out = tmp_path / "tables/verdicts"
    assert audit("verdicts", "--results", tmp_path, "--of", "pfedclr", "--out", out) == 0
    text = (tmp_path / "tables/verdicts.md").read_text()
    assert text.count("What becomes of the claims of ") == 1
    assert "None of the runs is trained here." in text
    assert (tmp_path / "tables/verdicts.csv").is_file()
    assert (tmp_path / "tables/verdicts.tex").is_file()
