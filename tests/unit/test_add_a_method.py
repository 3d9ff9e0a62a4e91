"""docs/add-a-method.md, followed literally on a copy of the project."""

import json
import os
import re
import shutil
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
import yaml

from tests.conftest import HALF_WRITTEN, ROOT

PAGE = (ROOT / "docs/add-a-method.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the project with a prepared dataset, to which the page's command adds its method."""
    folder = tmp_path_factory.mktemp("added") / "fedrec copy"
    for part in ("fedrec", "config", "tests"):
        shutil.copytree(ROOT / part, folder / part, ignore=HALF_WRITTEN)
    for file in ("pyproject.toml", "Snakefile"):
        shutil.copy(ROOT / file, folder)
    (command,) = re.findall(r"^    fedrec (new .*)$", PAGE, re.M)
    printed = fedrec(folder, *command.split())
    # It prints the commands of the page, but for the rounds.
    commands = [re.sub(r" --set rounds=\d+", "", line) for line in blocks("sh")[0].splitlines()]
    assert [
        line.strip() for line in printed.replace(" --set rounds=20", "").splitlines() if line[:4] == " " * 4
    ] == commands
    in_a_row(folder, *preparing("demo"))
    return folder


@pytest.fixture(scope="module")
def changed(project):
    """The same with the file and the entry that the page makes of them."""
    (code,) = blocks("python")
    (project / "fedrec/methods/fedgmf.py").write_text(code, encoding="utf-8")
    (entry,) = blocks("yaml")
    path = project / "config/methods.yaml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text[: text.index("# Added by `fedrec new method fedgmf`")] + entry, encoding="utf-8")
    return project


def python(project, *words):
    env = os.environ | {"PYTHONPATH": str(project)}
    return subprocess.run(
        [sys.executable, *map(str, words)], cwd=project, env=env, capture_output=True, text=True
    )


def call(project, *words):
    return python(project, "-m", *words)


def fedrec(project, *words):
    outcome = call(project, "fedrec", *words)
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


IN_A_ROW = """
import json, sys
from fedrec.cli.main import main

for words in json.loads(sys.argv[1]):
    if status := main(words):
        sys.exit(status)
"""


def in_a_row(project, *commands):
    """Several commands of `fedrec` by one process, which is what takes longest to start."""
    outcome = python(project, "-c", IN_A_ROW, json.dumps(commands))
    assert outcome.returncode == 0, outcome.stderr


def preparing(dataset):
    folder = f"results/data/{dataset}"
    return ["prepare", dataset, "--out", folder], ["split", "--data", folder, "--protocol", "clean"]


def losses(project, **engines):
    """Those of a few clients, trained by the page's command for two rounds: by engine, each into its folder."""
    words = blocks("sh")[0].splitlines()[1].split()[1:]
    short = [word for change in ("rounds=2", "clients=5", "local_epochs=1") for word in ("--set", change)]
    words = [*words[: words.index("--out")], *short]
    in_a_row(project, *([*words, "--out", out, "--engine", engine] for out, engine in engines.items()))
    return [pq.read_table(project / out / "curve.parquet")["loss"].to_pylist() for out in engines]


def test_what_is_written_trains_and_what_the_page_makes_of_it_trains_otherwise(project, request):
    (started,) = losses(project, started="batched")
    run = json.loads((project / "started/run.json").read_text(encoding="utf-8"))
    assert run["paper"] == "own"
    assert run["sources"]["d"] == "taken from fedmf"
    changed = request.getfixturevalue("changed")
    ended, by_loop = losses(changed, ended="batched", by_loop="loop")
    assert ended != pytest.approx(started, rel=1e-3)
    assert ended == pytest.approx(by_loop, rel=1e-4)


def test_the_method_is_listed(changed):
    listed = fedrec(changed, "methods", "fedgmf")
    assert "fedgmf (federated)" in listed
    assert "parameters: shared Q, h; private p; scratch old\n    uploads: Q, h\n" in listed
    assert "mu = 0.01 (ours)" in listed


def test_its_contract_tests_join_by_themselves_and_pass(changed):
    outcome = call(
        changed, "pytest", "-q", "-p", "no:cacheprovider", "tests/contract/test_methods.py", "-k", "fedgmf"
    )
    assert outcome.returncode == 0, outcome.stdout
    assert re.search(r"^3 passed", outcome.stdout, re.M), outcome.stdout


def test_the_files_of_the_page_pass_the_linter(changed):
    outcome = call(changed, "ruff", "check", "--no-cache", "fedrec/methods/fedgmf.py")
    assert outcome.returncode == 0, outcome.stdout
    outcome = call(changed, "ruff", "format", "--check", "--no-cache", "fedrec/methods/fedgmf.py")
    assert outcome.returncode == 0, outcome.stdout


PLANNED = """
import sys, yaml
from pathlib import Path
from fedrec.plan.project import Project

configuration = yaml.safe_load(Path("config/config.yaml").read_text()) | {"methods": sys.argv[1].split(",")}
print(*(run.folder for run in Project.load(configuration, Path()).target(sys.argv[2]).runs), sep="\\n")
"""


def test_named_in_the_configuration_it_joins_the_plan(changed):
    """As the page's last command asks: compared with others, under both protocols."""
    words = blocks("sh")[1]
    methods = re.search(r"methods=\[(.*?)\]", words)[1]
    outcome = python(changed, "-c", PLANNED, methods, words.split()[-1])
    assert outcome.returncode == 0, outcome.stderr
    assert [run for run in outcome.stdout.splitlines() if "fedgmf" in run] == [
        "runs/pfedclr/demo/published-pfedclr/fedgmf@rounds-25/seed0",
        "runs/pfedclr/demo/clean/fedgmf@rounds-25/seed0",
    ]


def test_the_page_on_datasets_is_right_too(project):
    page = (ROOT / "docs/datasets.md").read_text(encoding="utf-8")
    (entry,) = re.findall(r"^```yaml\n(mydata:\n.*?)^```$", page, re.M | re.S)
    rows = [f"{user},{(user * 17 + step * 11) % 311},{step}" for user in range(60) for step in range(8)]
    table = "\n".join(["user,item,time", *rows]) + "\n"
    (project / "mydata.csv").write_text(table, encoding="utf-8")
    path = project / "config/datasets.yaml"
    before = path.read_text(encoding="utf-8")
    (command,) = re.findall(r"^    fedrec (new dataset .*)$", page, re.M)
    assert "480 rows of 60 users" in fedrec(project, *command.split())
    # The command writes what the page shows.
    written = yaml.safe_load(path.read_text(encoding="utf-8"))["mydata"]["interactions"]
    shown = yaml.safe_load(entry)["mydata"]["interactions"]
    assert written["path"] == shown["path"]
    assert written["format"] | shown["format"] == written["format"]
    path.write_text(f"{before}\n{entry}", encoding="utf-8")
    train = re.search(r"^fedrec (train --data results/data/mydata .*)$", page, re.M)[1]
    in_a_row(project, *preparing("mydata"), train.replace("rounds=5", "rounds=1").split())
