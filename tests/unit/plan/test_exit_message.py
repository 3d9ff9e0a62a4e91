"""The last line of a workflow that was stopped, or failed."""

import subprocess
import sys

from fedrec.plan.exit_message import ExitMessage
from fedrec.plan.workflow_start import listed_for
from tests.planned_runs import finish
from tests.projects import Made

ENDING = """
import sys
from fedrec.plan.exit_message import ExitMessage
words = ExitMessage(list, {}, ["--cores", "2", "--config", "methods=[mf, ease]", "--", "demo"])
words.register()
if sys.argv[1] == "done":
    words.cancel()
raise KeyboardInterrupt
"""


def test_it_counts_finished_runs_and_repeats_the_command(tmp_path, capsys):
    project = Made(tmp_path).project()
    runs = listed_for(project, ["alpha_comparison"])
    words = ExitMessage(lambda: runs, project.methods, ["--config", "methods=[mf, ease]", "--", "demo"])
    for done in (0, 1):
        words.print()
        assert capsys.readouterr().err == (
            f"fedrec: not everything is built. {done} of {len(runs)} runs are finished. The same command "
            "continues, unfinished runs from their checkpoints: snakemake --config 'methods=[mf, ease]' -- demo\n"
        )
        finish(project, project.target("alpha_comparison").runs[0])


def test_it_is_the_last_line_unless_all_was_well():
    for how, speaks in (("stopped", True), ("done", False)):
        ended = subprocess.run(
            [sys.executable, "-c", ENDING, how], capture_output=True, text=True, check=False
        )
        assert "KeyboardInterrupt" in ended.stderr
        assert ended.stderr.splitlines()[-1].startswith("fedrec: not everything is built.") == speaks
