"""Jobs left with Slurm, whose commands are stood in for."""

import os

import pytest

from fedrec.errors import StorageError
from fedrec.workers import slurm_jobs
from fedrec.workers.slurm_jobs import end_jobs, jobs_left_behind, why_refused


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Writes a command that is found before any other of its name."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'commands'}:{os.environ['PATH']}")
    (tmp_path / "commands").mkdir()

    def write(name, text):
        path = tmp_path / "commands" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    return write


def test_jobs_of_this_folder_that_snakemake_started_are_found(commands, tmp_path):
    (tmp_path / "here").mkdir()
    listed = (
        f"1|{tmp_path}/here|rule_train",
        f"2|{tmp_path}/there|rule_train",
        f"3|{tmp_path}/here|mine | own",
    )
    commands("squeue", "\n".join(f"echo '{line}'" for line in listed))
    assert jobs_left_behind(tmp_path / "here") == ["1"]


def test_jobs_are_cancelled_and_waited_for(commands, tmp_path, monkeypatch):
    monkeypatch.setattr(slurm_jobs, "_SECONDS_BETWEEN_LOOKS", 0)
    # Gone the third time somebody looks.
    commands(
        "squeue",
        f"echo x >> {tmp_path}/looks; [ $(wc -l < {tmp_path}/looks) -gt 2 ] || echo '5|{tmp_path}|rule_a'",
    )
    commands("scancel", f"echo $* > {tmp_path}/cancelled")
    end_jobs(["5", "6"], tmp_path)
    assert (tmp_path / "cancelled").read_text() == "5 6\n"
    assert len((tmp_path / "looks").read_text().splitlines()) == 3


def test_a_job_that_does_not_end_is_an_error_that_names_it(commands, tmp_path, monkeypatch):
    monkeypatch.setattr(slurm_jobs, "_LONGEST_WAIT", 0)
    commands("squeue", f"echo '5|{tmp_path}|rule_a'")
    commands("scancel", "true")
    with pytest.raises(StorageError, match=r"has not ended jobs of an earlier start \(5\)"):
        end_jobs(["5"], tmp_path)


def test_a_slurm_that_does_not_answer_says_so(commands, tmp_path):
    commands("squeue", "echo no controller >&2; exit 1")
    with pytest.raises(StorageError, match=r"`squeue .*` failed: no controller"):
        jobs_left_behind(tmp_path)


def test_why_a_job_is_refused_is_asked_with_what_it_asks_for(commands):
    commands("sbatch", "echo error: no such node >&2; exit 1")
    said = why_refused({"_cores": 64, "mem_mb": 4500, "runtime": 30, "gres": ""})
    asked = "sbatch --test-only --cpus-per-task=64 --mem=4500 --time=30 --wrap=true"
    assert said == f"`{asked}` failed: error: no such node"
    commands("sbatch", "true")
    assert why_refused({"_cores": 1}) == "it would take one that asks for as much now"
