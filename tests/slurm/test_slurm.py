"""The workflow through a real Slurm of one node, on made datasets: `make test-slurm`.

A call of Snakemake, a job and what it imports take most of the time, so that a test sees several things at once.
"""

import math
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml

from fedrec.config.methods import load_methods
from tests.conftest import ROOT, entry
from tests.projects import AUDIT, QUICK, content_of
from tests.slurm.one_node import missing, one_node_slurm
from tests.workflow.test_workflow import Checkout

LACKS = missing() or (
    ""
    if find_spec("snakemake_executor_plugin_slurm")
    else "the extra `slurm` is not installed: make test-slurm"
)
pytestmark = [pytest.mark.slurm, pytest.mark.skipif(bool(LACKS), reason=LACKS)]

# The plug-in looks after jobs ever more seldom, up to every three minutes. Here it does so every second.
SNAKEMAKE = """
import sys
from snakemake.cli import main
from snakemake_executor_plugin_slurm import Executor
Executor.next_seconds_between_status_checks = property(lambda self: 1, lambda self, seconds: None)
sys.exit(main(sys.argv[1:]))
"""
PROFILE = [
    "--workflow-profile=profiles/slurm", "--cores=1", "--latency-wait=5", "--local-cores=2",
    "--slurm-status-command=squeue", "--slurm-init-seconds-before-status-checks=1", "--max-jobs-per-timespan=1000/1s",
]  # fmt: skip
"""The profile, for a node of two cores and a Slurm without accounting."""
HELD = """
            import pathlib
            while round_ >= 6 and pathlib.Path("hold").exists() and stop.signal is None:
                pathlib.Path("held").touch()
                time.sleep(0.05)
"""
"""What a training does from its sixth round on: wait, until it is let go or stopped."""
SEEING = """
            import os, pathlib
            seen = pathlib.Path("gpus", os.environ["SLURM_JOB_ID"])
            seen.parent.mkdir(exist_ok=True)
            seen.write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "none"))
"""
"""What a training does first: say which GPU it has."""
ON_GPUS = ["--set-resources", "train:slurm_partition=gpu", "train:gres=gpu:1", "train:gpu=0"]
"""What the profile holds for GPUs, without its comment signs."""
LONGEST_WAIT = 240.0


class OnCluster(Checkout):
    """A checkout whose runs go to Slurm."""

    def __init__(self, folder: Path, slurm: dict[str, str]) -> None:
        super().__init__(folder)
        self.slurm = slurm

    def prepared(self, **configuration: object) -> "OnCluster":
        """With two datasets, two methods, and results in a folder of a plain name."""
        Checkout.made(self.folder)
        shutil.copy(self.folder / "mirror/alpha.csv", self.folder / "mirror/beta.csv")
        entries = {name: entry(f"{name}.csv") for name in ("alpha", "beta")}
        demo = content_of("datasets.yaml")["demo"]
        self.write("config/datasets.yaml", yaml.safe_dump({**entries, "demo": demo}))
        small = {"datasets": ["alpha"], "methods": QUICK, "audit": AUDIT, "results": "results"}
        self.edit("config/config.yaml", lambda config: config | small | configuration)
        return self

    def in_every_round(self, text: str) -> None:
        """Have a training do something before each of its rounds."""
        source = self.folder / "fedrec/runs/training.py"
        before = "            started = time.monotonic()\n"
        assert source.read_text().count(before) == 1
        source.write_text(source.read_text().replace(before, text + before))

    def environment(self):
        return super().environment() | self.slurm

    def started(self, *arguments: str) -> subprocess.Popen[str]:
        """A Snakemake in a session of its own, what it says in `said`."""
        with (self.folder / "said").open("w") as said:
            return subprocess.Popen(
                [sys.executable, "-c", SNAKEMAKE, *PROFILE, *arguments], cwd=self.folder,
                env=self.environment(), stdout=said, stderr=subprocess.STDOUT, text=True, start_new_session=True,
            )  # fmt: skip

    @property
    def said(self) -> str:
        return (self.folder / "said").read_text()

    def ended(self, process: subprocess.Popen[str]) -> int:
        try:
            return process.wait(LONGEST_WAIT)
        finally:
            # Whatever happens, nothing is left at work.
            process.kill()

    def asked(self, *command: str) -> str:
        """What a command answers."""
        return subprocess.check_output(command, env=self.environment(), cwd=self.folder, text=True)

    def jobs(self) -> list[dict[str, str]]:
        """All jobs that Slurm had, in order."""
        form = {"number": "%i", "state": "%T", "memory": "%m", "time": "%l", "partition": "%P"}
        lines = self.asked("squeue", "--states=all", "--noheader", f"--format={'|'.join(form.values())}")
        rows = [dict(zip(form, line.split("|"), strict=True)) for line in lines.splitlines()]
        return sorted(rows, key=lambda row: int(row["number"]))

    def result(self, path):
        return self.folder / "results" / path


def until(holds: Callable[[], object], process: subprocess.Popen[str], checkout: OnCluster) -> None:
    """Wait for something that happens while `process` is at work."""
    latest = time.monotonic() + LONGEST_WAIT
    while not holds():
        assert process.poll() is None, checkout.said
        assert time.monotonic() < latest, checkout.said
        time.sleep(0.1)


