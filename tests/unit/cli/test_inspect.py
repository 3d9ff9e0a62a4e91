"""Commands that look: a run audited by itself, the papers listed; errors that say what to do."""

import json

import pytest

from fedrec.cli.main import main
from tests.conftest import ROOT
from tests.federations import uniform_noise
from tests.projects import Made, configuration
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
    assert (
        "Name the folder of its dataset's splits, for example results/data/made: --data"
        in capsys.readouterr().err
    )
    found = printed(capsys, "--run", moved, "--data", small / "data/made")
    assert found["exposure"]["test"]["held_out"]["never"] == 1


def test_a_run_that_is_not_finished_is_an_error(capsys):
    assert audit("--run", "nowhere") == 1
    assert "run.json: this run is not finished." in capsys.readouterr().err


def test_papers_are_listed_with_what_they_need(tmp_path, monkeypatch, capsys):
    made = Made(tmp_path)
    monkeypatch.chdir(tmp_path)
    made.write("project.json", json.dumps(configuration()))
    named = ["papers", "pfedrec_table4", "--project", "project.json", "--mirror", "mirror"]
    assert main(named) == 0
    text = capsys.readouterr().out
    assert text.startswith("PFedRec: snakemake pfedrec\n  pfedrec_table4")
    assert "needs no runs" in text
    assert main(["papers", "pfedrec_tabel4", "--project", "project.json"]) == 1
    assert "Did you mean 'pfedrec_table4'?" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["- a\n", "a: [\n"])
def test_a_configuration_that_is_none_is_an_error(tmp_path, capsys, content):
    (tmp_path / "own.yaml").write_text(content)
    assert main(["papers", "--configfile", str(tmp_path / "own.yaml")]) == 1
    assert "own.yaml" in capsys.readouterr().err


def test_methods_are_listed(capsys):
    assert main(["methods"]) == 0
    assert "pfedclr" in capsys.readouterr().out
