"""`fedrec results`: which runs are chosen, through a file or a stream, and what is said of them."""

import io
import shutil
import sys
import tarfile
from dataclasses import replace
from types import SimpleNamespace

import pytest
import yaml

from fedrec.cli.main import main
from fedrec.plan.run_list import list_text
from fedrec.plan.target_names import runs_for_targets
from tests.planned_runs import finish
from tests.projects import Made, configuration


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a project whose runs on two datasets are finished; `other` has splits alone."""
    folder = tmp_path_factory.mktemp("made")
    project = Made(folder).project()
    for run in runs_for_targets(project, ["alpha_comparison", "beta_comparison"]):
        finish(project, run)
    shutil.copytree(project.results / "data", folder / "other/data")
    for results in ("results", "other"):
        path = folder / f"{results}.yaml"
        path.write_text(yaml.safe_dump(configuration(results=results)), encoding="utf-8")
    return project


@pytest.fixture
def command(made, monkeypatch, capsysbinary):
    """Does a command in the folder of the project; returns its exit status and what it wrote and said."""
    monkeypatch.chdir(made.root)
    monkeypatch.setenv("FEDREC_MIRROR", str(made.root / "mirror"))

    def perform(*words, results="results"):
        status = main(["results", *words, "--project", f"{results}.yaml"])
        out, said = capsysbinary.readouterr()
        return status, out, said.decode()

    return perform


def test_runs_are_chosen_by_target_method_and_dataset(command, made, tmp_path):
    out = str(tmp_path / "runs.tar")
    alpha, beta = (len(runs_for_targets(made, [f"{name}_comparison"])) for name in ("alpha", "beta"))
    for words, count in (
        ((), alpha + beta),
        (("alpha_comparison",), alpha),
        (("--dataset", "beta"), beta),
        (("--method", "draw-counter", "--dataset", "alpha"), 2),
        (("--method", "draw-counter[rounds=2]", "--method", "popularity", "alpha_comparison"), alpha),
    ):
        status, _, said = command("export", *words, "--out", out)
        assert (status, said.partition(",")[0]) == (0, f"Wrote {out}: {count} runs")
    for words, why in (
        (("alpha_comparisn",), "Did you mean 'alpha_comparison'"),
        (("--method", "popularty"), "Did you mean 'popularity'"),
        (("--dataset", "alfa"), "alpha"),
        (
            ("demo",),
            "no run to export: none of these runs is finished here. `fedrec run` trains the runs of targets.\n  runs/",
        ),
    ):
        status, _, said = command("export", *words, "--out", out)
        assert status == 1
        assert why in said


def test_runs_travel_through_a_stream_as_through_a_file(command, tmp_path, monkeypatch):
    path = tmp_path / "runs.tar"
    command("export", "alpha_comparison", "--out", str(path))
    status, data, _ = command("export", "alpha_comparison", "--out", "-")
    assert (status, data) == (0, path.read_bytes())
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    status, out, _ = command("import", "-", results="other")
    assert (status, out.decode()) == (0, "-: imported 4 of 4 runs; 0 were here already.\n")
    status, out, _ = command("import", str(path), results="other")
    assert (status, out.decode()) == (0, f"{path}: imported 0 of 4 runs; 4 were here already.\n")


def test_a_list_names_runs_too_with_what_training_needs(command, made, tmp_path):
    runs = runs_for_targets(made, ["alpha_comparison", "demo"])
    lines = [made.job(run).listed(made.results) for run in runs]
    elsewhere = replace(lines[0], request=replace(lines[0].request, out=tmp_path / "my-run"))
    path, out = tmp_path / "runs.jsonl", tmp_path / "runs.tar"
    path.write_text(list_text([*lines, elsewhere]))
    status, _, said = command("export", str(path), "--out", str(out), "--methods", "config/methods.yaml")
    assert (status, said.partition(",")[0]) == (0, f"Wrote {out}: 4 runs")
    assert "my-run: its folder is not of the form runs/PAPER/DATASET/PROTOCOL/METHOD/seedN." in said
    assert "it is not finished." in said
    command("export", "alpha_comparison", "--out", str(tmp_path / "planned.tar"))
    assert sorted(names_in(out)) == names_in(tmp_path / "planned.tar")
    status, _, said = command("export", str(path), "alpha_comparison", "--out", str(out))
    assert status == 1
    assert "runs.jsonl: is a run list. Give one run list and nothing else, or targets." in said


def names_in(archive):
    with tarfile.open(archive) as opened:
        return sorted(opened.getnames())


def test_what_is_refused_is_reported_and_is_an_error(command, made, tmp_path):
    path = tmp_path / "runs.tar"
    command("export", "beta_comparison", "--out", str(path))
    shutil.rmtree(made.root / "other/data/beta")
    status, out, said = command("import", str(path), results="other")
    assert status == 1
    assert b"imported 0 of 4 runs" in out
    assert "4 of 4 runs were not imported:\n  runs/" in said
    assert (
        "its split is not here to compare, or follows another protocol. Make it with: snakemake --cores 2 "
        "--force 'other/"
    ) in said
    status, _, said = command("import", str(tmp_path / "gone.tar"), results="other")
    assert status == 1
    assert "gone.tar: no such file. Write one with: fedrec results export TARGET --out" in said
