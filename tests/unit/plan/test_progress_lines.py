"""What a workflow prints while it trains."""

import time

from fedrec.plan.progress_lines import start_progress_lines
from fedrec.plan.rule_functions import RuleFunctions
from fedrec.plan.run_list import RUN_LIST_FILE
from fedrec.plan.workflow_start import SUMMARY_PRINTED, listed_for
from tests.planned_runs import finish
from tests.projects import Made


def test_lines_are_printed_until_no_run_is_left(tmp_path, capfd):
    project = Made(tmp_path).project()
    listed = listed_for(project, ["alpha_comparison"])
    first, *others = project.target("alpha_comparison").runs
    finish(project, first)
    thread = start_progress_lines(lambda: listed, project.methods, seconds=0.02)
    printed = ""
    deadline = time.monotonic() + 20
    while "\n" not in printed and time.monotonic() < deadline:
        time.sleep(0.01)
        printed += capfd.readouterr().err
    assert printed.startswith("1 of 4 runs done, 3 waiting; none is running, the rest takes about")
    for run in others:
        finish(project, run)
    thread.join(timeout=20)
    assert not thread.is_alive()


def test_the_runs_are_reported_once_and_listed_for_status(tmp_path, capfd, monkeypatch):
    project = Made(tmp_path).project()
    monkeypatch.setenv(SUMMARY_PRINTED, "yes")
    RuleFunctions(project).start({"alpha_comparison"}, 2)
    assert capfd.readouterr().err == ""
    monkeypatch.delenv(SUMMARY_PRINTED)
    RuleFunctions(project).start({"alpha_comparison"}, 2)
    assert capfd.readouterr().err.startswith("Runs to train: 4, about a core-minute on a CPU (")
    assert len((project.results / RUN_LIST_FILE).read_text().splitlines()) == 4
