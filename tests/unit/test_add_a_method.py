"""docs/add-a-method.md, followed literally on a copy of the project."""

import os
import re
import shutil
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from tests.conftest import ROOT

PAGE = (ROOT / "docs/add-a-method.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the project to which the page's file and entry are added."""
    folder = tmp_path_factory.mktemp("added") / "fedrec copy"
    unwanted = shutil.ignore_patterns("__pycache__", "results", ".*")
    for part in ("fedrec", "config", "tests"):
        shutil.copytree(ROOT / part, folder / part, ignore=unwanted)
    shutil.copy(ROOT / "pyproject.toml", folder)
    (code,) = blocks("python")
    (folder / "fedrec/methods/fedgmf.py").write_text(code, encoding="utf-8")
    (entry,) = blocks("yaml")
    with (folder / "config/methods.yaml").open("a", encoding="utf-8") as stream:
        stream.write("\n" + entry)
    return folder


def call(project, *words):
    env = os.environ | {"PYTHONPATH": str(project)}
    return subprocess.run(
        [sys.executable, "-m", *map(str, words)], cwd=project, env=env, capture_output=True, text=True
    )


def fedrec(project, *words):
    outcome = call(project, "fedrec", *words)
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


def test_the_method_trains_alike_in_every_engine(project):
    fedrec(project, "prepare", "demo", "--out", "results/data/demo")
    fedrec(project, "split", "--data", "results/data/demo", "--protocol", "clean")
    train, _ = blocks("sh")
    words = train.split()[1:]
    fedrec(project, *words)
    fedrec(
        project, *words[: words.index("--out")], "--out", "by-loop", "--set", "rounds=2", "--engine", "loop"
    )
    curves = [pq.read_table(project / run / "curve.parquet") for run in ("my-gmf", "by-loop")]
    losses = [curve["loss"].to_pylist()[:2] for curve in curves]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert curves[0].num_rows == 5


def test_the_method_is_listed(project):
    listed = fedrec(project, "methods")
    assert "fedgmf (federated)" in listed
    assert "uploads: Q, h, b" in listed


def test_its_contract_tests_join_by_themselves(project):
    outcome = call(
        project, "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "tests/contract", "-k", "fedgmf"
    )
    assert outcome.returncode == 0, outcome.stdout
    assert int(re.search(r"^(\d+)/\d+ tests collected", outcome.stdout, re.M)[1]) >= 8


def test_the_page_on_datasets_is_right_too(project):
    page = (ROOT / "docs/datasets.md").read_text(encoding="utf-8")
    (entry,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.M | re.S)
    with (project / "config/datasets.yaml").open("a", encoding="utf-8") as stream:
        stream.write("\n" + entry)
    rows = [f"u-{user},{(user * 17 + step * 11) % 311},{step}" for user in range(60) for step in range(8)]
    (project / "mydata.csv").write_text("\n".join(["user,item,time", *rows]) + "\n", encoding="utf-8")
    fedrec(project, "prepare", "mydata", "--out", "results/data/mydata")
    fedrec(project, "split", "--data", "results/data/mydata", "--protocol", "clean")
    train = re.search(r"^fedrec (train --data results/data/mydata .*)$", page, re.M)[1]
    words = train.replace("rounds=5", "rounds=1").split()
    fedrec(project, *words)
