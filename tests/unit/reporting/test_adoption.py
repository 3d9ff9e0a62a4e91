"""What finished searches found becomes part of the configuration, by the choice of their tables."""

import csv

import pytest
import yaml

from fedrec.cli.main import main
from fedrec.config.methods import resolve, setting_text
from fedrec.plan.project import Project
from fedrec.reporting.adoption import adopt, collect
from fedrec.reporting.frozen import freeze, frozen_text
from tests import planned_runs
from tests.projects import Made, configuration

NAME, PLUGIN = "tune_fedmf_pfedrec_alpha", "tune_fedmf_dualper_pfedrec_alpha"
FOUND = "config/found.yaml"


@pytest.fixture
def made(tmp_path):
    """A project with two searches on a dataset that is there, of a method and of it with a plug-in."""
    made = Made(tmp_path)
    made.write(FOUND, "# what was found\n{}\n")
    common = yaml.safe_load((made.folder / "config/tuning.yaml").read_text(encoding="utf-8"))
    searches = {
        "fedmf@pfedrec": {"because": "so", "settings": {"item_factor": {"log": [0.1, 1000]}}},
        "fedmf+dualper@pfedrec": {"because": "so", "settings": {"spread": {"log": [0.01, 1]}}},
    }
    # The plug-in's own search is of a setting that both have, and leaves what the other searches.
    searches["fedmf+dualper@pfedrec"]["settings"] = {"batch_decay": {"linear": [0.9, 1]}}
    small = {"datasets": ["alpha"], "trials_per_setting": 4, "halving": {"rounds": [5], "keep": 0.5}}
    common.pop("final", None)
    made.write("config/tuning.yaml", yaml.safe_dump(common | small | {"searches": searches}))
    made.write("config/methods.yaml", _without_composed(made))
    return made


def _without_composed(made):
    """DualPer with FedMF follows what was found for FedMF."""
    text = (made.folder / "config/methods.yaml").read_text(encoding="utf-8")
    stated = "    fedmf@pfedrec:\n      item_factor: {value: 80.0, source: checked}\n"
    assert stated in text
    return text.replace(stated, "")


def finish(project, runs, scores):
    for run, score in zip(runs, scores, strict=True):
        parts = {"validation": {"ndcg@10": score, "hr@10": 0.5}, "test": {"ndcg@10": 1 - score}}
        metrics, rounds = {"best_validation": parts}, {"best_validation": 1}
        planned_runs.finish(project, run, metrics=metrics, rounds=rounds, measured={"device": "cpu"})


def finished(made, name=NAME, first=(0.1, 0.4, 0.2, 0.3), last=(0.2, 0.7)):
    """The project, with both stages of a search finished: trials 1 and 3 went on."""
    project = made.project()
    finish(project, project.target(name).runs, first)
    project = made.project()
    finish(project, project.target(name).runs[len(first) :], last)
    return made.project()


def content(made):
    return yaml.safe_load((made.folder / FOUND).read_text(encoding="utf-8"))


def test_the_best_trial_on_validation_is_adopted_with_what_all_held(made):
    project = finished(made)
    adopted = adopt(project, collect(project, [NAME]))
    assert (list(adopted.found), adopted.lacking, adopted.stale) == ([NAME], {}, {})
    found = content(made)["fedmf@pfedrec"]["alpha"]
    best = project.target(NAME).content["trials"][3]
    assert found["trials"] == 4
    assert found["settings"] == {"item_factor": float(best["item_factor"])}
    values, sources, _ = resolve(made.project().methods, "fedmf", "pfedrec", "alpha")
    assert (values["item_factor"], sources["item_factor"]) == (
        float(best["item_factor"]),
        "searched, 4 trials",
    )
    assert (found["seeds"], found["validation"]) == (1, 0.7)
    assert found["held"] == {key: value for key, value in values.items() if key != "item_factor"}
    assert (made.folder / FOUND).read_text(encoding="utf-8").startswith("# what was found\nfedmf@pfedrec:\n")


def test_of_equal_trials_the_first_is_adopted(made):
    project = finished(made, last=(0.7, 0.7))
    adopt(project, collect(project, [NAME]))
    first = project.target(NAME).content["trials"][1]
    assert content(made)["fedmf@pfedrec"]["alpha"]["settings"] == {"item_factor": float(first["item_factor"])}


def test_what_is_adopted_is_what_the_table_chose_which_can_be_kept(made, tmp_path):
    project, store = finished(made), tmp_path / "store"
    adopt(project, collect(project, [NAME]))
    assert freeze(store, [project.target(NAME)], project.results, project.layouts, [NAME]) == [NAME]
    rows = csv.DictReader(frozen_text(store, NAME, ".csv").splitlines())
    (chosen,) = (row for row in rows if row["chosen"] == "True")
    found = content(made)["fedmf@pfedrec"]["alpha"]["settings"]
    assert setting_text(found["item_factor"]) == chosen["item_factor"]
    # What is no target any more goes.
    assert freeze(store, [], project.results, project.layouts, [PLUGIN]) == []


