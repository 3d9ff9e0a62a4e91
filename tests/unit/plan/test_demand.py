"""What runs ask of a cluster, and which of them travel in one job."""

from dataclasses import replace

import pytest

from fedrec.plan.demand import Demands
from fedrec.plan.runs import RunId
from tests.made_project import project_with


@pytest.fixture
def demands(tmp_path):
    return Demands(project_with(tmp_path))


def run(method="fedmf", dataset="ml-100k", protocol="clean", seed=0):
    return RunId("pfedclr", dataset, protocol, method, seed)


def test_time_is_three_times_the_guess_and_memory_grows_with_the_interactions(demands):
    # 100 rounds of 0.4 s, and a second to start: 41 s, and three times that is over two minutes.
    assert demands.minutes(run(), 1) == 5 + 3
    assert demands.memory(run(), 1) == 4500 + 45
    assert demands.memory(run(dataset="ml-1m"), 1) == 4500 + 451


def test_what_is_tried_again_asks_for_twice_as_much(demands):
    assert demands.minutes(run(), 2) == 2 * demands.minutes(run(), 1)
    assert demands.memory(run(), 3) == 4 * demands.memory(run(), 1)


def test_where_runs_ask_for_a_gpu_their_time_is_that_of_one(tmp_path):
    project = project_with(tmp_path, gpu_per_run=1)
    costs = {"start": 10.0, "round": 1.0, "noise": 1.0, "million": {"fedmf": 0.0}, "tables": {}}
    on_gpu = Demands(replace(project, configuration={**project.configuration, "gpu_costs": costs}))
    assert on_gpu.gpus == 1
    assert on_gpu.seconds(run()) == 110
    assert on_gpu.minutes(run(), 1) == 5 + 6


def test_short_runs_of_a_dataset_travel_together_and_a_long_one_alone(demands):
    # On MovieLens 1M a round takes ten times as long.
    long = run(dataset="ml-1m", method="gpfedrec")
    short = [run(seed=seed, method=method) for seed in range(3) for method in ("fedmf", "popularity")]
    other = run(dataset="filmtrust")
    named = demands.bundles([*short, long, other])
    assert long not in named
    assert {named[one] for one in short} == {"ml-100k-1"}
    assert named[other] == "filmtrust-1"


def test_a_job_is_full_after_half_an_hour_or_many_runs(demands):
    # 61 s each: 29 of them take 1769 s.
    names = [*demands.bundles(run("local-only", seed=seed) for seed in range(50)).values()]
    assert [names.count(f"ml-100k-{number}") for number in (1, 2)] == [29, 21]
    names = [*demands.bundles(run("popularity", seed=seed) for seed in range(50)).values()]
    assert [names.count(f"ml-100k-{number}") for number in (1, 2)] == [32, 18]


def test_runs_of_a_method_stay_beside_each_other_whatever_the_order_they_come_in(demands):
    runs = [run(method, seed=seed) for method in ("fedmf", "pfedrec") for seed in range(20)]
    named = demands.bundles(runs)
    assert named == demands.bundles(reversed(runs))
    assert {named[one] for one in runs if one.method == "fedmf"} == {"ml-100k-1"}
