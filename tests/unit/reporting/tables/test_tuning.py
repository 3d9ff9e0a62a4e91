"""The table of a search, of runs nobody trained: what is chosen, and how flat the optimum is."""

import csv
from dataclasses import replace

import pytest

from fedrec.config.methods import load_methods
from fedrec.config.tuning import Final, Halving, Range, Search, Tuning
from fedrec.errors import ResultError
from fedrec.files.checked_json import read_checked_json, write_checked_json
from fedrec.plan.fingerprint import run_fingerprint
from fedrec.reporting.build import build
from tests.conftest import ROOT
from tests.made_project import project_with
from tests.made_runs import write_run

METHODS = load_methods(ROOT / "config/methods.yaml")
RANGES = (
    Range("rate", "log", (0.0001, 0.1), (), False, "0.001"),
    Range("loss", "choice", None, ("bpr", "bce"), False, "bpr"),
)
NAME = "tune_lightgcn_fedem_ml_100k"
SEARCH = Search("lightgcn@fedem", "lightgcn", "fedem", "ml-100k", "nobody says", RANGES)
REACHED = {0: 0.5, 1: 0.4, 2: 0.6, 3: 0.596, 4: 0.58, 5: 0.1}
"""Of each trial, on test; on validation it is less."""


def project_of(results, halving=None, final=None):
    made = project_with(results)
    tuning = Tuning(len(REACHED), len(REACHED), 0, 1000, halving, {NAME: SEARCH}, final=final)
    project = replace(made, tuning=tuning)
    project._unavailable["ml-100k"] = {}
    return project


def train(results, target, reached=REACHED, **more):
    """Leave the runs of the last stage of a target's search, as the workflow would.

    A trial with several seeds reaches what `reached` has of each.
    """
    stage = target.content["stages"][-1]
    runs = {run.folder: run for run in target.runs}
    trained = [(number, folder) for number, folders in stage["runs"].items() for folder in folders]
    for number, folder in trained:
        run, rounds = runs[folder], stage["rounds"] or 10
        final = reached[int(number)]
        final = final[run.seed] if isinstance(final, dict) else final
        write_run(results, run, METHODS, final=final, rounds=rounds, **more)
        said = read_checked_json(results / folder / "run.json")
        write_checked_json(
            results / folder / "run.json",
            said | {"engine": "batched", "code": run_fingerprint("lightgcn", "batched"), "model": "not kept"},
        )


