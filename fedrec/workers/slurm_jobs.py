"""Jobs that a workflow which was killed has left with Slurm."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedrec.errors import StorageError

_OF_A_WORKFLOW = "rule_"
"""How the comment begins that Snakemake gives a job."""
_SECONDS_BETWEEN_LOOKS = 0.5
_LONGEST_WAIT = 180.0
"""Seconds: a job may take half a minute to stop, and a while to be taken note of."""


def jobs_left_behind(folder: Path) -> list[str]:
    """The numbers of our jobs that Snakemake has started in `folder`: its lock allows one Snakemake there."""
    lines = _asked("squeue", "--me", "--noheader", "--format=%i|%Z|%k").splitlines()
    found = [line.split("|", 2) for line in lines if line.count("|") >= 2]
    return [
        number
        for number, place, comment in found
        if comment.startswith(_OF_A_WORKFLOW) and Path(place).resolve() == folder.resolve()
    ]


def end_jobs(numbers: Sequence[str], folder: Path) -> None:
    """Cancel jobs and wait until they have ended: a run that stops keeps a checkpoint, and then lets go."""
    _asked("scancel", *numbers)
    until = time.monotonic() + _LONGEST_WAIT
    while set(numbers) & set(jobs_left_behind(folder)):
        if time.monotonic() > until:
            raise StorageError(
                f"Slurm has not ended jobs of an earlier start ({', '.join(numbers)}), which write to the "
                "same folders. End them (`scancel`), then start again."
            )
        time.sleep(_SECONDS_BETWEEN_LOOKS)


def why_refused(asked: Mapping[str, int | str]) -> str:
    """What Slurm answers to a job that asks for as much, by the names that Snakemake gives to resources."""
    options = {
        "--cpus-per-task": "_cores",
        "--mem": "mem_mb",
        "--time": "runtime",
        "--gres": "gres",
        "--partition": "slurm_partition",
        "--account": "slurm_account",
    }
    words = [f"{option}={asked[name]}" for option, name in options.items() if asked.get(name)]
    try:
        _asked("sbatch", "--test-only", *words, "--wrap=true")
    except StorageError as error:
        return str(error)
    return "it would take one that asks for as much now"


def _asked(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        raise StorageError(f"`{' '.join(command)}` failed: {said.strip()}") from None