@pytest.fixture
def checkout(tmp_path):
    # Not in a folder of pytest: Munge's socket is to be reached by everybody, and has a short path.
    with TemporaryDirectory(prefix="fedrec-slurm-") as folder, one_node_slurm(Path(folder)) as slurm:
        yield OnCluster(tmp_path, slurm)


def test_from_nothing_to_a_table_with_a_gpu_and_a_job_that_is_tried_again(checkout):
    """A folder blocks one of the runs that share a job, for the first attempt."""
    checkout.prepared(gpu_per_run=1)
    checkout.in_every_round(SEEING)
    blocked = checkout.result("runs/pfedrec/alpha/published-pfedrec/popularity/seed0")
    (blocked / "checkpoint.safetensors/something").mkdir(parents=True)
    process = checkout.started(*ON_GPUS, "--", "alpha_comparison")
    try:
        until(lambda: [job for job in checkout.jobs() if job["state"] == "FAILED"], process, checkout)
        finished = {path: path.read_bytes() for path in checkout.result("runs").rglob("run.json")}
        shutil.rmtree(blocked)
    finally:
        status = checkout.ended(process)

    assert status == 0, checkout.said
    assert checkout.result("tables/alpha_comparison.md").is_file()
    # Snakemake shows the log of the run that failed.
    assert "is a folder, but this run writes a file there." in checkout.said
    # Finished runs were kept: the second attempt trained the others.
    assert finished
    assert all(path.read_bytes() == before for path, before in finished.items())
    jobs = checkout.jobs()
    assert {job["partition"] for job in jobs} == {"gpu"}
    failed = next(job for job in jobs if job["state"] == "FAILED")
    assert jobs[-1]["time"] == doubled(failed["time"])
    assert {path.read_text() for path in (checkout.folder / "gpus").iterdir()} <= {"0", "1"}


def doubled(limit: str) -> str:
    """A limit of time, minutes and seconds, that is twice as long."""
    minutes = 2 * int(limit.partition(":")[0])
    return f"{minutes // 60}:{minutes % 60:02}:00" if minutes >= 60 else f"{minutes}:00"


def test_a_cancelled_job_is_tried_again_and_its_run_goes_on_from_its_checkpoint(checkout):
    """Two runs share a job, which is cancelled while the longer one trains, first of the two."""
    checkout.prepared()
    checkout.in_every_round(HELD)
    (checkout.folder / "hold").touch()
    short, long = (
        f"results/runs/pfedrec/alpha/clean/{method}/seed0/run.json"
        for method in ("popularity", "fedmf@rounds-8")
    )
    log = checkout.result("logs/runs/pfedrec/alpha/clean/fedmf@rounds-8/seed0/train.log")
    process = checkout.started("--", short, long)
    try:
        until((checkout.folder / "held").exists, process, checkout)
        (job,) = checkout.jobs()
        status = checkout.asked(sys.executable, "-m", "fedrec", "status", short, long)
        assert "0 of 2 runs done, 1 running" in status
        checkout.asked("scancel", job["number"])
        until(lambda: len(checkout.jobs()) == 2 and has_gone_on(log), process, checkout)
    finally:
        (checkout.folder / "hold").unlink()
        ended = checkout.ended(process)
    assert ended == 0, checkout.said
    assert [job["state"] for job in checkout.jobs()] == ["CANCELLED", "COMPLETED"]
    assert all((checkout.folder / run).is_file() for run in (short, long))
    assert "continues after round 6 of 8" in log.read_text(), log.read_text()


def has_gone_on(log: Path) -> bool:
    return log.is_file() and "continues after round" in log.read_text()


def test_a_long_run_has_a_job_of_its_own_and_a_failure_shows_its_log(checkout):
    checkout.prepared()
    run = "runs/pfedrec/alpha/clean/fedmf@rounds-100000/seed0"
    (checkout.result(run) / "checkpoint.safetensors/something").mkdir(parents=True)
    # A round was measured with ten epochs and 0.6 of the clients, and has one and all here; three times that.
    seconds = 1 + 100_000 * load_methods(ROOT / "config/methods.yaml")["fedmf"].seconds / 10 / 0.6
    hours, minutes = divmod(5 + math.ceil(3 * seconds / 60), 60)
    process = checkout.started("--retries=0", "--", f"results/{run}/run.json")

    assert checkout.ended(process) == 1
    assert "is a folder, but this run writes a file there." in checkout.said
    (job,) = checkout.jobs()
    assert (job["state"], job["memory"]) == ("FAILED", "4545M")
    assert job["time"] == f"{hours}:{minutes:02}:00"


@pytest.mark.matrix
def test_the_whole_demonstration(checkout):
    """Every method, in the repository's own configuration."""
    Checkout.made(checkout.folder)
    for name in ("config.yaml", "datasets.yaml", "tuning.yaml", "found.yaml"):
        shutil.copy(ROOT / "config" / name, checkout.folder / "config" / name)
    process = checkout.started("--", "demo")

    assert process.wait(3 * LONGEST_WAIT) == 0, checkout.said
    assert "</html>" in checkout.result("report/demo.html").read_text()
    assert len(checkout.jobs()) == math.ceil(56 / 16)
