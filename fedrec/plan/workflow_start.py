"""The start of a workflow, before Snakemake: targets, their runs, and the runs to train again."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedrec.errors import first_lines
from fedrec.files.atomic import write_text
from fedrec.plan.project import Project
from fedrec.plan.run_list import RUN_LIST_FILE, ListedRun, list_text
from fedrec.plan.run_matching import RunMatcher
from fedrec.plan.runs import SUMMARY, RunId
from fedrec.plan.target_names import runs_for_targets, validate_targets, with_attacked_runs
from fedrec.plan.training_summary import training_summary

DEFAULT_TARGET = "all"
_MOST_REASONS = 5
SUMMARY_PRINTED = "FEDREC_SUMMARY_PRINTED"
"""The environment variable that tells Snakemake's process that the summary has been printed."""


@dataclass(frozen=True)
class WorkflowStart:
    """Targets and their runs, compared with the finished runs among the results."""

    project: Project
    targets: Sequence[str]
    runs: Sequence[RunId]
    unfinished: Sequence[RunId]
    """Runs to train."""
    outdated: Sequence[RunId]
    """Unfinished runs whose folder has a run.json: of another, a damaged or an incomplete run."""
    reasons: Sequence[str]
    """The reason why each outdated run is trained again."""
    outdated_splits: Sequence[str]
    """Files of splits, below the results, that follow another protocol than the configured one."""

    def summary(self, cores: int | None) -> str:
        """Summarise the runs to train on that many cores, with the reasons for training again."""
        text = training_summary(self.project, self.unfinished, self.targets, cores)
        return "\n".join([text, *first_lines(list(self._again()), _MOST_REASONS)])

    def _again(self) -> Iterator[str]:
        """Yield a line for each reason to train runs again, with their number."""
        reasons = Counter(self.reasons)
        for reason, count in reasons.most_common():
            yield f"  retrained: {count}, because {reason}"

    @property
    def forced_files(self) -> list[str]:
        """Files that Snakemake must make again.

        Snakemake compares the parameters of its own files only, and accepts any other file unchanged.
        """
        files = [*self.outdated_splits, *(f"{run.folder}/{SUMMARY}" for run in self.outdated)]
        return [self.project.result_path(file) for file in files]

    def write_run_list(self) -> None:
        """Write the list of all runs, finished or not, for `fedrec status`."""
        listed = listed_for(self.project, self.targets)
        write_text(self.project.results / RUN_LIST_FILE, list_text(listed))


def listed_for(project: Project, targets: Sequence[str]) -> list[ListedRun]:
    """All runs that targets need, finished or not."""
    targets = targets or [DEFAULT_TARGET]
    project = with_attacked_runs(project, targets)
    runs = runs_for_targets(project, targets)
    return [project.job(run).listed(project.results) for run in runs]


def prepare_start(project: Project, targets: Sequence[str]) -> WorkflowStart:
    """Check targets and compare their runs with the results; `ConfigurationError` names an unknown target."""
    targets = targets or [DEFAULT_TARGET]
    validate_targets(project, targets)
    project = with_attacked_runs(project, targets)
    runs = runs_for_targets(project, targets)
    matcher = RunMatcher()
    specs = {run: project.spec(run) for run in runs}
    matches = {run: matcher.match(spec) for run, spec in specs.items()}
    splits = {
        project.job(run).reads[0]: spec.split.is_file() and not matcher.has_split(spec)
        for run, spec in specs.items()
    }
    return WorkflowStart(
        project,
        targets,
        runs,
        unfinished=[run for run, match in matches.items() if not match.is_current],
        outdated=[run for run, match in matches.items() if match.is_outdated],
        reasons=[match.reason for match in matches.values() if match.is_outdated],
        outdated_splits=[file for file, is_outdated in splits.items() if is_outdated],
    )
