"""What is told of a cluster's jobs: what each would ask for, and why one failed."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedrec.plan.project import Project
from fedrec.plan.run_matching import unfinished
from fedrec.plan.runs import RunId
from fedrec.workers.crew import last_words

_MOST_LINES = 40
_MOST_REASONS = 10
_MOST_ERRORS = 3
_ERROR_OF_SLURM = re.compile(r"^(?:srun|slurmstepd): error: .*$", re.MULTILINE)
"""A line by which Slurm says why it ended a job: its time or memory was up, somebody cancelled it."""


@dataclass(frozen=True)
class Submission:
    """A job that a cluster would be given."""

    name: str
    runs: int
    resources: Mapping[str, int | str]
    """As the scheduler is asked for them, by the names that Snakemake gives them."""

    def words(self) -> str:
        """What it is and asks for, in a line."""
        asked = self.resources
        cores, minutes = (int(asked[key]) for key in ("_cores", "runtime"))
        parts = [
            _counted(self.runs, "run"),
            _counted(cores, "core"),
            f"{int(asked['mem_mb']) / 1000:.1f} GB",
            f"{minutes // 60}:{minutes % 60:02} h",
            *(str(asked[key]) for key in ("gres",) if asked.get(key)),
            *(f"partition {asked[key]}" for key in ("slurm_partition",) if asked.get(key)),
        ]
        return f"  {self.name}: {', '.join(parts)}"


def submission_words(submissions: Sequence[Submission], at_once: int) -> str:
    """The jobs that a cluster would be given, a line each."""
    lines = _cut([one.words() for one in sorted(submissions, key=lambda one: one.name)], _MOST_LINES)
    first = f"Jobs for the cluster: {len(submissions)}, at most {at_once} at once; all else runs here."
    return "\n".join([first if lines else "Jobs for the cluster: none.", *lines])


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


@dataclass(frozen=True)
class FailedJob:
    """A job that a cluster has ended before its runs did."""

    number: str
    """As the cluster counts it; none if it did not take the job."""
    runs: Sequence[RunId]
    log: Path | None
    """The file that holds what Slurm and Snakemake said in it."""
    is_tried_again: bool
    refused: Callable[[], str] = str
    """Says why the cluster did not take it."""

    def words(self, project: Project) -> str:
        """Which of its runs are not finished and what each said last, in a few lines."""
        left = unfinished(project, self.runs)
        done = len(self.runs) - len(left)
        again = "is tried again, for what is not finished" if self.is_tried_again else "is not tried again"
        kept = f"{done} {'is' if done == 1 else 'are'}" if done else "none is finished"
        of_runs = f"of its {_counted(len(self.runs), 'run')} {kept}"
        if self.log is None:
            return f"fedrec: the cluster did not take a job, which {again}; {of_runs}.\n  {self.refused()}"
        first = f"fedrec: job {self.number} of the cluster failed, and {again}; {of_runs}."
        reasons = _cut([f"  {run.folder}: {_reason(project, run)}" for run in left], _MOST_REASONS)
        by_slurm = [f"  {line}" for line in _ERROR_OF_SLURM.findall(_text(self.log))[-_MOST_ERRORS:]]
        return "\n".join([first, *reasons, *by_slurm, f"  More on the job: {self.log}"])


def _reason(project: Project, run: RunId) -> str:
    said = last_words(_text(project.results / "logs" / run.folder / "train.log"))
    return said or "it had not begun, or was ended before it said anything"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _cut(lines: Sequence[str], most: int) -> list[str]:
    more = len(lines) - most
    return [*lines[:most], *([f"  ... and {more} more"] if more > 0 else [])]