def rows_of(results):
    with (results / f"tuning/{NAME}.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture
def searched(tmp_path):
    project = project_of(tmp_path)
    target = project.target(NAME)
    train(tmp_path, target)
    return project, target


def test_every_trial_is_there_best_first_and_one_is_chosen(searched, tmp_path):
    project, target = searched
    build(target, project)
    rows = rows_of(tmp_path)
    assert [row["trial"] for row in rows] == ["2", "3", "4", "0", "1", "5"]
    assert [row["chosen"] for row in rows] == ["True", *["False"] * 5]
    assert rows[3]["rate"] == "0.001"
    for row in rows:
        assert {name: row[name] for name in ("rate", "loss")} == target.content["trials"][int(row["trial"])]
        assert row["runs"] in {run.folder for run in target.runs}
        assert (row["seeds"], row["number_of_seeds"]) == ("1000", "1")


def test_trials_are_compared_on_validation_alone(tmp_path):
    """A trial with the best numbers of test, and the worst of validation, comes last."""
    project = project_of(tmp_path)
    target = project.target(NAME)
    train(tmp_path, target)
    folder = tmp_path / target.content["stages"][0]["runs"]["2"][0]
    said = read_checked_json(folder / "run.json")
    for parts in said["metrics"].values():
        parts["validation"] = dict.fromkeys(parts["validation"], 0.0)
        parts["test"] = dict.fromkeys(parts["test"], 1.0)
    write_checked_json(folder / "run.json", said)
    build(target, project)
    assert rows_of(tmp_path)[-1]["trial"] == "2"
    assert not any("test" in column for column in rows_of(tmp_path)[0])


def test_it_is_said_how_flat_the_optimum_is(searched, tmp_path):
    project, target = searched
    build(target, project)
    text = (tmp_path / f"tuning/{NAME}.md").read_text(encoding="utf-8")
    assert "Chosen: trial 2. Of the 6 trials trained to the end, 2 within 1% and 3 within 5% of it." in text
    chosen = target.content["trials"][2]
    values = f"rate = {chosen['rate']}, loss = {chosen['loss']}."
    assert f"`fedrec adopt {NAME}` puts it into config/found.yaml: {values}" in text
    assert "Why: nobody says" in text
    _, flat = text.split("How flat")
    parts = [line.split("|")[1:3] for line in flat.splitlines() if line.startswith("| ")][2:]
    assert [(setting.strip(), part.strip()) for setting, part in parts] == [
        ("rate", "low"), ("rate", "middle"), ("rate", "high"), ("loss", "bpr"), ("loss", "bce"),
    ]  # fmt: skip
    assert flat.count(" 0.0% ") == 2


def test_a_trial_that_diverged_says_when(searched, tmp_path):
    project, target = searched
    folder = tmp_path / target.content["stages"][0]["runs"]["5"][0]
    said = read_checked_json(folder / "run.json")
    write_checked_json(folder / "run.json", said | {"diverged": {"round": 3, "why": "too fast"}})
    build(target, project)
    assert [row["diverged"] for row in rows_of(tmp_path)] == [*[""] * 5, "3"]
    assert "1 of all 6 trials diverged." in (tmp_path / f"tuning/{NAME}.md").read_text(encoding="utf-8")


# Where trials end early

HALVING = Halving((5,), 0.34)


def test_before_the_last_stage_nothing_is_chosen(tmp_path):
    project = project_of(tmp_path, HALVING)
    target = project.target(NAME)
    train(tmp_path, target)
    build(target, project)
    text = (tmp_path / f"tuning/{NAME}.md").read_text(encoding="utf-8")
    assert "Nothing is chosen yet: these are the trials after round 5. Type the same command again." in text
    assert {row["chosen"] for row in rows_of(tmp_path)} == {"False"}
    assert "How flat" not in text


def test_those_that_went_on_come_first(tmp_path):
    train(tmp_path, project_of(tmp_path, HALVING).target(NAME))
    project = project_of(tmp_path, HALVING)
    target = project.target(NAME)
    # Trained to the end, the best of them is below what ended early.
    train(tmp_path, target, {2: 0.05, 3: 0.06, 4: 0.04})
    build(target, project)
    rows = rows_of(tmp_path)
    assert [row["trial"] for row in rows] == ["3", "2", "4", "0", "1", "5"]
    assert [row["ended_early"] for row in rows] == [*["False"] * 3, *["True"] * 3]
    assert rows[0]["chosen"] == "True"
    text = (tmp_path / f"tuning/{NAME}.md").read_text(encoding="utf-8")
    assert (
        "After round 5 the best 34% of the trials were trained again from the start, for more rounds." in text
    )
    assert "Of the 3 trials trained to the end" in text


def test_trials_that_went_on_by_other_numbers_are_refused(tmp_path):
    first = project_of(tmp_path, HALVING).target(NAME)
    train(tmp_path, first)
    project = project_of(tmp_path, HALVING)
    target = project.target(NAME)
    train(tmp_path, target)
    train(tmp_path, first, dict(reversed(list(zip(REACHED, sorted(REACHED.values()), strict=True)))))
    with pytest.raises(ResultError, match=r"other trials reach the next stage\. Type the same command again"):
        build(target, project)


# Where the best have several seeds

FINAL = Final(3, 3)
SEEDS = {
    2: {1000: 0.6, 1001: 0.3, 1002: 0.3},
    3: {1000: 0.596, 1001: 0.7, 1002: 0.5},
    4: {1000: 0.58, 1001: 0.4, 1002: 0.4},
}


def test_before_the_best_have_several_seeds_nothing_is_chosen(tmp_path):
    project = project_of(tmp_path, final=FINAL)
    target = project.target(NAME)
    train(tmp_path, target)
    build(target, project)
    text = (tmp_path / f"tuning/{NAME}.md").read_text(encoding="utf-8")
    assert (
        "Nothing is chosen yet: these are the trials after all rounds, with one seed. Type the same command again."
        in text
    )
    assert {row["chosen"] for row in rows_of(tmp_path)} == {"False"}


def test_the_mean_over_seeds_decides_against_the_best_of_one_seed(tmp_path):
    train(tmp_path, project_of(tmp_path, final=FINAL).target(NAME))
    project = project_of(tmp_path, final=FINAL)
    target = project.target(NAME)
    train(tmp_path, target, SEEDS)
    build(target, project)
    rows = rows_of(tmp_path)
    assert [row["trial"] for row in rows] == ["3", "4", "2", "0", "1", "5"]
    assert [row["chosen"] for row in rows] == ["True", *["False"] * 5]
    assert [row["number_of_seeds"] for row in rows] == [*["3"] * 3, *["1"] * 3]
    assert rows[0]["seeds"] == "1000 1001 1002"
    assert len(rows[0]["runs"].split()) == 3
    # None of them ended early: all had all rounds.
    assert {row["ended_early"] for row in rows} == {"False"}
    text = (tmp_path / f"tuning/{NAME}.md").read_text(encoding="utf-8")
    assert "The best 3 after all rounds were trained with 3 seeds; their means decide." in text
    assert (
        "Chosen: trial 3, by the mean of 3 seeds. Of the 6 trials trained to the end, 2 within 1% and 3 within 5% "
        "of the best of them by the first seed." in text
    )
    _, flat = text.split("How flat")
    assert flat.count(" 0.0% ") == 2


def test_a_trial_with_several_seeds_shows_their_mean(tmp_path):
    train(tmp_path, project_of(tmp_path, final=FINAL).target(NAME))
    before = {}
    project = project_of(tmp_path, final=FINAL)
    target = project.target(NAME)
    train(tmp_path, target, SEEDS)
    for folder in target.content["stages"][1]["runs"]["2"]:
        said = read_checked_json(tmp_path / folder / "run.json")
        before[said["seed"]] = said["metrics"]["best_validation"]["validation"]["ndcg@10"]
    assert len(set(before.values())) == 2
    build(target, project)
    (row,) = (row for row in rows_of(tmp_path) if row["trial"] == "2")
    assert float(row["ndcg@10"]) == pytest.approx(sum(before.values()) / 3)
