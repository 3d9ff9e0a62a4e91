"""The trials of a search: fixed in advance, spelt as runs, and which of them go on."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import yaml

from fedrec.config.method_entries import SEARCHED
from fedrec.config.methods import load_methods, resolve, setting_text
from fedrec.config.names import parse
from fedrec.config.tuning import Final, Halving, Range, Search, Tuning
from fedrec.evaluation.metrics import metrics_of
from fedrec.federation.engines.engine import engine_named
from fedrec.files.parquet import write_table
from fedrec.plan.run_matching import unfinished
from fedrec.plan.runs import RunId
from fedrec.plan.target_names import runs_for_targets
from fedrec.plan.trial_results import validation_result
from fedrec.plan.trials import best, design, early_rounds, section_of, stages, trials_given
from fedrec.runs.registry import make_learner, make_method
from tests import planned_runs
from tests.conftest import ROOT
from tests.federations import clients_of, planted_blocks
from tests.made_project import project_with
from tests.projects import Made

METHODS = load_methods(ROOT / "config/methods.yaml")
RATE = Range("rate", "log", (0.001, 1.0), (), False, "0.01")
SPREAD = Range("spread", "linear", (0.0, 2.0), (), False, "1")
LOSS = Range("loss", "choice", None, ("bpr", "bce"), False, "bpr")
DEPTH = Range("depth", "linear", (1.0, 4.0), (), True, "3")
TUNING = Tuning(16, 16, 0, 1000, None, {})


def search(*ranges, method="lightgcn"):
    return Search(f"{method}@fedem", method, "fedem", "ml-100k", "nobody says", ranges)


def of_trials(number):
    return replace(TUNING, trials_per_setting=number, most_trials=number)


def never(_run):
    return None


def test_every_setting_that_is_searched_has_as_many_trials_up_to_a_limit():
    tuning = replace(TUNING, trials_per_setting=5, most_trials=12)
    assert [
        len(design(search(*ranges), tuning)) for ranges in ([RATE], [RATE, SPREAD], [RATE, SPREAD, DEPTH])
    ] == [
        5,
        10,
        12,
    ]


def test_the_first_trial_is_what_was_and_no_other_is_there_twice():
    trials = design(search(RATE, LOSS, DEPTH), TUNING)
    assert trials[0] == {"rate": "0.01", "loss": "bpr", "depth": "3"}
    assert len({tuple(values.items()) for values in trials}) == 16


def test_a_design_is_the_same_every_time_and_more_trials_only_add_to_it():
    one = search(RATE, SPREAD, LOSS)
    trials = design(one, TUNING)
    assert trials == design(one, TUNING)
    assert design(one, of_trials(50))[:16] == trials
    assert design(one, of_trials(3)) == trials[:3]
    assert design(one, replace(TUNING, design=1))[1:] != trials[1:]


def test_values_lie_in_their_ranges_and_fill_them():
    trials = design(search(RATE, SPREAD, LOSS, DEPTH), of_trials(65))[1:]
    rates, spreads = ([float(values[name]) for values in trials] for name in ("rate", "spread"))
    assert 0.001 <= min(rates) < 0.0015
    assert 0.7 < max(rates) <= 1
    # Of a range by its logarithm, a third of the trials lies in each factor of ten.
    assert all(18 <= sum(low <= rate < 10 * low for rate in rates) <= 25 for low in (0.001, 0.01, 0.1))
    assert sum(spread < 1 for spread in spreads) in (31, 32, 33)
    assert {values["depth"] for values in trials} == {"1", "2", "3", "4"}
    assert {values["loss"] for values in trials} == {"bpr", "bce"}


def test_a_value_has_three_digits_and_reads_back_as_it_is_spelt():
    for values in design(search(RATE, SPREAD), TUNING):
        for name, text in values.items():
            assert len(text.replace(".", "").lstrip("0")) <= 3, (name, text)
        (stage,) = stages(search(RATE, SPREAD), of_trials(1), METHODS, never)
    for number, (run,) in stages(search(RATE, SPREAD), TUNING, METHODS, never)[0].runs.items():
        values = design(search(RATE, SPREAD), TUNING)[number]
        settings, _, _ = resolve(METHODS, run.method, "fedem", "ml-100k")
        assert {name: settings[name] for name in values} == {
            name: float(text) for name, text in values.items()
        }
        changed = dict(parse(run.method).changes)
        assert all(changed.get(name, values[name]) == values[name] for name in values)
    assert stage.rounds is None


def test_of_a_small_search_every_point_is_tried():
    trials = design(search(LOSS, DEPTH), TUNING)
    assert sorted((values["loss"], values["depth"]) for values in trials) == [
        (loss, depth) for loss in ("bce", "bpr") for depth in "1234"
    ]


def test_trials_are_runs_of_the_papers_own_protocol_with_a_seed_of_their_own():
    (stage,) = stages(search(RATE, LOSS), TUNING, METHODS, never)
    # Its rate differs from that of the file, its loss does not.
    assert stage.runs[0] == (
        RunId("fedem", "ml-100k", "published-fedem", "lightgcn[loss=bpr][rate=0.01]", 1000),
    )
    assert list(stage.runs) == list(range(16))


def test_trials_of_a_search_of_no_paper_are_runs_of_the_shared_protocol():
    shared = replace(search(RATE), key="lightgcn@clean")
    (run,) = stages(shared, TUNING, METHODS, never)[0].runs[0]
    assert run == RunId("fedem", "ml-100k", "clean", "lightgcn[rate=0.01]", 1000)


def test_trials_are_called_the_same_whatever_searches_found():
    found = stages(search(RATE, SPREAD), TUNING, METHODS, never)
    assert resolve(METHODS, "lightgcn", "fedem", "ml-100k")[1]["rate"].startswith(SEARCHED)
    assert found == stages(search(RATE, SPREAD), TUNING, METHODS.unsearched, never)


# Halving

HALVED = replace(of_trials(8), halving=Halving((5, 20), 0.25))


def test_where_trials_end_early_only_those_continue_that_were_best():
    one = search(RATE)
    first = stages(one, HALVED, METHODS, never)
    assert [(stage.rounds, len(stage.runs)) for stage in first] == [(5, 8)]
    assert all(dict(parse(run.method).changes)["rounds"] == "5" for (run,) in first[0].runs.values())

    reached = {run: 0.1 * number for number, (run,) in first[0].runs.items()}
    second = stages(one, HALVED, METHODS, reached.get)
    assert [(stage.rounds, list(stage.runs)) for stage in second] == [(5, list(range(8))), (20, [6, 7])]

    reached |= {run: -number for number, (run,) in second[1].runs.items()}
    third = stages(one, HALVED, METHODS, reached.get)
    assert [(stage.rounds, list(stage.runs)) for stage in third][1:] == [(20, [6, 7]), (None, [6])]
    assert "rounds" not in third[2].runs[6][0].method


def test_trials_of_200_rounds_are_compared_as_early_as_others():
    one = replace(search(RATE), paper="fedrap")
    assert resolve(METHODS, "lightgcn", "fedrap", "ml-100k")[0]["rounds"] == 200
    assert early_rounds(one, HALVED, METHODS) == [5, 20]


@pytest.mark.parametrize(("rounds", "early"), [("20", [5]), ("5", []), ("4", []), ("21", [5, 20])])
def test_trials_are_not_compared_at_their_last_round_or_behind_it(rounds, early):
    one = search(RATE, method=f"lightgcn[rounds={rounds}]")
    assert early_rounds(one, HALVED, METHODS) == early


def test_none_continues_before_all_are_compared():
    first = stages(search(RATE), HALVED, METHODS, never)
    reached = {run: 0.1 for (run,) in list(first[0].runs.values())[:-1]}
    assert len(stages(search(RATE), HALVED, METHODS, reached.get)) == 1


def test_of_equal_trials_the_earlier_continues():
    assert best({0: 0.1, 1: 0.3, 2: 0.3, 3: 0.2}, 2) == [1, 2]
    assert best({0: 0.1, 1: 0.3, 2: 0.3}, 1) == [1]
    assert best({0: 0.1, 1: 0.3}, 4) == [1, 0]


# Several seeds

SEEDED = replace(HALVED, final=Final(2, 3))


def reached_by_number(stage, scores):
    """What the runs of a stage reached: of each trial as many numbers as it has seeds."""
    return {
        run: score
        for number, runs in stage.runs.items()
        for run, score in zip(runs, scores[number], strict=True)
    }


def test_the_best_trials_have_several_seeds_once_the_last_stage_is_done():
    one, tuning = search(RATE), replace(SEEDED, halving=None)
    (last,) = stages(one, tuning, METHODS, never)
    reached = reached_by_number(last, {number: [0.1 * number] for number in last.runs})
    unfinished = dict(list(reached.items())[1:])
    assert stages(one, tuning, METHODS, unfinished.get) == [last]

    _, final = stages(one, tuning, METHODS, reached.get)
    assert (final.rounds, list(final.runs)) == (None, [6, 7])
    for number, runs in final.runs.items():
        assert [run.seed for run in runs] == [1000, 1001, 1002]
        # The first seed was trained before.
        assert runs[0] == last.runs[number][0]
        assert len({run.method for run in runs}) == 1


def test_several_seeds_come_after_all_early_stages():
    one = search(RATE)
    reached = {}
    for number in range(1, 4):
        known = stages(one, SEEDED, METHODS, reached.get)
        assert [len(stage.runs) for stage in known] == [8, 2, 1][:number]
        assert all(len(runs) == 1 for stage in known for runs in stage.runs.values())
        reached |= reached_by_number(known[-1], {n: [n] for n in known[-1].runs})
    # One trial is left, fewer than are to be kept.
    final = stages(one, SEEDED, METHODS, reached.get)[3]
    assert [len(runs) for runs in final.runs.values()] == [3]


def test_a_search_with_fewer_trials_than_are_kept_has_all_of_them_with_several_seeds():
    tuning = replace(of_trials(3), final=Final(4, 2))
    (last,) = stages(search(RATE), tuning, METHODS, never)
    reached = reached_by_number(last, {number: [0.1] for number in last.runs})
    assert list(stages(search(RATE), tuning, METHODS, reached.get)[1].runs) == [0, 1, 2]


# Starts


def test_starts_are_the_trials_right_after_the_first_and_inside_the_budget():
    one = search(RATE, SPREAD)
    # The second is the first trial, the third is there twice, the last lies outside of its range.
    starts = (("0.5", "1"), ("0.01", "1"), ("0.5", "1"), ("7", "0.2"))
    trials = [tuple(values.values()) for values in design(replace(one, starts=starts), TUNING)]
    assert trials[:3] == [("0.01", "1"), ("0.5", "1"), ("7", "0.2")]
    assert len(trials) == 16
    assert trials[3:] == [tuple(values.values()) for values in design(one, TUNING)][1:14]


# Ways

SGD = "fedmf[item_scale=items][optimiser=sgd]"


def way(*ranges, method="fedmf"):
    return replace(search(*ranges, method=method), key=f"{method}@clean", paper="fedem")


def test_a_trial_of_a_way_has_its_settings_beside_those_searched():
    one = way(RATE, method=SGD)
    (stage,) = stages(one, replace(TUNING, halving=Halving((5,), 0.5)), METHODS, never)
    (run,) = stage.runs[0]
    assert run.method == "fedmf[item_scale=items][optimiser=sgd][rate=0.01][rounds=5]"
    settings, _, _ = resolve(METHODS, run.method, run.paper, run.dataset)
    assert (settings["item_scale"], settings["optimiser"], settings["rate"]) == ("items", "sgd", 0.01)


def test_the_ways_of_a_method_share_its_budget():
    adam, sgd = way(RATE, SPREAD), way(RATE, DEPTH, method=SGD)
    other = way(RATE, method="fedncf")
    elsewhere = replace(sgd, dataset="ml-1m")
    searches = {one.target: one for one in (adam, sgd, other, elsewhere)}
    assert len(searches) == 4
    tuning = replace(TUNING, trials_per_setting=5, most_trials=100, searches=searches)
    # Three settings are searched: 15 trials, of which each way has half, rounded up.
    assert [tuning.trials_of(one) for one in searches.values()] == [8, 8, 5, 10]
    assert len(design(sgd, tuning)) == 8
    assert [tuning.trials_of(one) for one in (adam, sgd)] == [8, 8]
    least = replace(tuning, most_trials=7)
    assert [least.trials_of(one) for one in (adam, sgd)] == [4, 4]
    # And those that are trained with several seeds.
    several = replace(tuning, final=Final(keep=3, seeds=2))
    assert [several.finalists_of(one) for one in searches.values()] == [2, 2, 3, 3]
    # Papers have no ways.
    of_paper = search(RATE, method="fedmf")
    assert replace(tuning, searches={**searches, "a": of_paper}).trials_of(of_paper) == 5


# Where a value lies


@pytest.mark.parametrize(
    ("where", "value", "section"),
    [
        (RATE, "0.001", 0), (RATE, "0.0099", 0), (RATE, "0.011", 1), (RATE, "0.11", 2), (RATE, "1", 2),
        (RATE, "1.1", None), (RATE, "0", None), (RATE, "null", None),
        (SPREAD, "0", 0), (SPREAD, "1", 1), (SPREAD, "2", 2), (SPREAD, "-0.1", None), (DEPTH, "4", 2),
    ],
)  # fmt: skip
def test_a_value_lies_in_a_third_of_its_range_or_outside(where, value, section):
    assert section_of(where, value, 3) == section


# In the project


@pytest.fixture
def made(tmp_path):
    return Made(tmp_path)


def test_every_search_of_the_project_can_be_planned_and_its_trials_made(tmp_path):
    project, clients = project_with(tmp_path), clients_of(planted_blocks())
    reported = set(project.seeds)
    # On each of its datasets a search has the same points but for the first: one of them stands for all.
    for name in {search.key: name for name, search in project.tuning.searches.items()}.values():
        target = project.target(name)
        assert name.isidentifier()
        assert 1 < len(target.runs) <= project.tuning.trials_of(project.tuning.searches[name])
        assert len(set(target.runs)) == len(target.runs) == len(target.content["trials"])
        for run in target.runs:
            assert run.seed not in reported
            settings, _, _ = resolve(project.methods, run.method, run.paper, run.dataset)
            if make_method(run.method, settings, 10) is None:
                make_learner(run.method, clients, settings, 0, engine_named("loop", 0))
            assert project.job(run).is_trial
        assert target.files[0] == f"tuning/{name}.csv"
    assert set(project.groups["tune"]) == set(project.tuning.searches)


def test_the_number_of_trials_is_known_without_the_design(tmp_path):
    tuning = project_with(tmp_path).tuning
    searches = {search.key: search for search in tuning.searches.values()}.values()
    given = {search.key: trials_given(search, tuning) for search in searches}
    assert given == {search.key: len(design(search, tuning)) for search in searches}
    # One has fewer points than trials.
    assert any(given[search.key] < tuning.trials_of(search) for search in searches)


def test_the_first_trial_has_the_values_without_the_search(tmp_path):
    project = project_with(tmp_path)
    for one in project.tuning.searches.values():
        values, sources, _ = resolve(project.methods.unsearched, one.method, one.paper, one.dataset)
        assert {part.setting: part.was for part in one.ranges} == {
            part.setting: setting_text(values[part.setting]) for part in one.ranges
        }
        assert not any(source.startswith(SEARCHED) for source in sources.values())


def test_what_trials_hold_is_what_runs_that_are_reported_have(tmp_path):
    """What was searched for another model says nothing about the one that is reported."""
    project = project_with(tmp_path)
    for name, one in {one.key: (name, one) for name, one in project.tuning.searches.items()}.values():
        reported, _, _ = resolve(project.methods, one.method, one.paper, one.dataset)
        searched = {part.setting for part in one.ranges}
        for run in project.target(name).runs:
            settings = project.job(run).settings
            differing = {key for key in reported if settings[key] != reported[key]}
            assert differing <= searched | {"rounds"}, run


def also_on_alpha(made, **common):
    """Has searches that name no dataset made on alpha as well, and those under PFedRec."""
    path = made.folder / "config/tuning.yaml"
    content = yaml.safe_load(path.read_text(encoding="utf-8")) | common
    both = ["ml-100k", "alpha"]
    for key, one in content["searches"].items():
        if key.endswith("@pfedrec"):
            one["datasets"] = both
    path.write_text(yaml.safe_dump(content | {"datasets": both}, sort_keys=False), encoding="utf-8")


def test_a_search_without_its_data_is_left_out_and_says_why(made):
    project = made.project()
    target = project.target("tune_ncf_pfedclr_ml_100k")
    assert target.runs == ()
    assert target.content["unavailable"] == {"ml-100k": "it is not in config/datasets.yaml"}
    assert project.files("tune_ncf_pfedclr_ml_100k") == project.files("tune") == []
    also_on_alpha(made)
    assert made.project().target("tune_ncf_pfedclr_alpha").content["unavailable"] == {
        "alpha": "it is not a dataset of pfedclr"
    }


def test_a_search_on_data_that_there_is_is_planned_by_name_or_file(made):
    also_on_alpha(made)
    project = made.project()
    runs = runs_for_targets(project, ["tune_fedmf_pfedrec_alpha"])
    assert len(runs) == 16
    assert runs == runs_for_targets(project, [str(project.results / "tuning/tune_fedmf_pfedrec_alpha.md")])
    assert set(runs) < set(runs_for_targets(project, ["tune"]))
    request = project.job(runs[0]).request(project.results)
    assert (request.seed, request.diverged) == (1000, "kept")
    assert project.job(runs[0]).arguments()[-2:] == ["--on-divergence", "record"]
    assert "--on-divergence" not in project.job(replace(runs[0], seed=0)).arguments()


def test_trials_that_are_finished_decide_which_continue(made):
    also_on_alpha(made, halving={"rounds": [5], "keep": 0.25}, final={"keep": 2, "seeds": 3})
    project = made.project()
    first = project.target("tune_fedmf_pfedrec_alpha")
    assert len(first.runs) == 16
    for number, run in enumerate(first.runs):
        finish(project, run, 0.01 * number)
    second = made.project().target("tune_fedmf_pfedrec_alpha")
    assert list(second.content["stages"][1]["runs"]) == ["12", "13", "14", "15"]
    assert len(second.runs) == 20
    for number, run in enumerate(second.runs[16:]):
        finish(project, run, 0.01 * number)
    third = made.project().target("tune_fedmf_pfedrec_alpha")
    # Those of the first seed are there: two trials have two more runs each.
    assert {number: len(runs) for number, runs in third.content["stages"][2]["runs"].items()} == {
        "14": 3, "15": 3
    }  # fmt: skip
    assert [run.seed for run in third.runs[20:]] == [1001, 1002, 1001, 1002]
    assert all(project.job(run).is_trial for run in third.runs)
    # A run of other settings, code or split says nothing about this one.
    for changes in ({"settings": {}}, {"code": "other"}, {"split": "other"}):
        finish(project, first.runs[0], 0.5, **changes)
        assert len(made.project().target("tune_fedmf_pfedrec_alpha").runs) == 16


def test_trials_are_compared_among_candidates_or_exactly_among_all_items(tmp_path):
    among = {"best_validation": np.array([1, 2, 11, 7000], np.float32), "last": np.ones(4, np.float32)}
    columns = {
        "at": [at for at, ranks in among.items() for _ in ranks],
        "validation_rank_in_catalogue": np.concatenate([*among.values()]),
    }
    write_table(tmp_path / "ranks.parquet", pa.table(columns), {})
    summary = {"metrics": {"best_validation": {"validation": {"ndcg@10": 0.25}}}}
    assert validation_result(tmp_path, summary, exact=False) == 0.25
    exact = validation_result(tmp_path, summary, exact=True)
    assert exact == pytest.approx(metrics_of(among["best_validation"])["ndcg@10"], rel=1e-12)
    assert exact == pytest.approx((1 + 1 / np.log2(3)) / 4)


def test_a_run_that_diverged_is_finished_as_a_trial_alone(made):
    also_on_alpha(made)
    project = made.project(diverged="refused")
    trial = project.target("tune_fedmf_pfedrec_alpha").runs[0]
    reported = replace(trial, seed=0)
    for run in (trial, reported):
        finish(project, run, 0.0, diverged={"round": 1, "why": "because"})
    assert unfinished(project, [trial, reported]) == [reported]


def test_where_runs_that_diverge_are_kept_they_are_finished_too(made):
    kept, refused = made.project(), made.project(diverged="refused")
    run = RunId("pfedrec", "alpha", "published-pfedrec", "fedmf", 0)
    finish(kept, run, 0.0, diverged={"round": 1, "why": "because"})
    assert unfinished(kept, [run]) == []
    assert unfinished(refused, [run]) == [run]
    assert kept.job(run).listed(kept.results).as_line()["diverged"] == "kept"
    assert "diverged" not in refused.job(run).listed(kept.results).as_line()
    # Finished runs would be trained again for another parameter of their job.
    assert kept.job(run).arguments() == refused.job(run).arguments()


def finish(project, run, score, **changes):
    """Let a trial be finished with this score."""
    metrics = {"best_validation": {"validation": {"ndcg@10": score}}}
    planned_runs.finish(project, run, **({"metrics": metrics} | changes))
