"""`fedrec run`: its arguments, and what it gives to Snakemake."""

import json
import os
import signal
import subprocess
import sys

import pytest

from fedrec.cli import run
from fedrec.cli.main import main
from fedrec.plan.workflow_start import WorkflowStart
from fedrec.workers.client import SOCKET_VARIABLE
from tests.conftest import ROOT
from tests.projects import Made, configuration


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = Made(tmp_path)
    made.write("config/config.yaml", json.dumps(configuration()))
    made.write("Snakefile", "")
    monkeypatch.setenv("FEDREC_MIRROR", "mirror")
    return made


@pytest.fixture
def called(monkeypatch):
    """The calls of Snakemake: its arguments, and whether there were workers."""
    calls = []
    monkeypatch.setattr(
        run,
        "_snakemake",
        lambda arguments: calls.append((list(arguments), SOCKET_VARIABLE in os.environ)) or 0,
    )
    return calls


def run_command(*words):
    with pytest.raises(SystemExit) as ended:
        main(["run", *words])
    return ended.value.code


TARGET = "alpha_comparison"
BRIEF = ["--quiet", "host", "rules", "reason", "--dry-run"]


def listed(made, results="results"):
    """The runs of the list that is written for `fedrec status`."""
    return (made.folder / results / "plan/runs.jsonl").read_text().splitlines()


@pytest.mark.parametrize(
    "words",
    [
        ["--cores", "2", TARGET, "--keep-going"],
        [TARGET, "--cores", "2", "-k"],
        ["--cores", "2", "-k", "--", TARGET],
        ["-kc2", "--", TARGET],
    ],
)
def test_words_reach_snakemake_as_they_are(made, called, capsys, words):
    assert run_command(*words) == 0
    assert called == [(words, False)]
    assert capsys.readouterr().out.startswith("Runs to train: 4, about a core-minute")
    assert len(listed(made)) == 4


def test_a_dry_run_writes_nothing_and_starts_no_workers(made, called):
    run_command("-n", "--workers", TARGET)
    assert called == [([*BRIEF, "-n", TARGET], False)]
    assert not (made.folder / "results").exists()


@pytest.mark.usefixtures("made")
def test_workers_exist_while_snakemake_runs(called):
    run_command("--workers", TARGET)
    assert called == [([TARGET], True)]
    assert SOCKET_VARIABLE not in os.environ


@pytest.mark.parametrize(
    "words",
    [
        [TARGET, "--configfile", "mine.yaml", "--config", "rounds=3", "results=elsewhere"],
        ["--configfile", "mine.yaml", "--config", "results=elsewhere", "rounds=3", "--", TARGET],
        ["--configfiles=mine.yaml", "-Crounds=3", "--", TARGET],
        ["--replace-w", "--configfile", "mine.yaml", "-kC", "rounds=3", "--", TARGET],
        ["--profile", "mine", "--", TARGET],
    ],
)
def test_the_configuration_is_read_as_snakemake_reads_it(made, called, words):
    made.write("mine.yaml", "rounds: 5\nresults: elsewhere\n")
    (made.folder / "mine").mkdir()
    made.write("mine/config.yaml", "config: [rounds=3]\nconfigfile: mine.yaml\n")
    run_command(*words)
    assert called == [(words, False)]
    trained = [run for run in listed(made, "elsewhere") if "rounds=" in run]
    assert len(trained) == 2
    assert all("rounds=3" in run for run in trained)


@pytest.mark.usefixtures("made")
def test_what_is_to_be_made_again_joins_what_the_caller_names(called, monkeypatch):
    monkeypatch.setattr(WorkflowStart, "forced_files", ["results/old"])
    run_command("-R", "mine", "--", TARGET)
    run_command("-n", TARGET)
    assert [words for words, _ in called] == [
        ["-R", "mine", "--forcerun", "mine", "results/old", "--", TARGET],
        [*BRIEF, "-n", TARGET, "--forcerun", "results/old"],
    ]


ELSEWHERE = "`fedrec run` builds the project in the current folder."


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["alpha_comparisn"], "there is no target 'alpha_comparisn'. Did you mean 'alpha_comparison'?"),
        (["all", "--", "-k"], "Type: fedrec run all -k\n"),
        (
            ["--workers", "--config", "rounds=3", "--", "all", "--conf", "x y"],
            "Type: fedrec run --workers --config rounds=3 --conf 'x y' -- all\n",
        ),
        (
            ["all", "--cores", "2", TARGET],
            f"unrecognized arguments: {TARGET}.",
        ),
        (["--config", "rounds=3", "all"], "(Unparsable value: 'all')."),
        (["--config", "rounds", "--", "all"], "(Unparsable value: 'rounds'). Write options first"),
        (["--config", "rounds=3", "--config=seeds=1"], "--config is given twice"),
        (["all", "--kep"], "unrecognized arguments: --kep. Write options first"),
        (["all", "--conf", "rounds=3"], "ambiguous option: --conf could match"),
        (["all", "--cores", "many"], "must be integer or 'all'. Write options first"),
        (["all", "--profile", "gone"], "profile directory given (gone)"),
        (
            ["--config", "seeds=[0]", "rounds=3", "--", "pfedclr_table1"],
            "from --config: rounds has no effect on pfedclr_table1. It shortens comparisons and the audit",
        ),
        (
            ["--config", "datasets=[beta]", "--", TARGET],
            f"datasets has no effect on {TARGET}. It affects `all`",
        ),
        (["all", "-kd", "there"], f"--directory there: {ELSEWHERE}"),
        (["all", "--snake", "there"], f"--snakefile there: {ELSEWHERE}"),
    ],
)
def test_mistakes_are_one_message_and_snakemake_is_not_started(called, capsys, words, message):
    assert main(["run", *words]) == 1
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert called == []


