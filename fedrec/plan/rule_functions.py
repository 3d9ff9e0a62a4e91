"""The functions from which Snakemake's rules get their inputs, parameters and resources."""

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Self

from fedrec.config.configuration import read_configuration
from fedrec.errors import FedrecError, StorageError
from fedrec.files.atomic import canonical_json
from fedrec.plan.availability import check_mirror
from fedrec.plan.cluster_resources import ResourceEstimator
from fedrec.plan.exit_message import ExitMessage
from fedrec.plan.fingerprint import code_fingerprint
from fedrec.plan.output_cache import CACHE_VARIABLE, check_cache, unchecked_origin
from fedrec.plan.progress_lines import start_progress_lines
from fedrec.plan.project import Project, RunJob
from fedrec.plan.target_names import with_attacked_runs
from fedrec.plan.unused_keys import refuse_unused_keys, unused_in_files
from fedrec.plan.workflow_start import SUMMARY_PRINTED, listed_for, prepare_start

CONFIGURATION = Path("config/config.yaml")
"""The configuration of a checkout."""


class Wildcards(Protocol):
    """The wildcards of a Snakemake job, by name."""

    path: str
    target: str
    protocol: str

    def items(self) -> Iterable[tuple[str, str]]:
        """Their names and values."""
        ...


class RuleFunctions:
    """Input, parameter and resource functions of the rules; Snakemake calls them while it plans."""

    def __init__(self, project: Project, *, uses_cache: bool = False) -> None:
        self.project = project
        self.cache = "omit-software" if uses_cache else False
        """The value of the rules' `cache` directive. `omit-software`: no rule has a software environment.

        False without a cache, because Snakemake would warn about each rule that declares one.
        """
        self.resources = ResourceEstimator(project)
        self._exit_message: ExitMessage | None = None

    @classmethod
    def load(
        cls,
        files: Sequence[str | Path],
        changes: Mapping[str, Any],
        environment: Mapping[str, str],
        *,
        uses_cache: bool,
        is_job: bool = False,
        targets: Callable[[], Sequence[str]] | None = None,
    ) -> Self:
        """Read the project for a call of Snakemake; an error ends the process with one message.

        Keys on Snakemake's command line must have an effect on the `targets`. An exception would make
        Snakemake print lines of its rule files, which are correct.
        """
        try:
            mirror = environment.get("FEDREC_MIRROR")
            project = load_project(files, changes, mirror)
            if not is_job:
                check_writable(Path())
                # Not for a cluster job: its machine may have no mirror, and most jobs need none.
                check_mirror(project.mirror)
            if changes and targets is not None and SUMMARY_PRINTED not in environment:
                load = partial(load_project, files, mirror=mirror)
                refuse_unused_keys(project, changes, targets(), load)
            if files and targets is not None and SUMMARY_PRINTED not in environment:
                warn_of_unused_keys(project, files, changes, targets(), mirror)
            if targets is not None and (named := targets()):
                project = with_attacked_runs(project, named)
            if uses_cache:
                check_cache(environment.get(CACHE_VARIABLE))
        except FedrecError as error:
            raise SystemExit(f"fedrec: {error}") from None
        return cls(project, uses_cache=uses_cache)

    def start(self, targets: Iterable[str], cores: int | None) -> None:
        """Print the runs to train, and then their progress.

        If `fedrec run` started Snakemake, it prints the summary and the exit message itself.
        """
        targets = sorted(targets)
        if SUMMARY_PRINTED not in os.environ:
            start = prepare_start(self.project, targets)
            print(start.summary(cores), file=sys.stderr, flush=True)
            start.write_run_list()
            self._exit_message = ExitMessage(
                lambda: listed_for(self.project, targets), self.project.methods, sys.argv[1:]
            )
            self._exit_message.register()
        start_progress_lines(lambda: listed_for(self.project, targets), self.project.methods)

    def end(self) -> None:
        """Cancel the exit message: everything is built."""
        if self._exit_message is not None:
            self._exit_message.cancel()

    def shell_prefix(self) -> str:
        """The shell text before every command: strict mode, as in Snakemake's prefix, and the environment.

        The environment has the path of this Python's `fedrec`, the mirror, the configuration files, and the
        choice for diverged runs. As parameters they would re-run jobs when only a path changes.
        """
        configuration = self.project.configuration
        variables = {
            "FEDREC_MIRROR": self.project.mirror or "",
            "FEDREC_CATALOGUE": configuration["catalogue"],
            "FEDREC_PROTOCOLS": configuration["protocol_file"],
            "FEDREC_METHODS": configuration["method_file"],
            "FEDREC_FOUND": configuration["found_file"],
            "FEDREC_DIVERGED": configuration["diverged"],
        }
        exports = " ".join(f"{name}={shlex.quote(str(value))}" for name, value in variables.items())
        folder = shlex.quote(str(Path(sys.executable).parent))
        # Jobs are many processes. They share the bytecode that one of them compiles.
        return f"set -euo pipefail; unset PYTHONDONTWRITEBYTECODE; export PATH={folder}:$PATH {exports}; "

    def results(self, files: Iterable[str]) -> list[str]:
        """Paths below the results folder."""
        return [self.project.result_path(file) for file in files]

    def job(self, wildcards: Wildcards) -> RunJob:
        """The training run that a path names."""
        return self.project.job(self.project.run_at(**dict(wildcards.items())))

    def splits(self, wildcards: Wildcards) -> list[str]:
        """The files that a training run reads."""
        return self.results(self.job(wildcards).reads)

    def split_code(self, wildcards: Wildcards) -> str:
        """The fingerprint of the code that splits by a protocol, with that of cuts where there is one."""
        cut = self.project.protocol(wildcards.protocol).cut
        return code_fingerprint("fedrec.data.split" if cut is None else "fedrec.data.temporal")

    def settings(self, wildcards: Wildcards) -> str:
        """The settings of a training run, as text."""
        return canonical_json(self.job(wildcards).settings)

    def group(self, wildcards: Wildcards) -> str | None:
        """The group of runs that share a cluster job."""
        return self.resources.group(self.job(wildcards).run)

    def minutes(self, wildcards: Wildcards, attempt: int) -> int:
        """Time limit of a run's job, in minutes."""
        return self.resources.minutes(self.job(wildcards).run, attempt)

    def memory(self, wildcards: Wildcards, attempt: int) -> int:
        """Memory limit of a run's job, in MB."""
        return self.resources.memory(self.job(wildcards).run, attempt)

    def origin(self, wildcards: Wildcards) -> str:
        """Cache key of a raw file in addition to its recipe."""
        file = self.project.catalogue.raw_file(wildcards.path)
        return unchecked_origin(file, self.project.mirror) if self.cache else ""

    def inputs(self, wildcards: Wildcards) -> list[str]:
        """The input files of a table, figure or page."""
        return self.results(self.project.target(wildcards.target).inputs)

    def plan(self, wildcards: Wildcards) -> str:
        """The plan of a target: everything that decides it, apart from its inputs."""
        return self.project.target(wildcards.target).as_json()

    def priority(self, wildcards: Wildcards) -> int:
        """Snakemake's priority of a table or figure."""
        return self.project.target(wildcards.target).priority

    def chapter(self, wildcards: Wildcards) -> str:
        """The category of a target in Snakemake's report."""
        return self.project.chapter_of(wildcards.target)


