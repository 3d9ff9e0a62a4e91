"""Recordings that are kept or brought: of the commit that is compared, by this recorder and plan, or refused."""

import json
import subprocess
import sys

import pytest

from tests.prove_equal import recorder
from tests.prove_equal.__main__ import checked, plan_of, recording
from tests.unit.prove_equal.packages import package


@pytest.fixture
def tree(tmp_path):
    """A source tree with the settings of methods."""
    folder = package(tmp_path / "tree", a="RATE = 1").parent
    folder.joinpath("config").mkdir()
    folder.joinpath(recorder.METHODS_FILE).write_text("fedmf: {}\n")
    return folder


PLAN = {"checksum": "c" * 64}


def recorded(tree, folder):
    """A finished recording of a tree, where `recording` keeps it."""
    file = folder / f"{tree.name}-{PLAN['checksum'][:12]}.json"
    file.write_text(json.dumps({"tree": recorder.tree_hash(tree), "plan": PLAN["checksum"]}))
    return file


def test_a_recording_that_was_kept_is_not_made_again(tree, tmp_path):
    file = recorded(tree, tmp_path)
    assert recording(tree, PLAN, tmp_path, tmp_path) == json.loads(file.read_text())


@pytest.mark.parametrize("edited", ["fedrec/a.py", "fedrec/b.py", recorder.METHODS_FILE])
def test_a_recording_of_an_edited_tree_is_refused(tree, tmp_path, edited):
    recorded(tree, tmp_path)
    tree.joinpath(edited).write_text("RATE = 2")
    with pytest.raises(SystemExit, match="is no recording of commit tree"):
        recording(tree, PLAN, tmp_path, tmp_path)


def test_a_recording_by_another_plan_is_refused(tree, tmp_path):
    with pytest.raises(SystemExit, match="recorded by another plan or recorder"):
        checked(recorded(tree, tmp_path), tree, {"checksum": "d" * 64})


def test_an_edited_recorder_has_other_plans(monkeypatch):
    """A recording is kept by the checksum of its plan: one that an older recorder made is not used."""
    before = plan_of("cuda", ["fedmf"])
    monkeypatch.setattr(recorder, "own_hash", lambda: "e" * 64)
    assert plan_of("cuda", ["fedmf"])["checksum"] != before["checksum"]


def test_the_recorder_refuses_the_plan_of_another_one(tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(plan_of("cuda", ["fedmf"]) | {"recorder": "e" * 64}))
    command = [sys.executable, recorder.__file__, plan, tmp_path, tmp_path, tmp_path / "out.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "is the plan of another recorder" in done.stderr
    assert not (tmp_path / "out.json").exists()
