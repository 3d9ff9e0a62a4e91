"""The work that the reference lacks: step by step, each run once, without what is there."""

from dataclasses import replace

import pytest

from fedrec.config.configuration import read_configuration
from fedrec.errors import ConfigurationError
from fedrec.plan.fingerprint import run_fingerprint
from fedrec.plan.project import Project
from fedrec.plan.reference import PlannedRun, chosen, is_as_named, plan_text, reference_plan
from fedrec.plan.runs import RunId
from tests.conftest import ROOT

ORDER = [
    {"targets": ["pfedclr_table3"], "seeds": [0], "datasets": ["ml-100k"]},
    {"targets": ["pfedclr_table3"], "seeds": [0, 1]},
]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    files = [ROOT / "config/config.yaml", ROOT / "config/reference.yaml"]
    folder = tmp_path_factory.mktemp("reference")
    whole = Project.load(read_configuration(files, {"results": str(folder / "results")}), ROOT)
    # As if these were at hand, wherever the test runs.
    there = {"ml-100k": {}, "ml-1m": {}}
    gone = {name: {name: "not here"} for name in whole.catalogue if name not in there}
    with_order = {**whole.configuration, "reference": {**whole.configuration["reference"], "order": ORDER}}
    made = replace(whole, configuration=with_order)
    made._unavailable.update({**gone, **there})
    return made


def said_by(job):
    return {
        "method": job.run.method,
        "paper": job.run.paper,
        "dataset": job.run.dataset,
        "protocol": job.protocol,
        "seed": job.run.seed,
        "settings": dict(job.settings),
        "record": list(job.records),
        "engine": "fused",
        "code": run_fingerprint(job.run.method, "fused"),
    }


@pytest.fixture
def plan(project, monkeypatch):
    """The plan with these runs in the store; what is available is the same for all seeds."""
    monkeypatch.setattr(Project, "_unavailable", project._unavailable)
    return lambda stored: reference_plan(project, stored)


def test_steps_come_in_their_order_and_short_runs_first(plan):
    planned = plan({})
    runs = [one.job.run for one in planned]

    assert len(set(runs)) == len(runs)
    assert [one.step for one in planned] == sorted(one.step for one in planned)
    first = [one for one in planned if one.step == 1]
    assert {(one.job.run.dataset, one.job.run.seed) for one in first} == {("ml-100k", 0)}
    assert len(first) == 4, "two lines under both protocols"
    assert {(one.job.run.dataset, one.job.run.seed) for one in planned if one.step == 2} == {
        ("ml-100k", 1), ("ml-1m", 0), ("ml-1m", 1)
    }  # fmt: skip
    for step in (1, 2):
        seconds = [one.seconds for one in planned if one.step == step]
        assert seconds == sorted(seconds)
    assert "step 1: 4 runs" in plan_text(planned)


def test_what_is_stored_is_left_out_unless_its_code_is_another(plan):
    planned = plan({})
    there, outdated = planned[0].job, planned[1].job
    stored = {there.run: said_by(there), outdated.run: {**said_by(outdated), "code": "0ld"}}
    left = [one.job.run for one in plan(stored)]

    assert there.run not in left
    words = plan_text(plan(stored), stored)
    assert words.endswith(
        f"; 1 of them are stored, but outdated, not measured or without exact metrics, and {len(left) - 1} "
        "are not stored"
    )
    assert "stored" not in plan_text(planned, {})
    assert left == [one.job.run for one in planned if one.job.run != there.run]


def test_a_stored_run_of_another_protocol_is_trained_again_though_no_split_is_here(plan):
    job = plan({})[0].job
    said = said_by(job)
    assert job.run not in [one.job.run for one in plan({job.run: said})]
    other = {**said, "protocol": {**said["protocol"], "round_rule": "of another day"}}
    assert job.run in [one.job.run for one in plan({job.run: other})]


def test_a_run_is_as_named_while_its_method_settings_and_protocol_are_those_of_today(project, plan):
    said = said_by(plan({})[0].job)

    def named(**changes):
        return is_as_named({**said, **changes}, project.methods, project.protocols)

    assert named(code="0ld")
    assert not named(method="deleted")
    assert not named(settings={})
    assert not named(protocol={**said["protocol"], "rank_ties": "of another day"})
    assert not named(protocol={**said["protocol"], "name": "deleted"})


