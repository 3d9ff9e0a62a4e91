"""What rules of the workflow ask."""

import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedrec.plan.fingerprint import code_fingerprint
from fedrec.plan.rule_functions import RuleFunctions, load_project
from tests.projects import Made, configuration


class Wildcards(SimpleNamespace):
    def items(self):
        return vars(self).items()


RUN = Wildcards(paper="pfedclr", dataset="alpha", protocol="clean", method="popularity", seed="0")


@pytest.fixture
def project(tmp_path):
    return Made(tmp_path).project()


def test_a_run_is_requested_by_the_parts_of_its_path(project):
    rules = RuleFunctions(project)
    assert rules.job(RUN).run.folder == "runs/pfedclr/alpha/clean/popularity/seed0"
    assert rules.splits(RUN)[0] == f"{project.configuration['results']}/data/alpha/clean/split.parquet"
    assert json.loads(rules.settings(RUN)) == rules.job(RUN).settings
    assert rules.memory(RUN, 2) == 2 * rules.memory(RUN, 1)
    assert rules.minutes(RUN, 2) == 2 * rules.minutes(RUN, 1)
    assert rules.group(RUN) == "short"


def test_the_code_of_cuts_in_time_counts_for_splits_with_one_alone(project):
    of = {name: RuleFunctions(project).split_code(Wildcards(protocol=name)) for name in ("clean", "temporal")}
    assert of == {
        "clean": code_fingerprint("fedrec.data.split"),
        "temporal": code_fingerprint("fedrec.data.temporal"),
    }
    assert of["clean"] != of["temporal"]


def test_a_target_is_requested_by_its_name(project):
    rules, target = RuleFunctions(project), project.target("alpha_comparison")
    named = Wildcards(target="alpha_comparison")
    assert rules.inputs(named) == [project.result_path(file) for file in target.inputs]
    assert rules.plan(named) == target.as_json()
    assert rules.priority(named) == target.priority
    assert rules.chapter(named) == "alpha"


def test_the_origin_of_a_raw_file_counts_for_a_cache_alone(project):
    file = Wildcards(path="alpha.csv")
    assert RuleFunctions(project).origin(file) == ""
    assert RuleFunctions(project).cache is False
    cached = RuleFunctions(project, uses_cache=True)
    assert cached.origin(file) != ""
    assert cached.cache == "omit-software"


def test_the_shell_of_a_job_is_strict_and_reads_no_path_as_a_command(tmp_path):
    project = Made(tmp_path).project(method_file="config/methods.yaml")
    prefix = RuleFunctions(project).shell_prefix()
    shown = subprocess.run(
        ["bash", "-c", prefix + 'echo "$FEDREC_METHODS"; false | true; echo not reached'],
        capture_output=True, text=True,
    )  # fmt: skip
    assert shown.stdout == "config/methods.yaml\n"
    assert shown.returncode != 0


@pytest.mark.parametrize(
    ("content", "uses_cache", "message"),
    [
        ("results: results\n\tseeds: [0]\n", False, "fedrec: config/config.yaml, line 2: not valid YAML"),
        (json.dumps(configuration()), True, "fedrec: --cache: no folder is set. Type: export"),
    ],
)
def test_a_mistake_ends_the_process_with_one_message(tmp_path, monkeypatch, content, uses_cache, message):
    Made(tmp_path).write("config/config.yaml", content)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=message):
        RuleFunctions.load([], {}, {}, uses_cache=uses_cache)


def test_a_mirror_that_is_no_folder_ends_the_workflow_and_no_job_of_it(tmp_path, monkeypatch):
    Made(tmp_path).write("config/config.yaml", json.dumps(configuration()))
    monkeypatch.chdir(tmp_path)
    environment = {"FEDREC_MIRROR": "absent"}
    with pytest.raises(SystemExit, match="fedrec: the mirror absent is not a folder here"):
        RuleFunctions.load([], {}, environment, uses_cache=False)
    RuleFunctions.load([], {}, environment, uses_cache=False, is_job=True)


def test_a_folder_that_cannot_be_written_ends_the_workflow_with_one_message(tmp_path, monkeypatch):
    Made(tmp_path).write("config/config.yaml", json.dumps(configuration()))
    monkeypatch.chdir(tmp_path)
    # Whoever runs tests as root may write everywhere.
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path).absolute() != tmp_path)
    with pytest.raises(
        SystemExit, match=r"cannot be written, and Snakemake needs to write its state there, in \.snakemake\."
    ):
        RuleFunctions.load([], {}, {}, uses_cache=False)


def test_a_file_of_the_command_line_may_replace_the_configuration(tmp_path, monkeypatch):
    made = Made(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config/config.yaml").unlink(missing_ok=True)
    made.write("mine.yaml", json.dumps(configuration()))
    assert load_project(["mine.yaml"], {"results": "elsewhere"}, None).results.name == "elsewhere"
