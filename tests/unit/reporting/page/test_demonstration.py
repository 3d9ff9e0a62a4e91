"""The demonstration: its dataset, a few of its methods trained as it trains them, and its page."""

import pytest

from fedrec.cli.main import main
from fedrec.config.methods import load_methods
from fedrec.config.protocol import short_name
from fedrec.native.on_cpu import FLAGS
from fedrec.plan.project import Project
from fedrec.plan.train_request import TrainRequest
from fedrec.reporting.build import build
from fedrec.runs.record import RunRecord
from fedrec.runs.train import train
from tests.conftest import ROOT, swift
from tests.made_results import drawn_as_svg
from tests.once import once_for_all_workers
from tests.projects import content_of

METHODS = ["popularity", "draw-counter", "pfedrec"]
CHANCE = 0.10


def demonstration(results):
    """The project's own configuration with a few methods, its results elsewhere."""
    asked = {
        "methods": METHODS, "audit": {"methods": METHODS[:2], "switches": ["pool"], "uploads": []},
        "results": str(results),
    }  # fmt: skip
    return Project.load(content_of("config.yaml") | asked, root=ROOT)


def trained(results):
    """Everything that the demonstration's page is made of, but the tables and figures."""
    project = demonstration(results)
    data = results / "data/demo"
    protocols = sorted({run.protocol for run in project.target("demo").runs})
    files = ["--protocols", ROOT / "config/protocols.yaml"]
    steps = [
        ["prepare", "demo", "--catalogue", ROOT / "config/datasets.yaml", "--raw", results, "--out", data],
        *(["split", "--data", data, "--protocol", name, *files] for name in protocols),
        ["describe", "--data", data, "--protocol", *protocols, "--out", data / "statistics.json"],
    ]
    for step in steps:
        assert main([str(word) for word in step]) == 0
    for run in project.target("demo").runs:
        request = TrainRequest(
            data=data, method=run.method, paper=run.paper, protocol=run.protocol, seed=run.seed,
            out=results / run.folder, device="cpu",
        )  # fmt: skip
        train(request, load_methods(ROOT / "config/methods.yaml"))


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Its runs are trained by fast kernels, since they have many rounds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FLAGS, swift())
        return demonstration(once_for_all_workers(tmp_path_factory, "demonstration", trained))


@pytest.fixture(scope="module")
def hits(project):
    """HR@10 by method and protocol."""
    runs = [RunRecord(project.results / run.folder) for run in project.target("demo_comparison").runs]
    return {
        (run.summary["method"].partition("[")[0], short_name(run.protocol)): run.metric("hr@10")
        for run in runs
    }


def test_a_federated_method_clearly_beats_popularity_under_the_clean_protocol(hits):
    assert hits["popularity", "clean"] > CHANCE + 0.05
    assert hits["pfedrec", "clean"] > hits["popularity", "clean"] + 0.15


def test_the_leak_shows(hits):
    assert hits["draw-counter", "published"] > 0.95
    assert hits["draw-counter", "clean"] < CHANCE + 0.05
    assert hits["pfedrec", "published"] > hits["pfedrec", "clean"] + 0.1


@pytest.mark.matrix
def test_its_page_is_built_from_its_plan_and_has_the_audit(project):
    """`make test` has the page of the demonstration from the workflow."""
    with drawn_as_svg():
        for target in project.group("demo"):
            build(target, project)
    text = (project.results / "report/demo.html").read_text(encoding="utf-8")
    for name in ("demo_comparison", "demo_audit_exposure", "demo_audit_protocols", "demo_audit_significance"):
        assert f'id="{name}' in text
    assert "PFedRec" in text
    assert (project.results / "plan/demo.json").is_file()


def test_its_audit_says_nothing_of_claims_about_other_datasets(project):
    audited = project.targets.audit_targets(project.demonstration)
    assert "demo_audit_ranks" in audited
    assert not any("verdicts" in name for name in audited)
    assert "verdicts" in project.targets.audit_targets()