def warn_of_unused_keys(
    project: Project,
    files: Sequence[str | Path],
    changes: Mapping[str, Any],
    targets: Sequence[str],
    mirror: str | None,
) -> None:
    """Warn about keys of configuration files without an effect on the targets."""
    configuration = read_configuration(_layers(files), changes)
    load = partial(load_project, files, mirror=mirror)
    for line in unused_in_files(project, configuration, changes, targets, load):
        print(f"fedrec: {line}", file=sys.stderr, flush=True)


def check_writable(folder: Path) -> None:
    """Raise `StorageError` if Snakemake cannot write its state, the folder `.snakemake`."""
    state = folder / ".snakemake"
    if not os.access(state if state.exists() else folder, os.W_OK):
        raise StorageError(
            f"{folder.absolute()}: cannot be written, and Snakemake needs to write its state there, in "
            ".snakemake. Copy the project to a folder that you can write to, or change the permissions of "
            "this one."
        )


def load_project(files: Sequence[str | Path], changes: Mapping[str, Any], mirror: str | None) -> Project:
    """The project of this checkout; `files` and `changes` of a command line override its configuration.

    As in Snakemake, a file of the command line can replace a missing `config/config.yaml`.
    """
    configuration = read_configuration(_layers(files), changes)
    return Project.load(configuration, mirror=Path(mirror) if mirror else None)


def _layers(files: Sequence[str | Path]) -> list[Path]:
    """The files of a configuration, that of the checkout first."""
    checkout = [CONFIGURATION] if CONFIGURATION.exists() or not files else []
    return [*checkout, *map(Path, files)]
