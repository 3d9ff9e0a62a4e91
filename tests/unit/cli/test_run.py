"""`fedrec run`: its arguments, and what it gives to Snakemake."""

import json
import os
import sys

import pytest

from fedrec.cli import run
from fedrec.cli.main import main
from fedrec.workers.client import PLACE
from tests.projects import Made, configuration


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = Made(tmp_path)
    made.write("config/config.yaml", json.dumps(configuration()))
    monkeypatch.setenv("FEDREC_MIRROR", "mirror")
    return made


@pytest.fixture
def called(monkeypatch):
    """The calls of Snakemake: its arguments, and whether there were workers."""
    calls = []
    monkeypatch.setattr(
        run, "_snakemake", lambda arguments: calls.append((list(arguments), PLACE in os.environ)) or 0
    )
    return calls


def run_command(*words):
    with pytest.raises(SystemExit) as ended:
        main(["run", *words])
    return ended.value.code


def test_targets_and_options_reach_snakemake(made, called, capsys):
    assert run_command("--cores", "2", "alpha_comparison", "--", "--keep-going", "--cores", "3") == 0
    assert called == [(["--cores", "2", "--keep-going", "--cores", "3", "--", "alpha_comparison"], False)]
    assert capsys.readouterr().out.startswith("Runs to train: 4, about a core-minute")
    listed = (made.folder / "results/plan/runs.jsonl").read_text().splitlines()
    assert len(listed) == 4


def test_a_dry_run_writes_nothing_and_starts_no_workers(made, called):
    run_command("-n", "--workers", "alpha_comparison")
    brief = ["--dry-run", "--quiet", "host", "rules", "reason"]
    assert called == [([*brief, "--", "alpha_comparison"], False)]
    assert not (made.folder / "results").exists()


@pytest.mark.usefixtures("made")
def test_workers_exist_while_snakemake_runs(called):
    run_command("--workers", "alpha_comparison")
    assert [with_workers for _, with_workers in called] == [True]
    assert PLACE not in os.environ


def test_the_configuration_of_the_command_line_is_read_here_and_by_snakemake(made, called):
    made.write("mine.yaml", "rounds: 3\n")
    run_command("--configfile", "mine.yaml", "--config", "results=elsewhere", "alpha_comparison")
    assert called[0][0][:4] == ["--configfile", "mine.yaml", "--config", "results=elsewhere"]
    listed = (made.folder / "elsewhere/plan/runs.jsonl").read_text()
    assert "rounds=3" in listed


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["alpha_comparisn"], "there is no target 'alpha_comparisn'. Did you mean 'alpha_comparison'?"),
        (["all", "--", "--config", "rounds=3"], "--config: give it before the --"),
        (["all", "--", "--configfile=mine.yaml"], "--configfile=mine.yaml: give it before the --"),
        (["--config", "rounds", "all"], "--config rounds: write KEY=VALUE"),
        (["--config", "rounds=[1", "all"], "--config rounds=[1: the value is not YAML"),
    ],
)
def test_mistakes_are_one_message_and_snakemake_is_not_started(called, capsys, words, message):
    assert main(["run", *words]) == 1
    assert message in capsys.readouterr().err
    assert called == []


def test_the_exit_status_is_that_of_snakemake(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert run._snakemake([]) == 1
