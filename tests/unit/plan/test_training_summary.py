import pytest

from fedrec.plan.cost import duration
from fedrec.plan.training_summary import training_summary
from tests.projects import Made


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return Made(tmp_path_factory.mktemp("summary")).project(datasets=["alpha", "gamma"])


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (1, "a core-minute"),
        (80, "a core-minute"),
        (300, "5 core-minutes"),
        (3600, "1.0 core-hours"),
        (108_360, "30.1 core-hours"),
    ],
)
def test_a_duration_is_reported_in_core_hours(seconds, said):
    assert duration(seconds) == said


def test_runs_are_counted_by_dataset_and_what_is_left_out_is_reported(project):
    runs = project.target("alpha_comparison").runs
    first, line, *missing = training_summary(project, runs, ["all"]).splitlines()
    assert first.startswith(f"Runs to train: {len(runs)}, about ")
    assert {run.paper for run in runs} == {"pfedclr", "pfedrec"}
    assert "alpha, settings of pfedclr: 2 (2 methods, 1 protocol, 1 seed), about" in line
    assert any(text.startswith("  left out: gamma: gamma.csv is not local") for text in missing)


def test_the_first_line_has_the_minutes_of_cores_and_of_a_gpu(project):
    (run, *_) = project.target("alpha_comparison").runs
    text = training_summary(project, [run], ["alpha_comparison"], cores=2)
    # One run has one core, however many there are.
    seconds = f"{round(project.job(run).seconds)} s on 2 cores"
    assert text.startswith(
        f"Runs to train: 1, about a core-minute on a CPU ({seconds}), or 3 s on a GPU (estimated).\n"
    )


def test_nothing_to_train_is_reported_too(project):
    assert training_summary(project, [], ["demo"]) == "Runs to train: none."
