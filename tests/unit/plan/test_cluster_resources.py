"""Resources of training jobs, and which runs share one."""

from dataclasses import replace

import pytest
import yaml

from fedrec.plan.cluster_resources import SHORT_RUNS, ResourceEstimator
from fedrec.plan.runs import RunId
from tests.conftest import ROOT
from tests.made_project import project_with


@pytest.fixture
def resources(tmp_path):
    return ResourceEstimator(project_with(tmp_path))


def run(method="fedmf", dataset="ml-100k", protocol="clean", seed=0):
    return RunId("pfedclr", dataset, protocol, method, seed)


def test_time_is_three_times_the_guess_and_memory_grows_with_the_interactions(resources):
    # 100 rounds of 0.4 s, and a second to start: 41 s, and three times that is over two minutes.
    assert resources.minutes(run(), 1) == 5 + 3
    assert resources.memory(run(), 1) == 4500 + 45
    assert resources.memory(run(dataset="ml-1m"), 1) == 4500 + 451


def test_what_is_tried_again_asks_for_twice_as_much(resources):
    assert resources.minutes(run(), 2) == 2 * resources.minutes(run(), 1)
    assert resources.memory(run(), 3) == 4 * resources.memory(run(), 1)


def test_where_runs_ask_for_a_gpu_their_time_is_that_of_one(tmp_path):
    project = project_with(tmp_path, gpu_per_run=1)
    costs = {"start": 10.0, "round": 1.0, "noise": 1.0, "million": {"fedmf": 0.0}, "tables": {}}
    on_gpu = ResourceEstimator(replace(project, configuration={**project.configuration, "gpu_costs": costs}))
    assert on_gpu.gpus == 1
    assert on_gpu.seconds(run()) == 110
    assert on_gpu.minutes(run(), 1) == 5 + 6


def test_short_runs_share_a_job_and_a_long_run_has_its_own(resources):
    assert resources.group(run()) == resources.group(run(dataset="filmtrust")) == SHORT_RUNS
    # On MovieLens 1M a round takes ten times as long.
    assert resources.group(run(dataset="ml-1m", method="gpfedrec")) is None


def test_the_slurm_profile_says_how_many_short_runs_share_a_job():
    profile = yaml.safe_load((ROOT / "profiles/slurm/config.yaml").read_text())
    assert [entry.partition("=")[0] for entry in profile["group-components"]] == [SHORT_RUNS]
