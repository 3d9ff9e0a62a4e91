import pytest

from fedrec.errors import ConfigurationError
from fedrec.plan.target_names import runs_for_targets, validate_targets
from tests.projects import Made

RUN = "runs/pfedclr/demo/clean/popularity/seed0/run.json"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return Made(tmp_path_factory.mktemp("asked")).project()


def asked(project, *names):
    validate_targets(project, [name.replace("results", str(project.results), 1) for name in names])


def test_what_can_be_built_is_right(project):
    asked(project, "all", "tune", "splits", "benchmark", "pfedclr")
    asked(project, "demo_comparison", "results/tables/demo_comparison.md", "results/report/demo.html")
    asked(
        project,
        f"results/{RUN}",
        "results/data/alpha/clean/split.parquet",
        "results/data/alpha/statistics.json",
    )
    asked(project, "results/plan/demo.json", "results/raw/alpha.csv", "results/logs/prepare/alpha.log")
    asked(project, str(project.root / "config/config.yaml"))


@pytest.mark.parametrize(
    "words", ["$(touch ran)", "`touch ran`", ";touch ran;", "' touch ran '", "a\ntouch ran"]
)
@pytest.mark.parametrize(
    "path",
    [
        RUN.replace("pfedclr", "WORDS"),
        RUN.replace("demo", "WORDS"),
        RUN.replace("clean", "WORDS"),
        RUN.replace("popularity", "WORDS"),
        RUN.replace("popularity", "popularity@rounds-WORDS"),
        RUN.replace("seed0", "seedWORDS"),
        RUN.replace("run.json", "WORDS"),
        "data/WORDS/interactions.parquet",
        "data/demo/WORDS/split.parquet",
        "tables/WORDS.csv",
        "figures/WORDS.png",
        "report/WORDS.html",
        "plan/WORDS.json",
        "raw/WORDS",
        "WORDS/x",
    ],
)
def test_words_for_a_shell_name_nothing(project, path, words):
    with pytest.raises(ConfigurationError):
        asked(project, "results/" + path.replace("WORDS", words))


def test_runs_are_those_of_all_that_is_requested_each_once(project):
    named = runs_for_targets(project, ["demo"])
    assert named == runs_for_targets(
        project, ["demo", "demo_comparison", str(project.results / "report/demo.html")]
    )
    compared = runs_for_targets(project, ["demo_comparison"])
    pages = [[str(project.results / f"report/{page}.html")] for page in ("demo", "demo.runs")]
    assert runs_for_targets(project, pages[0]) == runs_for_targets(project, pages[1])
    assert compared == runs_for_targets(project, [str(project.results / "tables/demo_comparison.csv")])
    assert set(compared) < set(named)
    (one,) = runs_for_targets(project, [str(project.results / RUN)])
    assert f"{one.folder}/run.json" == RUN
    assert (
        runs_for_targets(project, [str(project.results / "data/alpha/clean/split.parquet"), "splits"]) == []
    )
