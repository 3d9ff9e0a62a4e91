"""The front figure: each method as its own paper sets it, in README as on the page."""

import csv

import pytest

from docs import make
from fedrec.config.methods import load_methods
from fedrec.plan.runs import run_of
from fedrec.reporting.figures.style import theme
from fedrec.reporting.front_figure import front_figure, front_of
from tests.conftest import ROOT
from tests.core import core_and
from tests.made_runs import write_run

METHODS = load_methods(ROOT / "config/methods.yaml")


@pytest.fixture
def made(tmp_path):
    def write(paper, method, seeds=(0,), protocols=("published", "clean"), final=0.5):
        return [
            write_run(
                tmp_path, run_of(METHODS, paper, "ml-100k", protocol, method, seed), METHODS, final=final
            )
            for protocol in protocols
            for seed in seeds
        ]

    return write


def test_each_method_has_the_settings_of_its_own_paper(made):
    records = [
        *made("pfedclr", "fedem", final=0.1),
        *made("fedem", "fedem", final=0.9),
        *made("pfedclr", "fedmf"),
    ]
    front = front_of(records, METHODS, ["fedem", "fedmf"], "ml-100k", "pfedclr")
    own = {(one.method, one.protocol): one.paper for one in front.scores}
    assert own == {
        ("fedem", "published"): "fedem",
        ("fedem", "clean"): "fedem",
        ("fedmf", "published"): "pfedclr",
        ("fedmf", "clean"): "pfedclr",
    }
    assert "Each method has the settings of its own paper. 4 runs, seed 0." in front.caption


def test_a_method_without_runs_of_its_own_paper_is_named_with_the_paper_it_follows(made):
    records = [
        *made("pfedclr", "pfedrec"),
        *made("fedem", "fedem"),
        *made("pfedrec", "pfedrec", protocols=["clean"]),
    ]
    front = front_of(records, METHODS, ["fedem", "pfedrec"], "ml-100k", "pfedclr")
    assert {one.paper for one in front.scores if one.method == "pfedrec"} == {"pfedclr"}
    assert "Each method has the settings of its own paper; PFedRec: those of pfedclr." in front.caption


def test_all_methods_as_one_paper_sets_them_are_said_to_be_so(made):
    front = front_of(
        [*made("pfedclr", "fedmf"), *made("pfedclr", "fedem")],
        METHODS,
        ["fedmf", "fedem"],
        "ml-100k",
        "pfedclr",
    )
    assert "All methods have the settings of pfedclr." in front.caption


def test_all_methods_have_the_seeds_that_all_of_them_have(made):
    records = [*made("pfedclr", "fedmf", seeds=(0, 1)), *made("pfedclr", "pfedclr", seeds=(1, 2))]
    front = front_of(records, METHODS, ["fedmf", "pfedclr"], "ml-100k", "pfedclr")
    assert {one.runs.rpartition("/")[2] for one in front.scores} == {"seed1"}
    assert "4 runs, seed 1." in front.caption


def test_without_runs_under_both_protocols_there_is_no_figure(made):
    assert (
        front_of(made("pfedclr", "fedmf", protocols=["clean"]), METHODS, ["fedmf"], "ml-100k", "pfedclr")
        is None
    )


@pytest.mark.parametrize("narrow", core_and([True], [False]))
def test_the_counter_is_explained_in_the_figure(made, narrow):
    front = front_of(made("pfedclr", "draw-counter"), METHODS, ["draw-counter"], "ml-100k", "pfedclr")
    with theme():
        words = " ".join(text.get_text() for text in front_figure(front, narrow=narrow).axes[0].texts)
    assert (
        "draw-counter has no model. It only counts how often each client drew each item as a negative"
        in words
    )


def test_readme_shows_the_numbers_of_its_table():
    with (ROOT / "docs/numbers/ml-100k.csv").open(encoding="utf-8", newline="") as stream:
        wanted = {
            (row["method"], protocol): row[f"{protocol}_hr"]
            for row in csv.DictReader(stream)
            for protocol in ("published", "clean")
        }
    assert {(one.method, one.protocol): f"{one.value:.4f}" for one in make.front().scores} == wanted
    assert make.front().others == []
