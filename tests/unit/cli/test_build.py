"""`fedrec build`: one table by its name, planned anew or by a plan that was kept."""

import json

import pytest

from fedrec.cli.main import main
from fedrec.files.checked_json import verified, with_checksum, write_checked_json
from fedrec.plan.target_names import runs_for_targets
from tests.planned_runs import finish
from tests.projects import Made, configuration, content_of, made_entries


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = Made(tmp_path)
    made.write("project.json", json.dumps(configuration()))
    return made


def build(*arguments):
    return main(["build", *map(str, arguments), "--project", "project.json", "--mirror", "mirror"])


def test_a_table_is_built_by_its_name(made):
    assert build("pfedrec_table4") == 0
    for ending in ("csv", "md", "tex", "json"):
        assert (made.folder / f"results/tables/pfedrec_table4.{ending}").is_file()


def test_a_plan_that_was_kept_is_built_as_it_says(made):
    plan = verified(made.project().target("pfedrec_table4").as_json())
    plan["content"]["artefact"]["title"] = "Another"
    made.write("plan.json", json.dumps(with_checksum(plan)))
    assert build("pfedrec_table4", "--plan", "plan.json") == 0
    kept = json.loads((made.folder / "results/plan/pfedrec_table4.json").read_text())
    assert kept["content"]["artefact"]["title"] == "Another"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pfedrec_tabel4"], "there is no target 'pfedrec_tabel4'. Did you mean 'pfedrec_table4'?"),
        (
            ["pfedrec_table4", "--plan", "no.json"],
            "no.json: no such file. Omit --plan to plan from the configuration.",
        ),
        (
            ["pfedrec_table4", "--plan", "project.json"],
            "Delete the file, and Snakemake writes it again; or omit --plan.",
        ),
        (
            ["pfedrec_table4", "--plan", "edited.json"],
            "its content does not match its checksum. Delete the file",
        ),
        (
            ["verdicts", "--plan", "plan.json"],
            "plan.json: is the plan of pfedrec_table4, not of verdicts.",
        ),
        (
            ["alpha_comparison"],
            "Build them with: snakemake --cores 2",
        ),
        (["audit_granularity"], "Build them with: snakemake --cores 2 audit_granularity"),
    ],
)
def test_what_cannot_be_built_is_one_message(made, capsys, arguments, message):
    plan = made.project().target("pfedrec_table4").as_json()
    made.write("plan.json", plan)
    made.write("edited.json", plan.replace("pfedrec_table4.csv", "pfedrec_table5.csv"))
    assert build(*arguments) == 1
    assert message in capsys.readouterr().err
    assert not (made.folder / "results/tables").exists()


@pytest.fixture
def finished(made):
    """The runs of a table, finished."""
    project = made.project()
    runs = runs_for_targets(project, ["alpha_comparison"])
    for run in runs:
        finish(project, run)
    return [project.results / run.folder for run in runs]


def test_a_damaged_run_is_named_with_the_command_that_trains_it_again(finished, capsys):
    (finished[1] / "run.json").write_text("{")
    assert build("alpha_comparison") == 1
    said = capsys.readouterr().err
    assert "alpha_comparison: 1 of its 4 runs do not match the plan" in said
    assert f"{finished[1].parts[-2]}/seed0: its run.json cannot be read: " in said
    assert said.endswith("Train them again with: fedrec run --cores 2 alpha_comparison\n")


@pytest.mark.usefixtures("finished")
def test_a_run_of_a_protocol_that_was_edited_since_is_not_tabulated(made, capsys):
    """The split of an edited rule has the same content, and the run the numbers of another round."""
    before, after = "round_rule: best_validation", "round_rule: last"
    text = (made.folder / "config/protocols.yaml").read_text()
    made.write("config/protocols.yaml", text.replace(before, after))
    assert text.count(before) > 0
    assert build("alpha_comparison") == 1
    assert "differs from the plan in its protocol: round_rule (best_validation there, last here)" in (
        capsys.readouterr().err
    )


def test_granularity_is_reported_from_statistics_alone(made):
    """No run is needed: what is asked is whether printed numbers are averages."""
    for dataset, paper in (("alpha", "pfedrec"), ("beta", "fedrap")):
        statistics = {"dataset": dataset, "users": 100, "splits": {f"published-{paper}": {"users": 100}}}
        write_checked_json(made.folder / f"results/data/{dataset}/statistics.json", statistics)
    made.set_entries(made_entries() | {"ml-100k": content_of("datasets.yaml")["ml-100k"]})
    assert build("audit_granularity") == 0
    lines = (made.folder / "results/tables/audit_granularity.md").read_text().splitlines()
    assert any("pfedrec" in line and "ml-100k" in line for line in lines)
