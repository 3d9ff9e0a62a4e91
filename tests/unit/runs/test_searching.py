"""A search from Python: its trials, its choice on validation alone, and what is refused."""

import numpy as np
import pytest

import fedrec
from fedrec.errors import ConfigurationError
from fedrec.evaluation.metrics import metrics_of
from fedrec.plan.runs import RunId
from tests.conftest import ROOT
from tests.federations import planted_blocks
from tests.trained_runs import shared_results

RANGES = {"penalty": {"log": (1, 1000)}}
SAID = "validation_exact_ndcg@10"


@pytest.fixture(autouse=True)
def _files(monkeypatch):
    monkeypatch.setenv("FEDREC_METHODS", str(ROOT / "config/methods.yaml"))


@pytest.fixture
def data(tmp_path_factory):
    return (
        shared_results(tmp_path_factory, "searched from python", planted_blocks, users=12, items=60)
        / "data/made"
    )


def validation(run):
    ranks = run.ranks.filter(at="best_validation")["validation_rank_in_catalogue"].to_numpy()
    return metrics_of(ranks)["ndcg@10"]


def test_the_best_trial_on_validation_is_chosen_by_the_mean_of_its_seeds(data, capsys):
    found = fedrec.tune(data, "ease", ranges=RANGES, trials=6, seeds=2)
    assert "6 trials, 6 for" in capsys.readouterr().err
    trials = found.trials
    assert (trials["seeds"].to_list(), trials.height) == ([2] * 4 + [1] * 2, 6)
    for row in trials.to_dicts():
        runs = [fedrec.open_run(folder, data) for folder in row["folders"]]
        assert row[SAID] == pytest.approx(np.mean([validation(run) for run in runs]))
        assert {run.settings["penalty"] for run in runs} == {row["penalty"]}
        assert all(run.id.seed in (1000, 1001) and not run.has_model for run in runs)
    best = trials.row(0, named=True)
    assert best[SAID] == max(trials.head(4)[SAID])
    assert (best["chosen"], found.validation) == (True, best[SAID])
    assert not any("test" in name for name in trials.columns)
    run = fedrec.train(data, found.best, progress=False)
    assert run.settings["penalty"] == best["penalty"]

    capsys.readouterr()
    again = fedrec.tune(data, "ease", ranges=RANGES, trials=6, seeds=2)
    assert "10 runs, of which 10 are finished" in capsys.readouterr().err
    assert again.trials.equals(trials)


def test_ranges_are_those_of_the_file_unless_the_name_sets_the_setting(data):
    found = fedrec.tune(data, "item-knn[shrinkage=10]", trials=2, seeds=1, progress=False)
    assert found.trials.columns[:2] == ["trial", "neighbours"]
    assert found.trials["neighbours"].n_unique() == 2


def test_a_protocol_that_leaks_is_refused_unless_it_is_requested(data):
    leaking = {"protocol": "published-fedem", "ranges": RANGES, "trials": 1, "seeds": 1, "progress": False}
    with pytest.raises(
        ConfigurationError,
        match=r"its clients never sample held-out items as negatives.*and it selects the round on test items",
    ):
        fedrec.tune(data, "ease", **leaking)
    found = fedrec.tune(data, "ease", **leaking, leaking=True)
    run = fedrec.open_run(found.trials["folders"][0][0])
    assert run.id == RunId(run.id.paper, "made", "published-fedem", run.id.method, 1000)


@pytest.mark.parametrize(
    ("method", "more", "said"),
    [
        ("popularity", {}, "has no ranges for popularity"),
        ("fedmf", {"ranges": {"lr": [1]}}, "Did you mean 'rate'"),
        ("fedmf", {"ranges": {}}, "the mapping is empty"),
        ("fedmf[d=8]", {"ranges": {"d": [8, 16]}}, "sets it"),
        ("fedmf", {"ranges": {"d": []}}, "the list of values is empty. Give at least one."),
        ("fedmf", {"ranges": {"d": [8, "x"]}}, "fedmf: d=x is not of type integer"),
        ("fedmf", {"ranges": {"rate": {"log": (0, 1)}}}, "a range of type log must start above 0, not at"),
        (
            "fedmf",
            {"ranges": {"rate": {"log": (1,)}}},
            "are not bounds. Give the lowest and the highest value.",
        ),
        ("fedmf", {"ranges": {"rate": {"lg": (1, 2)}}}, "a list of values"),
        ("fedmf", {"ranges": {"rounds": [1, 2]}}, "is not searched"),
        ("fedmf", {"trials": 0}, "Give 1 or more"),
        ("fedmf", {"seeds": 0}, "Give 1 or more"),
    ],
)
def test_a_search_that_cannot_be_is_refused(data, method, more, said):
    with pytest.raises(ConfigurationError, match=said):
        fedrec.tune(data, method, **more)