def test_other_commands_refuse_what_they_do_not_know(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["check", "--keep-going"])
    assert ended.value.code == 2
    assert "unrecognized arguments: --keep-going" in capsys.readouterr().err


# How Snakemake ends

CALL = """
import signal, sys
from fedrec.cli import run
from fedrec.errors import StoppedError
sys.executable = sys.argv[1]
# Whatever the tests themselves were started by: nohup and shells in the background ignore some of these.
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.SIG_IGN if "background" in sys.argv else signal.default_int_handler)
try:
    sys.exit(run._snakemake([]))
except StoppedError as stopped:
    print(stopped)
    sys.exit(stopped.status)
"""
SNAKEMAKE = """#!{python}
import subprocess, sys
with subprocess.Popen([{python!r}, "-c", {job!r}]) as process:
    try:
        process.wait()
    except KeyboardInterrupt:
        process.wait()
        print("snakemake stops", flush=True)
        sys.exit({status})
"""
JOB = """
import time
try:
    print("at work", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    print("the job stops", flush=True)
"""


@pytest.fixture
def ended(tmp_path):
    """Starts a made-up Snakemake with a job, sends a signal, and returns the status and what was said."""

    def run_until(number, *words, status=1):
        made = tmp_path / "snakemake"
        made.write_text(SNAKEMAKE.format(python=sys.executable, job=JOB, status=status))
        made.chmod(0o755)
        command = [sys.executable, "-c", CALL, str(made), *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
            said = process.stdout.readline()
            process.send_signal(number)
            rest, _ = process.communicate(timeout=60)
        return process.returncode, said + rest

    return run_until


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_stops_snakemake_and_its_jobs_and_the_last_line_says_what_to_do(ended, number):
    status, said = ended(number)
    assert status == 128 + number
    assert said.splitlines() == [
        "at work",
        "the job stops",
        "snakemake stops",
        "finished results are kept. Type the same command again to continue; runs resume from checkpoints.",
    ]


def test_in_the_background_where_ctrl_c_is_ignored_a_kill_stops_jobs_too(ended):
    status, said = ended(signal.SIGTERM, "background")
    assert status == 128 + signal.SIGTERM
    assert "the job stops\nsnakemake stops\n" in said


def test_who_is_stopped_when_all_is_done_has_done_it(ended):
    status, said = ended(signal.SIGTERM, status=0)
    assert status == 0
    assert said.endswith("snakemake stops\n")


def test_the_exit_status_is_that_of_snakemake(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    before = [signal.getsignal(number) for number in run._STOP_SIGNALS]
    try:
        assert run._snakemake([]) == 1
    finally:
        for number, handler in zip(run._STOP_SIGNALS, before, strict=True):
            signal.signal(number, handler)


# Keys of files


def told_of_file(made, capsys, text, target, name="own.yaml"):
    made.write(name, text)
    run_command("-n", "--configfile", name, "--", target)
    return [line for line in capsys.readouterr().err.splitlines() if "changes nothing" in line]


@pytest.mark.usefixtures("called")
def test_keys_of_a_file_that_change_nothing_are_announced_each_once(made, capsys):
    text = "seeds: [0, 1]\nrounds: 3\ndatasets: [beta]\n"
    told = told_of_file(made, capsys, text, "pfedclr_table1")
    assert [line.partition(": changes")[0] for line in told] == [
        "fedrec: own.yaml, line 2, rounds", "fedrec: own.yaml, line 3, datasets",
    ]  # fmt: skip
    assert "Tables and figures of papers train with the papers' own settings. Leave it out, unless" in told[0]
    # What one target reads and another does not is no mistake, nor is a value that the key has anyway.
    (only,) = told_of_file(made, capsys, text, TARGET)
    assert "own.yaml, line 3, datasets" in only
    assert told_of_file(made, capsys, f"demo_rounds: {configuration()['demo_rounds']}\n", TARGET) == []
    assert told_of_file(made, capsys, text, "all") == []
    # Files of the package are for many targets.
    assert told_of_file(made, capsys, text, "pfedclr_table1", "audit.yaml") == []
