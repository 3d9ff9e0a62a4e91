"""About how long runs take on a GPU, and how large their datasets are."""

import json
from dataclasses import replace

import pytest

from fedrec.config.catalogue import Dataset, Published, Synthetic, load_catalogue
from fedrec.config.configuration import read_configuration
from fedrec.config.methods import load_methods
from fedrec.config.population import Population
from fedrec.config.size import Size
from fedrec.files.parquet import read_table
from fedrec.plan.cost import gpu_seconds_of, seconds_of, size_of
from fedrec.plan.runs import RunId
from tests.conftest import ROOT

CATALOGUE = load_catalogue(ROOT / "config/datasets.yaml")
METHODS = load_methods(ROOT / "config/methods.yaml")
COSTS = {
    "start": 7.0,
    "round": 0.5,
    "noise": 1000.0,
    "million": {"fedmf": 10.0, "gpfedrec": 20.0, "+plgc": 40.0},
    "tables": {"gpfedrec": 100.0, "+plgc": 1000.0},
}
MILLIONS = 0.943 * 1.682
"""Of users x items of MovieLens 100K."""
PLAIN = Dataset("own", "own", 1, "file")


def seconds(method, paper="pfedclr"):
    return gpu_seconds_of(
        RunId(paper, "ml-100k", "clean", f"{method}[rounds=1]", 0), METHODS, CATALOGUE, COSTS
    )


def test_a_round_costs_by_interactions_and_where_whole_tables_are_worked_on_by_users_and_items():
    assert seconds("fedmf", "fedem") == pytest.approx(7.5 + 0.1 * 10 * 10 / 6)
    assert seconds("gpfedrec") == pytest.approx(7.5 + 0.1 * 20 + MILLIONS * 100)


def test_a_plug_in_adds_to_what_its_method_costs():
    more = seconds("gpfedrec+plgc", "plgc") - MILLIONS * 1100
    assert more == pytest.approx(7.5 + 0.1 * 60)


@pytest.mark.parametrize(("noise", "times"), [("ldp=0.1", 1), ("dp_noise=1", 3 * 3)])
def test_noise_costs_by_the_numbers_that_a_round_draws_it_for(noise, times):
    """Those of the item tables of who takes part: once on an upload, on gradients in every mini-batch.

    A user has some 530 samples there: three mini-batches of 256 in each of three epochs.
    """
    plain = "fedmf[d=8][participation=0.5][local_epochs=3]"
    more = seconds(f"{plain}[{noise}]") - seconds(plain)
    assert more == pytest.approx(times * 1000 * 0.5 * 8 * MILLIONS / 1000)
    on_cpu = [
        seconds_of(RunId("pfedclr", "ml-100k", "clean", f"fedmf[d={d}][{noise}]", 0), METHODS, CATALOGUE)
        for d in (8, 16)
    ]
    assert on_cpu[1] > on_cpu[0]


def test_a_size_is_what_its_entry_says_then_what_is_made_or_printed_then_the_usual_one():
    usual = Size(943, 1682, 100_000)
    printed = {"a": Published("1", 99.0, users=5), "b": Published("2", 99.0, users=6, interactions=70)}
    assert size_of(PLAIN) == usual
    assert size_of(replace(PLAIN, published=printed)) == Size(5, 1682, 70)
    assert size_of(replace(PLAIN, published=printed, size=Size(1, 2, 3))) == Size(1, 2, 3)
    assert size_of(replace(PLAIN, synthetic=Population(0, 100, 200, 1500))) == Size(100, 200, 1500)
    assert size_of(replace(PLAIN, synthetic=Synthetic(0, 10, 30, 2))) == Size(10, 30, 200)


def test_datasets_of_the_reference_are_as_large_as_guesses_take_them_to_be():
    counted = {
        row["dataset"]: json.loads(row["statistics"])
        for row in read_table(ROOT / "results/reference/datasets.parquet")[0].to_pylist()
    }
    assert len(counted) > 10
    for name, said in counted.items():
        assert size_of(CATALOGUE[name]) == Size(said["users"], said["items"], said["interactions"]), name


def test_every_cost_is_of_a_method_that_there_is():
    costs = read_configuration([ROOT / "config/config.yaml"]).content["gpu_costs"]
    assert set(METHODS) == set(costs["million"])
    assert set(costs["tables"]) < set(METHODS)