def test_a_stored_run_that_diverged_is_left_out_where_such_runs_are_kept(plan, project):
    planned = plan({})
    there = planned[0].job
    stored = {there.run: {**said_by(there), "diverged": {"round": 3, "why": "so"}}}

    assert project.configuration["diverged"] == "kept"
    assert there.run not in [one.job.run for one in plan(stored)]
    assert {one.job.request(project.results).diverged for one in planned} == {"kept"}
    refusing = replace(project, configuration={**project.configuration, "diverged": "refused"})
    assert there.run in [one.job.run for one in reference_plan(refusing, stored)]


@pytest.mark.usefixtures("plan")
def test_a_stored_run_inside_which_the_audit_would_look_is_left_out_once_it_did(project):
    order = [{"targets": ["audit_uploads"], "seeds": [0], "datasets": ["ml-100k"]}]
    reference = {**project.configuration["reference"], "order": order}
    audited = replace(project, configuration={**project.configuration, "reference": reference})
    jobs = [one.job for one in reference_plan(audited, {})]
    stored = {job.run: said_by(job) for job in jobs}

    def left(**measured):
        return {one.job.run for one in reference_plan(audited, stored, measured)}

    assert len(jobs) > 2
    assert left() == left(exposure={*stored}) == {*stored}
    assert left(uploads={*stored}) == set()
    assert left(uploads={*stored} - {jobs[0].run}) == {jobs[0].run}
    stored[jobs[0].run] = {**stored[jobs[0].run], "diverged": {"round": 3, "why": "so"}}
    assert left(uploads={*stored} - {jobs[0].run}) == set(), "there is no model of it"


@pytest.mark.usefixtures("plan")
def test_gaps_are_what_tables_have_nothing_of(project):
    order = [
        {"targets": ["ml-100k_comparison"], "seeds": [0]},
        {"targets": ["audit_uploads"], "seeds": [0], "datasets": ["ml-100k"]},
    ]
    reference = {**project.configuration["reference"], "order": order}
    both = replace(project, configuration={**project.configuration, "reference": reference})
    jobs = {one.job.run: one.job for one in reference_plan(both, {})}
    uploads = {run for run in jobs if "traffic" in jobs[run].records}
    looked = {*uploads} - {min(uploads)}
    absent, other, unruly = sorted({*jobs} - uploads)[:3]
    older = {run: {**said_by(job), "code": "0ld"} for run, job in jobs.items() if run != absent}
    older[other]["settings"] = {**older[other]["settings"], "rounds": 7}
    older[unruly]["protocol"] = {**older[unruly]["protocol"], "round_rule": "of another day"}

    found = reference_plan(both, older, {"uploads": looked}, gaps=True)
    assert {one.job.run: one.step for one in found} == {absent: 1, other: 1, unruly: 1, min(uploads): 2}
    assert all(one.job.records == jobs[one.job.run].records for one in found)
    assert len(reference_plan(both, older, {"uploads": looked})) == len(jobs)


def ordered(project, *steps):
    """The project with these steps alone."""
    reference = {**project.configuration["reference"], "order": list(steps)}
    return replace(project, configuration={**project.configuration, "reference": reference})


@pytest.mark.usefixtures("plan")
def test_runs_without_ranks_among_all_items_are_left_where_a_table_or_verdict_reads_them(project):
    steps = (
        {"targets": ["pfedclr_table3", "verdicts_pfedclr"], "seeds": [0], "datasets": ["ml-100k"]},
        {"targets": ["audit_protocols"], "seeds": [0], "datasets": ["ml-100k"]},
    )
    asked = ordered(project, *steps)
    jobs = {one.job.run: one.job for one in reference_plan(asked, {})}
    stored = {run: said_by(job) for run, job in jobs.items()}
    read = {one.job.run for one in reference_plan(ordered(project, steps[0]), {})}
    has_ranks = min(read)

    assert reference_plan(asked, stored) == reference_plan(asked, stored, gaps=True) == []
    for gaps in (False, True):
        left = reference_plan(asked, stored, gaps=gaps, exact={has_ranks})
        assert {one.job.run for one in left} == read - {has_ranks}
    assert read < {*jobs}, "switches are looked at without them"


@pytest.mark.usefixtures("plan")
def test_a_step_of_other_protocols_has_the_runs_under_clean_under_these(project):
    step = {"targets": ["pfedclr_table3"], "seeds": [0], "datasets": ["ml-100k"]}
    clean = {
        one.job.run for one in reference_plan(ordered(project, step), {}) if one.job.run.protocol == "clean"
    }
    planned = reference_plan(ordered(project, step, {**step, "protocols": ["neutral", "clean-1"]}), {})

    first, second = ({one.job.run for one in planned if one.step == step} for step in (1, 2))
    assert {run.protocol for run in first} == {"published-pfedclr", "clean"}
    assert second == {replace(run, protocol=name) for run in clean for name in ("neutral", "clean-1")}
    (job,) = [one.job for one in planned if one.job.run == replace(min(clean), protocol="neutral")]
    assert job.protocol["negative_pool"] == "exclude_train_and_candidates"
    with pytest.raises(ConfigurationError, match=r"unknown protocol 'neutrl'\. Did you mean 'neutral'"):
        reference_plan(ordered(project, {**step, "protocols": ["neutrl"]}), {})


