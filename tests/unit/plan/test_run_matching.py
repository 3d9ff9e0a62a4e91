"""Runs among the results: which of them are current, and which are to be trained."""

import pytest

from fedrec.plan.fingerprint import run_fingerprint
from fedrec.plan.run_list import spec_of
from fedrec.plan.run_matching import RunMatcher, unfinished
from fedrec.plan.runs import FILES, SUMMARY
from fedrec.plan.target_names import runs_for_targets
from tests.planned_runs import finish, split
from tests.projects import Made


@pytest.fixture
def made(tmp_path):
    return Made(tmp_path)


@pytest.fixture
def project(made):
    return made.project()


@pytest.fixture
def run(project):
    (run,) = (run for run in runs_for_targets(project, ["demo"]) if run.method.startswith("fedmf"))
    return run


def match(project, run):
    """A run by the plan; a list of it is of the same opinion where both know the same split."""
    found = RunMatcher().match(project.spec(run))
    assert (unfinished(project, [run]) == []) == found.is_current
    return found


def match_of_list(project, run):
    listed = project.job(run).listed(project.results)
    (line,) = [listed.as_line()]
    assert "protocol" in line
    from_line = type(listed)("a line", type(listed.request).from_line(line))
    return RunMatcher().match(spec_of(from_line, project.methods, needs_model=True))


def test_a_run_that_is_not_there_is_unfinished_and_not_outdated(project, run):
    found = match(project, run)
    assert (found.is_current, found.is_outdated, found.missing) == (False, False, (SUMMARY,))


@pytest.mark.parametrize("engine", ["batched", "loop"])
def test_a_run_of_this_code_is_finished_whichever_engine_trained_it(project, run, engine):
    finish(project, run, engine=engine, code=run_fingerprint(run.method, engine), device="cuda")
    assert match(project, run).is_current
    assert match_of_list(project, run).is_current


@pytest.mark.parametrize(
    "changes",
    [
        {"code": "0" * 64},
        {"engine": "loop"},
        {"engine": "unknown here"},
        {"settings": {"d": 3}},
        {"seed": 7},
        {"method": "ncf"},
        {"paper": "fedem"},
        {"dataset": "alpha"},
        {"protocol": {"name": "clean"}},
        {"record": []},
        {"split": "another"},
        {"interactions": "others"},
    ],
    ids=lambda changes: "-".join(map(str, next(iter(changes.items())))),
)
def test_a_run_that_differs_in_anything_that_names_it_is_trained_again(project, run, changes):
    assert project.job(run).records, "it records something"
    finish(project, run, **changes)
    for found in (match(project, run), match_of_list(project, run)):
        assert (found.is_current, found.is_outdated, len(found.differences)) == (False, True, 1)


def edit_protocol(made, key, value):
    """The project once `clean` has another value."""
    (before,) = {getattr(made.project().protocol("clean"), key)} - {value}
    text = (made.folder / "config/protocols.yaml").read_text()
    head, clean, rest = text.partition("\nclean:")
    assert f"{key}: {before}" in rest
    made.write("config/protocols.yaml", head + clean + rest.replace(f"{key}: {before}", f"{key}: {value}", 1))
    return made.project()


@pytest.mark.parametrize(
    ("key", "value"), [("round_rule", "last"), ("ranked_score", "probability"), ("rank_ties", "target_last")]
)
def test_an_edit_of_a_protocol_that_leaves_its_splits_alone_outdates_its_runs(made, project, run, key, value):
    finish(project, run)
    edited = edit_protocol(made, key, value)
    assert match(edited, run).reason.startswith(f"it differs from the plan in its protocol: {key} (")
    # A list leaves the protocol to the split, which follows the edit once it is made again.
    assert match_of_list(edited, run).is_current
    split(edited, run)
    assert not match(edited, run).is_current
    assert match_of_list(edited, run).differences == match(edited, run).differences
    finish(edited, run)
    assert match(edited, run).is_current


def test_a_split_that_is_not_here_or_follows_an_older_protocol_judges_nothing(made, project, run):
    finish(project, run)
    file = project.spec(run).split
    for spoil in (
        lambda: split(project, run, split="another", protocol={"name": "clean"}),
        lambda: file.write_bytes(b"PAR1"),
        file.unlink,
    ):
        spoil()
        assert match(project, run).is_current
        assert not RunMatcher().has_split(project.spec(run))
    # It was never here, and the run of another protocol is none of the plan's all the same.
    assert not match(edit_protocol(made, "round_rule", "last"), run).is_current


@pytest.mark.parametrize("name", [file for file in FILES if file != SUMMARY])
def test_an_incomplete_run_is_to_be_trained_again(project, run, name):
    finish(project, run)
    (project.results / run.folder / name).unlink()
    found = match(project, run)
    assert (found.is_current, found.is_outdated, found.missing) == (False, True, (name,))


def test_a_run_with_a_damaged_summary_is_to_be_trained_again(project, run):
    finish(project, run)
    (project.results / run.folder / SUMMARY).write_text("{")
    found = match(project, run)
    assert (found.is_current, found.is_outdated, bool(found.damage)) == (False, True, True)