def test_trials_stay_what_they_are_once_values_are_adopted(made):
    project = finished(made)
    before = project.target(NAME)
    adopt(project, collect(project, [NAME]))
    assert made.project().target(NAME).runs == before.runs
    text = (made.folder / FOUND).read_text(encoding="utf-8")
    project = made.project()
    adopt(project, collect(project, [NAME]))
    assert (made.folder / FOUND).read_text(encoding="utf-8") == text


def test_a_search_that_is_not_finished_says_what_lacks(made):
    project = made.project()
    assert collect(project, [NAME]).lacking == {NAME: "4 of 4 trials of 5 rounds are not finished here"}
    finish(project, project.target(NAME).runs, (0.1, 0.4, 0.2, 0.3))
    assert collect(made.project(), [NAME]).lacking == {
        NAME: "2 of 2 trials of all rounds are not finished here"
    }


def test_the_mean_of_several_seeds_is_adopted_once_they_are_finished(made):
    made.replace("config/tuning.yaml", "halving:", "final: {keep: 2, seeds: 3}\nhalving:")
    project = finished(made)
    assert collect(project, [NAME]).lacking == {
        NAME: "4 of 6 runs of all rounds with 3 seeds are not finished here"
    }
    last = project.target(NAME).content["stages"][-1]["runs"]
    assert list(last) == ["1", "3"]
    # With one seed trial 3 is far better, with all trial 1.
    finish(
        project, [run for run in project.target(NAME).runs if run.seed > 1000], (0.7, 0.61234567, 0.1, 0.2)
    )
    project = made.project()
    adopt(project, collect(project, [NAME]))
    found = content(made)["fedmf@pfedrec"]["alpha"]
    chosen = project.target(NAME).content["trials"][1]
    assert found["settings"] == {"item_factor": float(chosen["item_factor"])}
    assert (found["trials"], found["seeds"], found["validation"]) == (4, 3, 0.5041)
    made.project()


def test_what_was_found_for_another_way_without_validation_is_taken_out(made):
    path = made.folder / "config/tuning.yaml"
    common = yaml.safe_load(path.read_text(encoding="utf-8"))
    one = {"because": "so", "settings": {"item_factor": {"log": [0.1, 1000]}}}
    sgd = "fedmf[optimiser=sgd]@clean"
    made.write("config/tuning.yaml", yaml.safe_dump(common | {"searches": {"fedmf@clean": one, sgd: one}}))
    old = {"trials": 4, "settings": {"item_factor": 7.0}, "held": {}}
    made.write(FOUND, yaml.safe_dump({"fedmf@clean": {"alpha": old}}))
    name = "tune_fedmf_optimiser_sgd_clean_alpha"
    project = finished(made, name, (0.1, 0.4), (0.7,))
    adopted = adopt(project, collect(project, [name]))
    assert list(content(made)) == [sgd]
    assert content(made)[sgd]["alpha"]["held"]["optimiser"] == "sgd"
    assert (
        "it has no 'validation', which is needed to compare it with" in adopted.stale["fedmf@clean on alpha"]
    )


def test_what_was_found_for_a_plugin_is_taken_out_once_its_backbone_has_other_values(made):
    project = finished(made, PLUGIN)
    adopt(project, collect(project, [PLUGIN]))
    assert list(content(made)) == ["fedmf+dualper@pfedrec"]
    project = finished(made)
    adopted = adopt(project, collect(project, [NAME]))
    assert list(content(made)) == ["fedmf@pfedrec"]
    (why,) = adopted.stale.values()
    assert list(adopted.stale) == ["fedmf+dualper@pfedrec on alpha"]
    assert "searched with item_factor = 80, which is " in why
    made.project()


def test_the_command_refuses_what_is_not_finished_unless_it_may_pass_over_it(made, monkeypatch, capsys):
    project = finished(made)
    assert isinstance(project, Project)
    made.write("config/config.yaml", yaml.safe_dump(configuration()))
    monkeypatch.chdir(made.folder)
    arguments = ["adopt", "tune", "--mirror", "mirror"]
    assert main(arguments) == 1
    said = capsys.readouterr().err
    assert "1 of 2 searches are not finished, so none was adopted." in said
    assert f"{PLUGIN}: 4 of 4 trials" in said
    assert content(made) == {}
    assert main([*arguments, "--skip-unfinished"]) == 0
    assert "wrote the settings of 1 of 2 searches. Not finished:" in capsys.readouterr().out
    assert list(content(made)) == ["fedmf@pfedrec"]
    assert main(["adopt", "tune_fedmf_pfedrec_alhpa", "--mirror", "mirror"]) == 1
    assert f"Did you mean '{NAME}'" in capsys.readouterr().err