@pytest.mark.usefixtures("plan")
def test_a_step_of_a_protocol_that_needs_times_leaves_out_datasets_without(project, monkeypatch):
    monkeypatch.setattr(
        Project,
        "_unavailable",
        {**project._unavailable, "filmtrust": {}, "douban-book": {}, "lastfm-2k-b": {}},
    )
    step = {"targets": ["pfedclr_table1", "plgc_table2"], "seeds": [0], "protocols": ["clean", "temporal"]}
    planned = [one.job.run for one in reference_plan(ordered(project, step), {})]
    under_clean, under_temporal = (
        {run.dataset for run in planned if run.protocol == protocol} for protocol in step["protocols"]
    )
    assert under_clean == {"ml-100k", "ml-1m", "filmtrust", "douban-book", "lastfm-2k-b"}
    assert under_temporal == {"ml-100k", "ml-1m"}


@pytest.mark.usefixtures("plan")
def test_further_protocols_are_requested_by_name_alone(project):
    """The reference shows a column of them where there are runs, and its other steps ask for none."""
    assert "neutral" in project.configuration["protocols"]
    step = {"targets": ["ml-100k_comparison", "pfedclr_table1"], "seeds": [0], "datasets": ["ml-100k"]}
    planned = reference_plan(ordered(project, step), {})
    assert {one.job.run.protocol for one in planned} == {"published-pfedclr", "clean"}


def test_a_run_that_recorded_less_than_is_needed_is_trained_again(plan):
    planned = plan({})
    recording = next(one.job for one in planned if one.job.records)

    assert recording.run in [
        one.job.run for one in plan({recording.run: {**said_by(recording), "record": []}})
    ]


def test_runs_are_chosen_by_dataset_method_seed_and_time_and_keep_their_order(project, plan):
    planned = plan({})

    def named(**wanted):
        return [one.job.run for one in chosen(project, planned, **wanted)]

    every = [one.job.run for one in planned]
    methods = {run.method for run in every}
    assert named() == every
    assert named(datasets=["ml-1m"]) == [run for run in every if run.dataset == "ml-1m"] != []
    assert named(seeds=[1, 7]) == [run for run in every if run.seed == 1] != []
    one, *others = sorted(methods)
    assert others
    assert {run.method for run in named(methods=[one.split("[")[0]])} >= {one}
    assert named(methods=["popularity"]) == []
    first = sum(run.seconds for run in planned[:3])
    assert named(minutes=(first + 0.1) / 60) == every[:3]
    of_seed = [one for one in planned if one.job.run.seed == 1]
    assert named(seeds=[1], minutes=(of_seed[0].seconds + 0.1) / 60) == [of_seed[0].job.run]


def test_a_method_is_chosen_with_whatever_settings_are_changed_and_without_other_plug_ins(project):
    job = project.job(RunId("plgc", "ml-100k", "clean", "fedmf", 0))
    names = ("fedmf", "fedmf[d=8]", "fedmf+plgc", "fedmf+plgc[beta=0.3]")
    planned = [PlannedRun(replace(job, run=replace(job.run, method=name)), 1, 1.0) for name in names]
    for wanted, expected in (("fedmf", names[:2]), ("fedmf+plgc", names[2:])):
        kept = chosen(project, planned, methods=[wanted])
        assert tuple(one.job.run.method for one in kept) == expected


def test_a_dataset_or_method_that_there_is_not_is_no_empty_list(project):
    with pytest.raises(ConfigurationError, match=r"unknown dataset 'ml-100'.*ml-100k"):
        chosen(project, [], datasets=["ml-100"])
    with pytest.raises(ConfigurationError, match=r"unknown method 'fedfm'"):
        chosen(project, [], methods=["fedfm"])


def test_a_configuration_without_a_reference_gets_advice(project):
    plain = {key: value for key, value in project.configuration.items() if key != "reference"}

    with pytest.raises(ConfigurationError, match=r"--configfile config/reference\.yaml"):
        reference_plan(replace(project, configuration=plain), {})
