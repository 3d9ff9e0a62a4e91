"""Every method in several processes against one process: a new one joins by itself."""

import json
import os
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

from fedrec.files.tensors import load_tensors
from fedrec.plan.runs import FILES
from tests.conftest import ROOT
from tests.contract.distributed import CASES, IN_CORE, OUTCOMES, PROCESSES
from tests.once import once_for_all_workers

PATIENCE = 400


@pytest.fixture(scope="module")
def folder(request, tmp_path_factory):
    """What the processes left: the outcomes of all cases that this session tests, and three runs."""
    asked = {
        item.callspec.params["case"].id
        for item in request.session.items
        if item.path == request.path and "case" in item.fixturenames
    }

    def build(folder):
        # Threads of a parent are none of its children's.
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = (sys.executable, "-m", "tests.contract.distributed", str(folder), *sorted(asked))
        subprocess.run(command, check=True, cwd=ROOT, env=environment, timeout=PATIENCE)

    return once_for_all_workers(tmp_path_factory, "distributed", build)


@pytest.fixture(scope="module")
def outcomes(folder):
    return json.loads((folder / OUTCOMES).read_text())


@pytest.mark.parametrize("processes", ["3", "2"])
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.id, marks=[] if case in IN_CORE else pytest.mark.matrix) for case in CASES],
)
def test_several_processes_equal_one(outcomes, case, processes):
    """In double precision; the two go on from what the three have stored."""
    assert outcomes["shares"][case.id][processes] <= 1e-9


@pytest.mark.parametrize("run", ["three", "resumed"])
def test_the_files_of_a_run_do_not_show_how_many_processes_trained_it(folder, run):
    """Nor that two have taken up what three began; nothing else lies beside them."""
    expected, _ = load_tensors(folder / "one" / "state.safetensors")
    found, _ = load_tensors(folder / run / "state.safetensors")
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert np.allclose(found[name], value, rtol=1e-9, atol=1e-9, equal_nan=True), name
    assert any(name.startswith("extra/weights/") for name in expected)
    ranks, curve = ([pq.read_table(folder / one / name) for one in ("one", run)]
                    for name in ("ranks.parquet", "curve.parquet"))  # fmt: skip
    assert ranks[0].equals(ranks[1])
    for column in curve[0].column_names:
        assert np.allclose(*(table[column].to_numpy() for table in curve), rtol=1e-9), column
    assert {file.name for file in (folder / run).iterdir()} == set(FILES)


def test_a_run_of_several_processes_says_the_memory_of_each(folder):
    one, three = (json.loads((folder / run / "run.json").read_text())["measured"] for run in ("one", "three"))
    assert len(three["peak_memory_bytes_of_processes"]) == PROCESSES
    assert "peak_memory_bytes_of_processes" not in one


def test_all_processes_hear_of_a_client_that_diverged(outcomes):
    """Client 1 is the first one of the second process; the first process said so."""
    assert outcomes["divergence"].startswith("round 1, client 1: training diverged")


def test_a_process_that_is_left_alone_says_so_and_waits_for_nobody(outcomes):
    assert outcomes["left alone"].startswith("another process of this run has ended")
