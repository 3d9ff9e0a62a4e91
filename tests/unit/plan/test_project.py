"""What is to be built, by name: targets and groups, the runs behind them, and what an edit would re-run."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import yaml

from fedrec.config import printed
from fedrec.config.catalogue import load_catalogue
from fedrec.config.methods import load_methods
from fedrec.config.protocol import short_name
from fedrec.config.records import merged_records
from fedrec.errors import ConfigurationError
from fedrec.files.checked_json import write_checked_json
from fedrec.plan import runs as runs_module
from fedrec.plan.artefact_status import artefact_status, artefact_text, list_artefacts
from fedrec.plan.cost import seconds_of
from fedrec.plan.run_matching import RunMatcher
from fedrec.plan.runs import RunId, papers_in
from fedrec.plan.selection import claim_conditions
from fedrec.plan.target_names import with_attacked_runs
from fedrec.plan.targets import Target, splits_of
from fedrec.plan.training_summary import training_summary
from fedrec.plan.workspace import Stored
from tests.conftest import ROOT, entry
from tests.planned_runs import finish
from tests.projects import AUDIT, Made, configuration, content_of, made_entries

PAPERS = ("pfedclr", "pfedrec", "fedem", "plgc", "fedrap")


@pytest.fixture
def made(tmp_path):
    return Made(tmp_path)


@pytest.fixture
def with_movielens(made):
    """A project in which ml-100k is available."""
    made.set_entries(made_entries() | {"ml-100k": made_entries()["alpha"] | {"distinct_pairs": True}})
    return made


def plans(project, *groups):
    """Everything that decides each target of some groups, by name."""
    return {target.name: target.as_json() for group in groups for target in project.group(group)}


def jobs(project, *groups):
    """Everything that decides each run of some groups."""
    runs = {run for group in groups for target in project.group(group) for run in target.runs}
    return {run: project.job(run) for run in runs}


def changed(before, after):
    return {name for name in before if before[name] != after[name]}


# Names


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dataset": ["alpha"]}, "unknown key 'dataset'. Did you mean 'datasets'?"),
        ({"datasets": ["alfa"]}, "unknown dataset 'alfa'. Did you mean 'alpha'?"),
        ({"protocols": ["cleen"]}, "unknown protocol 'cleen'. Did you mean 'clean'?"),
        ({"methods": ["fedfm"]}, "unknown method 'fedfm'. Did you mean 'fedmf'?"),
        ({"methods": ["fedmf[dd=8]"]}, "fedmf has no setting 'dd'. Did you mean 'd'?"),
        ({"methods": ["mf[d=8]", "mf[d=08]"]}, "'mf[d=8]' and 'mf[d=08]' are both mf[d=8]. Keep one."),
        ({"paper": "pfedcrl"}, "unknown paper 'pfedcrl'. Did you mean 'pfedclr'?"),
        ({"artefacts": ["pfedclr_tabel1"]}, "Did you mean 'pfedclr_table1'?"),
        ({"paper_datasets": ["alfa"]}, "unknown dataset 'alfa'. Did you mean 'alpha'?"),
        (
            {"audit": {"methods": ["mf"], "switches": ["pol"], "uploads": ["fedmf"]}},
            "audit.switches[0]: 'pol' (text) is not allowed. Did you mean 'pool'? Write one of: pool, repeats",
        ),
    ],
)
def test_a_typo_in_the_configuration_is_one_message(made, change, message):
    with pytest.raises(ConfigurationError) as error:
        made.project(**change)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("pfedclr_tabel1", "pfedclr_table1"),
        ("verdict", "verdicts"),
        ("alpha_comparision", "alpha_comparison"),
        ("audit_protocol", "audit_protocols"),
        ("pfedlcr", "pfedclr"),
    ],
)
def test_a_mistyped_target_names_the_nearest(made, name, nearest):
    with pytest.raises(ConfigurationError, match=f"there is no target '{name}'. Did you mean '{nearest}'"):
        made.project().group(name)


def test_a_layout_that_is_none_is_an_error_of_the_artefact(made):
    made.replace("config/papers/plgc.yaml", "layout: sweep", "layout: sweeep")
    with pytest.raises(ConfigurationError, match=r"unknown layout 'sweeep'. Did you mean 'sweep'"):
        made.project()


def test_every_group_and_target_can_be_planned(with_movielens):
    project = with_movielens.project(artefacts=list(PAPERS), datasets=["alpha", "beta", "ml-100k"])
    for group in project.groups:
        assert project.files(group), group
        for target in project.group(group):
            assert Target.from_json(target.as_json()) == target
    everything = project.files("all")
    for name in ("tables/alpha_comparison.csv", "figures/beta_convergence.png", "report/report.html"):
        assert name in everything
    assert {"tables/verdicts.md", "plan/verdicts.json", "figures/audit_ranks.pdf"} <= set(everything)
    assert set(project.files("demo")) >= {"report/demo.html", "tables/demo_statistics.tex"}
    assert set(project.files("datasets")) == {
        "tables/dataset_statistics.csv", "tables/dataset_statistics.md", "tables/dataset_statistics.tex",
        "tables/dataset_statistics.json", "plan/dataset_statistics.json",
    }  # fmt: skip


def test_every_name_a_user_types_is_a_rule(made):
    names = made.project().names_for_rules()
    assert {"pfedclr", "pfedclr_table1", "audit_pfedclr", "verdicts", "verdicts_fedem", "report"} <= set(
        names
    )
    assert not {"all", "audit", "demo"} & set(names)
    assert len(names) == len(set(names))


def test_tables_of_a_dataset_with_hyphens_in_its_name_are_rules(with_movielens):
    names = with_movielens.project().names_for_rules()
    assert {"ml-100k_comparison", "quick_ml-100k_comparison", "alpha_comparison"} <= set(names)


def test_files_of_every_target_have_their_forms_pattern(made):
    project = made.project()
    assert "pfedclr_table1" in project.pattern("table").split("|")
    assert "pfedclr_fig10" in project.pattern("figure").split("|")
    assert set(project.pattern("page").split("|")) == {"report", "demo", "quick"}
    assert len(project.pattern().split("|")) == len(project.targets.names)


def test_a_target_belongs_to_a_chapter(made):
    project = made.project()
    assert project.chapter_of("pfedclr_table1") == "PFedCLR"
    assert project.chapter_of("audit_protocols_fedem") == project.chapter_of("verdicts") == "Audit"
    assert project.chapter_of("alpha_comparison") == "alpha"


# Runs


def test_a_comparison_is_of_every_method_under_both_protocols(made):
    target = made.project().target("beta_comparison")
    assert target.runs == tuple(
        RunId("fedrap" if name.startswith("published") else "pfedclr", "beta", name, method, 0)
        for method in ("popularity", "draw-counter[rounds=2]")
        for name in ("published-fedrap", "clean")
    )
    assert target.inputs == tuple(f"{run.folder}/run.json" for run in target.runs)
    assert target.content["dataset"] == "beta"


def test_a_comparison_has_further_protocols_where_they_are_named(with_movielens):
    """The first look of the default configuration stays as it is, and what is about the leak has no third."""
    more = {"protocols": ["published", "clean", "neutral", "clean-1", "published-fedrap"]}
    plain, named = with_movielens.project(), with_movielens.project(**more)

    def protocols(project, target):
        return {run.protocol for run in project.target(target).runs}

    for target in ("beta_comparison", "beta_slope"):
        assert protocols(plain, target) == {"published-fedrap", "clean"}
        assert protocols(named, target) == {"published-fedrap", "clean", "neutral", "clean-1"}
    asked = {"pfedclr_table1": {"neutral", "clean-1"}, "verdicts_pfedclr": {"neutral"}}
    for target in ("pfedclr_table1", "pfedclr_table2", "audit_exposure", "verdicts_pfedclr"):
        besides = protocols(named, target) - protocols(plain, target)
        assert besides == asked.get(target, set()), target
    assert content_of("config.yaml")["protocols"] == ["published", "clean"]


def test_a_papers_table_trains_what_it_shows_on_data_that_is_available(with_movielens):
    target = with_movielens.project().target("pfedclr_table1")
    assert {run.dataset for run in target.runs} == {"ml-100k"}
    assert {run.protocol for run in target.runs} == {"published-pfedclr", "clean"}
    assert {"fedmf", "pfedclr", "lightgcn"} <= {run.method for run in target.runs}
    assert "hetrec2011" in target.content["unavailable"]


def test_a_papers_table_may_be_of_some_of_its_datasets(made):
    """It says why of the others; what is compared, and by no paper, is as it was."""
    alpha = made_entries()["alpha"] | {"distinct_pairs": True}
    made.set_entries(made_entries() | {"ml-100k": alpha, "filmtrust": alpha})
    whole, part = made.project(), made.project(paper_datasets=["ml-100k"])
    for name in ("pfedclr_table1", "pfedclr_fig7", "verdicts_pfedclr"):
        of_whole, of_part = (project.target(name) for project in (whole, part))
        assert {run.dataset for run in of_whole.runs} == {"ml-100k", "filmtrust"}, name
        assert set(of_part.runs) == {run for run in of_whole.runs if run.dataset == "ml-100k"}, name
        why = of_part.content["unavailable"]["filmtrust"]
        assert why == "not in `paper_datasets` of the configuration"
    assert "filmtrust" in artefact_status(part, part.artefact_named("pfedclr_table1")).unavailable
    assert {run.dataset for run in part.target("audit_protocols_pfedclr").runs} == {"ml-100k"}
    assert jobs(whole, "all") == jobs(part, "all")
    # A figure on another dataset alone is none of the paper's that is built.
    (other, *_) = (one for one in part.papers["pfedclr"].artefacts.values() if one.datasets == ("filmtrust",))
    assert other.target in whole.groups["pfedclr"]
    assert other.target not in part.groups["pfedclr"]


def test_the_audit_trains_the_steps_between_protocols(with_movielens):
    """That of the configuration, and those of papers: on ml-100k, the one dataset of theirs that is here."""
    project = with_movielens.project()
    groups = ("audit", *(f"audit_{paper}" for paper in PAPERS))
    runs = {run for group in groups for target in project.group(group) for run in target.runs}
    # Clean runs are shared by papers that train alike.
    steps = {
        dataset: {(run.paper, short_name(run.protocol)) for run in runs if run.dataset == dataset and run.protocol != "clean"}
        for dataset in ("alpha", "beta", "ml-100k")
    }  # fmt: skip
    assert steps["alpha"] == {("pfedrec", "published"), ("pfedrec", "only-pool")}
    assert steps["beta"] == {("fedrap", "published"), ("fedrap", "only-pool")}
    every = {"published", "only-pool", "only-lists", "only-ties", "only-order", "upto-lists", "upto-ties"}
    for paper in PAPERS:
        # PFedRec's lists are those of clean.
        expected = every - ({"only-lists", "upto-lists"} if paper == "pfedrec" else set())
        assert {step for of, step in steps["ml-100k"] if of == paper} == expected
    assert {run.dataset for run in runs if run.protocol == "clean"} == {"alpha", "beta", "ml-100k"}


def test_the_audit_shows_the_runs_that_are_trained(made):
    """Those of the demonstration have rounds of their own; where no uploads are attacked_runs, none are shown."""
    project = made.project(datasets=["alpha", "demo"], rounds=3, audit=AUDIT | {"uploads": []})
    names = project.groups["audit"]
    assert "audit_uploads" not in names
    assert {"audit_exposure", "audit_granularity", "audit_protocols", "audit_ranks"} <= set(names)
    assert "verdicts" not in names, "no claim is about these datasets"
    steps = {one["dataset"]: one for one in project.target("audit_protocols").content["steps"]}
    assert steps["alpha"]["paper"] == "pfedrec"
    assert steps["alpha"]["methods"] == ["popularity", "draw-counter[rounds=3]"]
    assert steps["demo"]["methods"] == ["popularity", "draw-counter[rounds=2]"]


def test_methods_are_compared_under_the_protocols_that_are_named_alone(made):
    def protocols(target, *named):
        project = made.project(datasets=["alpha"], protocols=[*named])
        return {short_name(run.protocol) for run in project.target(target).runs}

    assert protocols("alpha_comparison", "clean") == {"clean"}
    assert protocols("alpha_comparison", "published-pfedclr", "clean") == {"published", "clean"}
    assert protocols("alpha_comparison", "clean", "neutral") == {"clean", "neutral"}
    assert protocols("audit_significance", "clean") == {"clean"}


def test_the_first_look_has_the_tables_of_all_with_its_own_rounds(made):
    project = made.project(datasets=["alpha"], rounds=None, quick_rounds=7, artefacts=["pfedclr_table1"])
    quick, every = project.groups["quick"], project.groups["all"]
    own = {name.removeprefix("quick_") for name in quick} - {"quick"}
    assert own == {*every} - {"report", "pfedclr_table1"}
    compared = project.target("quick_alpha_comparison")
    assert {run.method for run in compared.runs} == {"popularity", "draw-counter[rounds=7]"}
    assert {run.method for run in project.target("alpha_comparison").runs} == {"popularity", "draw-counter"}
    uploads = project.target("quick_audit_uploads")
    assert [project.job(run).records for run in uploads.runs] == [("traffic",)]
    assert project.target("quick").content["prefix"] == "quick_"
    # It is never longer than all.
    shorter = made.project(datasets=["alpha"], rounds=3, quick_rounds=7)
    assert shorter.target("quick").runs == shorter.target("report").runs


def test_the_audit_reads_what_it_looks_into(made):
    project = made.project()
    exposure = project.target("audit_exposure")
    assert {short_name(run.protocol) for run in exposure.runs} == {"published", "only-pool", "clean"}
    assert f"{exposure.runs[0].folder}/state.safetensors" in exposure.reads
    uploads = project.target("audit_uploads")
    assert {(run.method, run.protocol) for run in uploads.runs} == {("fedmf[rounds=2]", "clean")}
    assert project.target("audit_granularity").reads == (
        "data/alpha/statistics.json", "data/beta/statistics.json",
    )  # fmt: skip


def test_verdicts_of_a_paper_are_judged_by_its_own_rounds(with_movielens):
    project = with_movielens.project()
    target = project.target("verdicts_pfedclr")
    assert (target.content["papers"], target.content["rounds"]) == (["pfedclr"], None)
    assert all("rounds" not in run.method for run in target.runs)
    assert project.target("verdicts").content["rounds"] == 2


def test_verdicts_ask_for_runs_under_protocols_that_the_configuration_names(with_movielens):
    """Under the published protocol and the clean one they always do."""
    for named, protocols in (
        (["published"], {"published-pfedclr", "clean"}),
        (["published", "clean"], {"published-pfedclr", "clean"}),
    ):
        target = with_movielens.project(protocols=named).target("verdicts_pfedclr")
        assert {run.protocol for run in target.runs} == protocols
        assert [one["key"] for one in target.content["conditions"]] == ["clean"]
    project = with_movielens.project(protocols=["published", "clean", "neutral"])
    target = project.target("verdicts_pfedclr")
    assert {run.protocol for run in target.runs} == {"published-pfedclr", "clean", "neutral"}
    assert [one["key"] for one in target.content["conditions"]] == ["clean", "neutral"]
    # What the configuration trains anyway is not under the protocol, so that these ask for none of it.
    assert {run.protocol for run in project.target("verdicts").runs} <= {"published-pfedclr", "clean"}


def test_at_one_time_only_datasets_with_times_are_requested(made):
    """Those without are left out, which the summary of what is trained says."""
    entries = made_entries()
    entries["beta"]["time"] = "constant"
    made.set_entries(entries)
    project = made.project(protocols=["published", "clean", "temporal"])
    protocols = {
        name: {run.protocol for run in project.target(f"{name}_comparison").runs}
        for name in ("alpha", "beta")
    }
    assert protocols == {
        "alpha": {"published-pfedrec", "clean", "temporal"},
        "beta": {"published-fedrap", "clean"},
    }
    assert project.splits(["alpha", "beta"], ["temporal"]) == splits_of("alpha", ["temporal"])
    assert project.unavailable(["alpha", "beta"]) == {
        "beta/temporal": "it has no times, and the protocol splits all users at one time"
    }
    assert "beta/temporal" in training_summary(project, [], ["beta_comparison"])
    assert "beta/temporal" not in training_summary(project, [], ["alpha_comparison"])
    assert made.project().unavailable(["beta"]) == {}
    parts = {"paper": "fedrap", "protocol": "temporal", "method": "fedmf", "seed": "0"}
    assert project.run_at(dataset="alpha", **parts).protocol == "temporal"
    with pytest.raises(ConfigurationError, match="beta cannot be split by 'temporal': it has no times"):
        project.run_at(dataset="beta", **parts)


def test_where_nothing_is_trained_verdicts_are_under_the_protocols_that_there_are_runs_of(made):
    project = made.project()
    runs = [
        RunId("pfedclr", "ml-100k", name, "pfedclr", 0) for name in ("published-pfedclr", "clean", "neutral")
    ]
    for there, keys in ((runs[:2], ["clean"]), (runs, ["clean", "neutral"]), ([], ["clean"])):
        stored = replace(project, stored=Stored(frozenset(there)))
        assert [one.key for one in claim_conditions(stored) if not one.tuned] == keys


def test_a_run_records_for_figures_and_for_the_attack(with_movielens):
    project = with_movielens.project(datasets=["ml-100k"], rounds=None)
    attacked_runs = project.target("audit_uploads").runs
    assert all("traffic" in project.job(run).records for run in attacked_runs)
    drawing = [
        one
        for one in project.papers["pfedclr"].artefacts.values()
        if "ml-100k" in one.datasets and one.record
    ]
    assert drawing
    for artefact in drawing:
        for run in project.target(artefact.target).runs:
            recorded = merged_records(project.job(run).records)
            wanted = merged_records(artefact.record)
            assert all(set(users) <= set(recorded[what]) for what, users in wanted.items())
    plain = RunId("pfedclr", "ml-100k", "clean", "popularity", 0)
    assert project.job(plain).records == ()


def test_a_run_writes_a_large_model_where_a_target_looks_inside(with_movielens, monkeypatch):
    """A finished run is trained again for it only where such a target is asked for; what was asked for stays."""
    project = with_movielens.project(datasets=["ml-100k"], rounds=None)
    inside = project.target("audit_exposure").runs[0]
    outside = RunId("pfedclr", "ml-100k", "clean", "fedcia", 0)
    assert (project.job(inside).model, project.job(outside).model) == ("always", "small")
    assert project.job(inside).arguments()[-2:] == ["--model", "always"]
    listed = project.job(inside).listed(project.results).as_line()
    assert listed["model"] == "always"

    def model_of(run, *targets, **said):
        finish(project, run, **said)
        fresh = with_movielens.project(datasets=["ml-100k"], rounds=None)
        asked = with_attacked_runs(fresh, targets) if targets else fresh
        found = asked.job(run).model, RunMatcher().match(asked.spec(run)).is_current
        shutil.rmtree(project.results / run.folder)
        return found

    left_out = {"model": "not kept"}
    # A small one that was left out is wanted: run.scores reads it.
    assert model_of(outside, **left_out) == ("small", False)
    monkeypatch.setattr(runs_module, "LARGE_MODEL", 11)  # those of `finish` have 12 bytes
    assert model_of(inside) == ("small", True)
    assert model_of(inside, "audit_exposure") == ("small", True)
    assert model_of(inside, "audit_exposure", **left_out) == ("always", False)
    assert model_of(inside, "ml-100k_comparison", **left_out) == ("small", True)
    file = f"{project.results}/{inside.folder}/state.safetensors"
    assert model_of(inside, file, **left_out) == ("always", False)
    assert model_of(inside, "ml-100k_comparison", model="kept on request") == ("always", True)
    assert model_of(outside, **left_out) == ("small", True)


def test_a_job_is_what_training_is_called_with(made):
    project = made.project()
    run = RunId("pfedrec", "alpha", "published-pfedrec", "fedmf[d=8]", 3)
    job = project.job(run)
    assert job.arguments() == [
        "--method", "fedmf[d=8]", "--paper", "pfedrec", "--protocol", "published-pfedrec", "--seed", "3",
    ]  # fmt: skip
    assert (job.data, job.reads[0]) == ("data/alpha", "data/alpha/published-pfedrec/split.parquet")
    assert job.settings["d"] == 8
    assert len(job.fingerprint) == 64
    assert job.seconds > 0


def test_no_method_is_trained_under_a_second_protocol_before_all_are_under_the_clean_one(made):
    """Their kernels are compiled by then; and of equals the longest comes first."""
    order = sorted(jobs(made.project(), "all").values(), key=lambda job: -job.priority)
    by_wave = [job.run.protocol == "clean" for job in order]
    assert by_wave == sorted(by_wave, reverse=True)
    assert len(set(by_wave)) == 2
    for wave in (True, False):
        seconds = [job.seconds for job, clean in zip(order, by_wave, strict=True) if clean is wave]
        assert seconds == sorted(seconds, reverse=True)


def test_who_opens_most_models_is_built_first(made):
    project = made.project()
    targets = [project.target(name) for name in ("audit_exposure", "audit_uploads", "audit_significance")]
    exposure, uploads, significance = (target.priority for target in targets)
    assert exposure == len(targets[0].runs)
    assert exposure > uploads > significance == 0


def test_a_run_that_recorded_more_than_is_needed_stays_as_it_is(made):
    project = made.project()
    run = RunId("pfedclr", "alpha", "clean", "fedmf", 0)
    before = project.job(run).records
    path = project.results / run.folder / "run.json"
    write_checked_json(path, {"record": ["traffic", "abundance"]})
    after = made.project().job(run).records
    assert set(after) == {*before, "traffic", "abundance"}
    path.write_text(path.read_text().replace("traffic", "traffix"))
    assert made.project().job(run).records == before


def test_a_path_of_an_unknown_paper_is_refused(made):
    parts = {"dataset": "demo", "protocol": "clean", "method": "fedmf", "seed": "0"}
    with pytest.raises(ConfigurationError, match=r"unknown paper 'pfedclrr'. Did you mean 'pfedclr'"):
        made.project().run_at(paper="pfedclrr", **parts)


def test_a_paper_may_have_a_protocol_and_nothing_else(made):
    text = (made.folder / "config/protocols.yaml").read_text()
    own = yaml.safe_load(text)["published-pfedrec"]
    made.write("config/protocols.yaml", text + "\n" + yaml.safe_dump({"published-mine": own}))
    made.set_entries(made_entries() | {"alpha": entry("alpha.csv", papers=["mine"])})
    project = made.project(datasets=["alpha"])
    runs = {run for target in project.group("alpha_comparison") for run in target.runs}
    assert {run.paper for run in runs if run.protocol == "published-mine"} == {"mine"}
    parts = {"paper": "mine", "dataset": "alpha", "protocol": "published-mine", "seed": "0"}
    assert project.run_at(**parts, method="fedmf").paper == "mine"


def test_a_path_names_its_run_in_one_spelling(made):
    project = made.project()
    parts = {"paper": "pfedclr", "dataset": "demo", "protocol": "clean", "seed": "0"}
    assert project.run_at(**parts, method="fedmf@d-8@rounds-3").method == "fedmf[d=8][rounds=3]"
    for method, message in [
        ("fedmf@rounds-03", "write 'fedmf@rounds-03' in a path as 'fedmf@rounds-3'"),
        ("fedfm", "unknown method 'fedfm'. Did you mean 'fedmf'?"),
        (
            "fedmf@d",
            "'fedmf@d' is not the folder of a method; write fedmf+plgc@beta-0.3 for fedmf+plgc[beta=0.3].",
        ),
    ]:
        with pytest.raises(ConfigurationError, match=re.escape(message)):
            project.run_at(**parts, method=method)
    with pytest.raises(ConfigurationError, match="'published-fedem' is not a protocol of pfedclr"):
        project.run_at(**parts | {"protocol": "published-fedem"}, method="fedmf")


# Data that is not available


def test_what_is_unavailable_is_left_out_of_groups_and_listed(made):
    project = made.project(datasets=["alpha", "gamma"])
    assert project.available(["alpha", "gamma"]) == ["alpha"]
    statistics = project.target("dataset_statistics")
    assert (
        "gamma.csv is not local: fedrec looked in the project's folder, results/raw and the mirror"
        in statistics.content["unavailable"]["gamma"]
    )
    assert "data/gamma/statistics.json" not in statistics.reads
    assert {run.dataset for run in project.target("audit_exposure").runs} == {"alpha"}
    assert {run.dataset for run in project.target("report").runs} == {"alpha"}
    # Asked for by name it is planned all the same, and its fetching says what to do.
    assert {run.dataset for run in project.target("gamma_comparison").runs} == {"gamma"}


def test_without_any_data_there_is_no_audit(made):
    assert made.project(datasets=["gamma"]).groups["audit"] == []


def test_a_split_whose_row_order_is_unavailable_is_left_out(made):
    ordered = entry("alpha.csv", papers=["pfedrec", "fedrap"])
    ordered["row_orders"] = {"pfedrec": ordered["interactions"] | {"path": "alpha-by-pfedrec.csv"}}
    made.set_entries(made_entries() | {"alpha": ordered})
    project = made.project(datasets=["alpha"])
    assert project.protocols_of("alpha", ["published", "clean"]) == ["published-fedrap", "clean"]
    assert project.paper_of("alpha") == "fedrap"
    assert (
        "alpha-by-pfedrec.csv is not local"
        in project.target("selected_statistics").content["unavailable"]["alpha/published-pfedrec"]
    )
    assert len(project.raw_files("alpha")) == 1
    made.write("mirror/alpha-by-pfedrec.csv", "1,1,1,1\n")
    assert made.project(datasets=["alpha"]).protocols_of("alpha", ["published"]) == [
        "published-pfedrec", "published-fedrap",
    ]  # fmt: skip
    assert len(made.project(datasets=["alpha"]).raw_files("alpha")) == 2


def test_an_artefact_without_data_is_not_built_and_one_that_needs_none_is(made):
    project = made.project()
    assert project.files("pfedclr_table1") == []
    # Learning rates are printed and chosen, not trained.
    assert "tables/pfedrec_table4.csv" in project.files("pfedrec_table4")
    assert "pfedrec_table4" in project.groups["pfedrec"]


def test_how_far_a_paper_is(with_movielens):
    project = with_movielens.project()
    artefact = project.artefact_named("pfedclr_table1")
    found = artefact_status(project, artefact)
    assert (found.built, found.done) == (False, 0)
    assert found.runs == project.target("pfedclr_table1").runs
    assert "ml-1m" in found.unavailable
    finish(project, found.runs[0])
    finish(project, found.runs[1], code="0" * 64)
    after = artefact_status(project, artefact)
    assert after.unfinished == {*found.runs[1:]}
    assert after.seconds < found.seconds
    text = list_artefacts(project, [artefact])
    assert text.startswith("PFedCLR: snakemake --cores 2 pfedclr\n  pfedclr_table1")
    assert f"  left out: ml-1m: {found.unavailable['ml-1m']}\n" in text
    assert "FedRAP" not in text
    assert "in the reference runs" not in text


def test_what_the_reference_has_of_a_paper_is_reported(with_movielens):
    project = with_movielens.project()
    table = project.root / "results/reference/tables/pfedclr_table1.md"
    table.parent.mkdir(parents=True)
    table.write_text("")
    artefact = project.artefact_named("pfedclr_table1")
    line = "in the reference runs: results/reference/tables/pfedclr_table1.md"
    assert line in list_artefacts(project, [artefact])
    assert line in artefact_text(project, artefact, cores=2)


# What an edit re-runs


def test_editing_an_entrys_title_changes_tables_of_statistics_alone(made):
    before = made.project()
    entries = made_entries()
    made.set_entries(entries | {"alpha": entries["alpha"] | {"title": "Another"}})
    after = made.project()
    assert changed(plans(before, "all", "datasets"), plans(after, "all", "datasets")) == {
        "selected_statistics", "dataset_statistics",
    }  # fmt: skip
    assert before.catalogue["alpha"].recipe() == after.catalogue["alpha"].recipe()


def test_editing_one_setting_re_trains_that_method_and_no_variant_that_sets_it(made):
    names = {"methods": ["popularity", "fedmf", "fedmf[d=8]"]}
    # What searches found with another size is refused.
    made.write("config/found.yaml", "{}")
    before = jobs(made.project(**names), "alpha_comparison")
    methods = content_of("methods.yaml")
    methods["fedmf"]["settings"]["d"]["value"] = 4
    methods["fedmf"]["settings"]["d"]["papers"] = {}
    made.write("config/methods.yaml", yaml.safe_dump(methods, sort_keys=False))
    after = jobs(made.project(**names), "alpha_comparison")
    assert {run.method for run in changed(before, after)} == {"fedmf[rounds=2]"}


def test_editing_a_protocol_changes_its_recipe_and_what_its_runs_are_compared_with_alone(made):
    before = made.project()
    protocols = content_of("protocols.yaml")
    protocols["published-fedrap"]["seed"] = 1
    made.write("config/protocols.yaml", yaml.safe_dump(protocols))
    after = made.project()
    recipes = {
        name: (before.protocol(name).recipe(), after.protocol(name).recipe())
        for name in ("clean", "published-pfedrec", "published-fedrap", "only-pool-fedrap")
    }
    assert {name for name, (old, new) in recipes.items() if old != new} == {
        "published-fedrap",
        "only-pool-fedrap",
    }
    jobs_before, jobs_after = jobs(before, "all"), jobs(after, "all")
    assert {run.protocol for run in changed(jobs_before, jobs_after)} == {
        "published-fedrap",
        "only-pool-fedrap",
    }
    # Snakemake starts these jobs for their new splits, and no parameter of theirs changes besides.
    kept = {run: replace(jobs_after[run], protocol=job.protocol) for run, job in jobs_before.items()}
    assert kept == jobs_before


def test_editing_an_artefact_or_a_printed_number_rebuilds_it_alone(made, monkeypatch):
    groups = ("pfedrec_table4", "pfedclr_table4", "fedrap_fig4")
    before = plans(made.project(), *groups)
    made.replace("config/papers/fedrap.yaml", "title: Curricula\n", "title: Schedules\n")
    assert changed(before, plans(made.project(), *groups)) == {"fedrap_fig4"}
    made.replace("config/papers/fedrap.yaml", "title: Schedules\n", "title: Curricula\n")
    numbers = dict(printed.printed_numbers())
    key = next(key for key in numbers if key[:2] == ("pfedrec", "Table 4"))
    numbers[key] = printed.Printed(0.2, None, "", 1)
    monkeypatch.setattr(printed, "printed_numbers", lambda: numbers)
    assert changed(before, plans(made.project(), *groups)) == {"pfedrec_table4"}


def test_another_switch_changes_the_audit_alone(made):
    before = made.project()
    after = made.project(audit=AUDIT | {"switches": ["pool", "order"]})
    assert changed(plans(before, "all"), plans(after, "all")) == {"audit_protocols", "audit_ranks", "report"}
    more = set(jobs(after, "all")) - set(jobs(before, "all"))
    assert {run.protocol for run in more} == {"only-order-pfedrec", "only-order-fedrap"}


def test_another_method_leaves_the_other_datasets_pages_and_runs_alone(made):
    before = made.project()
    after = made.project(methods=["popularity", "draw-counter", "mf"])
    assert "selected_statistics" not in changed(plans(before, "all"), plans(after, "all"))
    shared = jobs(before, "all")
    assert {run: jobs(after, "all")[run] for run in shared} == shared


def test_a_plan_is_the_same_wherever_the_project_lies(made, tmp_path_factory):
    other = Made(tmp_path_factory.mktemp("elsewhere"))
    assert plans(made.project(), "all") == plans(other.project(), "all")


# Papers


def test_a_file_of_papers_adds_its_targets(made):
    made.write(
        "config/papers/sixth.yaml",
        yaml.safe_dump(
            {
                "title": "Sixth",
                "artefacts": {
                    "table1": {
                        "title": "Rates", "layout": "rates", "printed": "Table 1", "lines": [{"run": "fedmf"}],
                    }
                },
            }
        ),
    )  # fmt: skip
    project = made.project()
    assert list(project.papers) == [*PAPERS, "sixth"]
    assert "tables/sixth_table1.csv" in project.files("sixth")
    assert "sixth_table1" in project.names_for_rules()
    # It makes no claims, so that there is nothing of it to audit.
    assert "audit_sixth" not in project.groups


def test_a_method_and_a_dataset_of_another_paper_need_only_their_entries(made):
    methods = content_of("methods.yaml")
    methods["fedmf"] = methods["fedmf"] | {"paper": "sixth"}
    methods["mf"]["settings"]["rounds"]["papers"] = {"sixth": {"value": 7, "source": "paper"}}
    made.write("config/methods.yaml", yaml.safe_dump(methods, sort_keys=False))
    protocols = content_of("protocols.yaml")
    protocols["published-sixth"] = protocols["published-fedrap"]
    made.write("config/protocols.yaml", yaml.safe_dump(protocols))
    made.set_entries(made_entries() | {"alpha": entry("alpha.csv", papers=["sixth"])})
    project = made.project(datasets=["alpha"], paper="sixth", methods=["mf"], rounds=None)
    runs = project.target("alpha_comparison").runs
    assert [(run.paper, run.protocol) for run in runs] == [("sixth", "published-sixth"), ("sixth", "clean")]
    assert {project.job(run).settings["rounds"] for run in runs} == {7}
    assert "sixth" in papers_in(project.methods)


def test_a_dataset_of_a_paper_without_a_protocol_is_an_error(made):
    made.set_entries(made_entries() | {"alpha": entry("alpha.csv", papers=["pfedrek"])})
    with pytest.raises(ConfigurationError, match="Did you mean 'published-pfedrec'"):
        made.project()


# Costs


def test_costs_follow_rounds_and_size(made):
    project = made.project()
    run = RunId("pfedclr", "alpha", "clean", "fedmf[rounds=10]", 0)
    twice = RunId("pfedclr", "alpha", "clean", "fedmf[rounds=20]", 0)
    seconds = [seconds_of(one, project.methods, project.catalogue) for one in (run, twice)]
    thrice = seconds_of(replace(run, method="fedmf[rounds=30]"), project.methods, project.catalogue)
    # What a run takes besides its rounds is the same for all.
    assert thrice - seconds[1] == pytest.approx(seconds[1] - seconds[0])
    assert 0 < 2 * seconds[0] - seconds[1] < 60
    plugged = RunId("pfedclr", "alpha", "clean", "fedmf+plgc[rounds=10]", 0)
    assert seconds_of(plugged, project.methods, project.catalogue) > seconds[0]


def test_what_works_on_whole_tables_costs_by_users_and_items():
    """FilmTrust has a third of the rows of MovieLens 100K, and more users x items."""
    methods = load_methods(ROOT / "config/methods.yaml")
    catalogue = load_catalogue(ROOT / "config/datasets.yaml")

    def seconds(method, dataset):
        return seconds_of(RunId("pfedclr", dataset, "clean", method, 0), methods, catalogue)

    assert seconds("fedmf", "filmtrust") < seconds("fedmf", "ml-100k") / 2
    assert seconds("gpfedrec", "filmtrust") > seconds("gpfedrec", "ml-100k")
    # What trains goes with the clients that do, whole tables do not.
    half = seconds("gpfedrec[participation=0.5]", "ml-100k") / seconds("gpfedrec", "ml-100k")
    assert 0.8 < half < 1


# Planning is light


def test_planning_imports_neither_torch_nor_polars_nor_snakemake():
    program = (
        "import json, sys\n"
        "from fedrec.plan.project import Project\n"
        "project = Project.load(json.loads(sys.argv[1]))\n"
        "plans = [target.as_json() for target in project.group('all')]\n"
        "jobs = [project.job(run) for run in project.target('demo_comparison').runs]\n"
        "print(len(plans), len(jobs))\n"
        "print(*sorted({'torch', 'polars', 'snakemake', 'matplotlib', 'scipy', 'pyarrow'} & set(sys.modules)))\n"
    )
    settings = json.dumps(configuration(datasets=["demo"]))
    outcome = subprocess.run(
        [sys.executable, "-c", program, settings], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert outcome.returncode == 0, outcome.stderr
    counts, heavy = outcome.stdout.splitlines()
    assert all(int(count) > 3 for count in counts.split())
    assert heavy == ""


def test_a_run_of_no_paper_is_named_by_its_path(made):
    project = made.project()
    run = project.run_at(paper="own", dataset="alpha", protocol="clean", method="ease@penalty-5", seed="1000")
    assert (run.paper, run.method) == ("own", "ease[penalty=5]")
    assert project.job(run).settings["penalty"] == 5
