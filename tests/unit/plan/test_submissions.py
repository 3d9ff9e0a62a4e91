"""What is told of a cluster's jobs."""

import pytest

from fedrec.plan.runs import RunId
from fedrec.plan.submissions import FailedJob, Submission, submission_words
from tests.made_project import project_with
from tests.planned_runs import finish

FIRST, SECOND = (RunId("pfedclr", "ml-100k", "clean", method, 0) for method in ("fedmf", "popularity"))


@pytest.fixture
def project(tmp_path):
    return project_with(tmp_path)


def log_of(project, run, text):
    path = project.results / "logs" / run.folder / "train.log"
    path.parent.mkdir(parents=True)
    path.write_text(text)


def test_every_job_says_what_it_asks_for():
    asked = {"_cores": 4, "mem_mb": 18180, "runtime": 65, "gres": "gpu:1", "slurm_partition": "gpu"}
    alone = {"_cores": 1, "mem_mb": 4545, "runtime": 6000, "gres": ""}
    words = submission_words([Submission("ml-100k-1", 20, asked), Submission("a/run", 1, alone)], 50)
    assert words.splitlines() == [
        "Jobs for the cluster: 2, at most 50 at once; all else runs here.",
        "  a/run: 1 run, 1 core, 4.5 GB, 100:00 h",
        "  ml-100k-1: 20 runs, 4 cores, 18.2 GB, 1:05 h, gpu:1, partition gpu",
    ]


def test_no_job_and_many_jobs():
    assert submission_words([], 50) == "Jobs for the cluster: none."
    many = [Submission(f"{number:03}", 1, {"_cores": 1, "mem_mb": 1, "runtime": 1}) for number in range(50)]
    lines = submission_words(many, 50).splitlines()
    assert len(lines) == 42
    assert lines[-1] == "  ... and 10 more"


def test_a_failed_job_tells_of_the_runs_that_are_not_finished(project, tmp_path):
    finish(project, SECOND)
    log_of(project, FIRST, "round 1\nfedrec: the disk is full\n")
    log = tmp_path / "7.log"
    log.write_text(
        "Select jobs\nslurmstepd: error: *** JOB 7 ON node CANCELLED DUE TO TIME LIMIT ***\nmore\n"
    )
    words = FailedJob("7", [FIRST, SECOND], log, is_tried_again=True).words(project)
    assert words.splitlines() == [
        "fedrec: job 7 of the cluster failed, and is tried again, for what is not finished; of its 2 runs 1 is.",
        f"  {FIRST.folder}: the disk is full",
        "  slurmstepd: error: *** JOB 7 ON node CANCELLED DUE TO TIME LIMIT ***",
        f"  More on the job: {log}",
    ]


def test_a_job_that_never_began(project, tmp_path):
    words = FailedJob("8", [FIRST], tmp_path / "none", is_tried_again=False).words(project).splitlines()
    assert (
        words[0]
        == "fedrec: job 8 of the cluster failed, and is not tried again; of its 1 run none is finished."
    )
    assert words[1] == f"  {FIRST.folder}: it had not begun, or was ended before it said anything"


def test_a_job_that_the_cluster_did_not_take(project):
    failed = FailedJob(
        "", [FIRST, SECOND], None, is_tried_again=False, refused=lambda: "no node has 64 cores"
    )
    assert failed.words(project).splitlines() == [
        "fedrec: the cluster did not take a job, which is not tried again; of its 2 runs none is finished.",
        "  no node has 64 cores",
    ]
