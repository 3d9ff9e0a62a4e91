"""Commands that look: a run audited by itself, the papers listed; errors that say what to do."""

import json
import re

import pytest

from fedrec.cli.main import main
from tests.conftest import ROOT, entry
from tests.federations import uniform_noise
from tests.projects import Made, configuration, made_entries
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
    """The values that are told of a run, for programs."""
    assert audit(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def told(capsys, *arguments):
    """The same in words, which come first."""
    assert audit(*arguments) == 0
    words, _, values = capsys.readouterr().out.partition("\n\n")
    assert json.loads(values)["protocol"]
    return words.splitlines()


def test_a_run_tells_of_its_draws_and_what_else_could_be_known(small, capsys):
    run = finished(small, "draw-counter", "published", "rounds=2")
    capsys.readouterr()
    found = printed(capsys, "--run", run.folder)
    assert set(found) == ABOUT | {"test", "exposure", "hits", "uploads"}
    assert (found["protocol"], found["rounds"]) == (f"published-{PAPER}", 2)
    assert found["exposure"]["test"]["held_out"]["never"] == 1
    assert found["hits"] == ("to see which hits vanish without the leak, train the same run under only-pool")
    assert found["uploads"] == "the method has no clients that train"
    assert found["exposure"]["counting"]["hr@10"] == found["test"]["hr@10"] == 1
    assert found["exposure"]["counting"]["chance"] == pytest.approx(10 / 13)


def test_a_run_is_compared_with_the_exposed_one_beside_it(small, capsys):
    run = finished(small, "fedmf", "published", *TINY, record=("traffic",))
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


def test_what_numbers_mean_is_reported_first(small, capsys):
    run = finished(small, "draw-counter", "published", "rounds=2")
    counter = told(capsys, "--run", run.folder)
    assert counter[0] == (
        f"draw-counter[rounds=2] on made under published-{PAPER}, seed 0, rounds 2: 1.0000 of 12 test items "
        "are among the first 10 (95 % interval over users: 1.0000 to 1.0000)."
    )
    assert "Of the held-out test items 100% were never sampled;" in counter[1]
    assert (
        "puts 1.00 of the test items among the first 10; chance is 0.77: the draws alone reveal" in counter[2]
    )
    assert counter[-1] == "Uploads: the method has no clients that train."


def test_words_tell_of_traffic_or_how_to_record_it(small, capsys):
    run = finished(small, "fedmf", "published", *TINY, record=("traffic",))
    finished(small, "fedmf", "only-pool", *TINY)
    *_, hits, uploads = told(capsys, "--run", run.folder)
    assert "new ones appear, in the same run whose clients may sample held-out items." in hits
    assert uploads.startswith(
        "Uploads of Q: a server that uses the direction in which rows moved in one round"
    )
    assert uploads.endswith("(means of 12 clients): uploads reveal training items.")
    run = finished(small, "fedmf", "clean", *TINY)
    *_, draws, follows, hits, uploads = told(capsys, "--run", run.folder)
    assert draws.endswith("the draws do not reveal the held-out items.")
    assert "rank correlation" in follows
    assert uploads == "Uploads: to attack them, train with --record traffic."
    run = finished(small, "local-only", "clean", *TINY)
    assert told(capsys, "--run", run.folder)[-1] == "Uploads: its clients upload nothing."
    run = finished(small, "popularity", "clean")
    assert told(capsys, "--run", run.folder)[1].startswith("Draws: this method samples no training negatives")


def test_where_held_out_items_may_be_drawn_no_hit_can_vanish(small, capsys):
    """The run under only-pool is beside a clean one too, but differs from it in more."""
    finished(small, "fedmf", "only-pool", *TINY)
    run = finished(small, "fedmf", "clean", *TINY)
    capsys.readouterr()
    found = printed(capsys, "--run", run.folder)
    assert found["hits"] == "under this protocol clients may sample held-out items, so no hit can vanish"


def test_what_is_reported_of_a_run_can_be_written(small, tmp_path, capsys):
    run = finished(small, "draw-counter", "published", "rounds=2")
    capsys.readouterr()
    assert audit("--run", run.folder, "--out", tmp_path / "audit.json", "--json") == 0
    assert capsys.readouterr().out == ""
    assert audit("--run", run.folder, "--out", tmp_path / "audit.json") == 0
    assert capsys.readouterr().out.startswith("draw-counter")
    assert json.loads((tmp_path / "audit.json").read_text()) == printed(capsys, "--run", run.folder)


def test_a_run_elsewhere_is_audited_with_its_splits_named(small, tmp_path, capsys):
    run = finished(small, "draw-counter", "published", "rounds=2")
    moved = tmp_path / "moved"
    moved.mkdir()
    for file in run.folder.iterdir():
        (moved / file.name).write_bytes(file.read_bytes())
    assert audit("--run", moved) == 1
    assert (
        "Give the dataset's folder, with its splits, for example results/data/made: --data"
        in capsys.readouterr().err
    )
    found = printed(capsys, "--run", moved, "--data", small / "data/made")
    assert found["exposure"]["test"]["held_out"]["never"] == 1


def test_a_run_that_is_not_finished_is_an_error(tmp_path, capsys):
    assert audit("--run", str(tmp_path)) == 1
    assert "run.json: this run is not finished." in capsys.readouterr().err
    assert audit("--run", "nowhere") == 1
    assert "nowhere: no such folder." in capsys.readouterr().err


def test_papers_are_listed_with_what_they_need(tmp_path, monkeypatch, capsys):
    made = Made(tmp_path)
    monkeypatch.chdir(tmp_path)
    made.write("project.json", json.dumps(configuration()))
    options = ["--project", "project.json", "--mirror", "mirror"]
    assert main(["artefacts", "pfedrec", *options]) == 0
    text = capsys.readouterr().out
    assert text.startswith("PFedRec: snakemake --cores 2 pfedrec\n  pfedrec_table")
    assert "needs no runs" in text
    assert main(["artefacts", "pfedrec_tabel4", "--project", "project.json"]) == 1
    assert "Did you mean 'pfedrec_table4'?" in capsys.readouterr().err


def test_of_one_table_more_is_reported(tmp_path, monkeypatch, capsys):
    made = Made(tmp_path)
    made.set_entries(made_entries() | {"ml-100k": entry("alpha.csv", papers=["pfedclr"])})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    made.write("project.json", json.dumps(configuration()))
    options = ["--project", "project.json", "--mirror", "mirror"]
    assert main(["artefacts", "pfedclr_table1", *options]) == 0
    first, files, runs, clean, published, *missing, cost, command = capsys.readouterr().out.splitlines()
    assert first == "pfedclr_table1: Overall comparison (PFedCLR, metrics)"
    assert files.startswith("    not built: results/tables/pfedclr_table1.csv, ")
    assert runs == "    0 of 20 runs done"
    assert clean == "        ml-100k, clean: 0 of 10 done"
    assert published == "        ml-100k, published-pfedclr: 0 of 10 done"
    assert "    left out: hetrec2011: it is not in config/datasets.yaml" in missing
    assert re.fullmatch(
        r"    left to train: about [\d.]+ core-(hours|minutes) on a CPU, \d+ minutes on 4 cores; far less "
        "on a GPU",
        cost,
    )
    assert command == "    build it with: snakemake --cores 4 pfedclr_table1"


@pytest.mark.parametrize("content", ["- a\n", "a: [\n"])
def test_a_configuration_that_is_none_is_an_error(tmp_path, capsys, content):
    (tmp_path / "own.yaml").write_text(content)
    assert main(["artefacts", "--configfile", str(tmp_path / "own.yaml")]) == 1
    assert "own.yaml" in capsys.readouterr().err


def test_methods_are_listed(capsys):
    assert main(["methods"]) == 0
    assert "pfedclr" in capsys.readouterr().out
