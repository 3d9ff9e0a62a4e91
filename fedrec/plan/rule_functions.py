"""The functions that rules of the workflow ask for their inputs, parameters and resources."""

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
from fedrec.plan.fingerprint import code_fingerprint
from fedrec.plan.idle_keys import idle_in_files, refuse_idle_keys
from fedrec.plan.last_words import LastWords
from fedrec.plan.output_cache import CACHE_VARIABLE, check_cache, unchecked_origin
from fedrec.plan.progress_lines import start_progress_lines
from fedrec.plan.project import Project, RunJob
from fedrec.plan.target_names import with_attacked_runs
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
    """Answers the rules from the project; Snakemake calls these functions while it plans."""

    def __init__(self, project: Project, *, uses_cache: bool = False) -> None:
        self.project = project
        self.cache = "omit-software" if uses_cache else False
        """What rules declare of the cache between checkouts. Rules name no software environment.

        Without a cache Snakemake would warn of each rule that declares one.
        """
        self.resources = ResourceEstimator(project)
        self._error_tail: LastWords | None = None

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
        """Read the project as Snakemake was asked to; an error ends the process with one message.

        Where keys are set on its command line, `targets` gives those that they must do something for.
        Snakemake would show an exception with lines of its rule files, which are right.
        """
        try:
            mirror = environment.get("FEDREC_MIRROR")
            project = load_project(files, changes, mirror)
            if not is_job:
                check_writable(Path())
                # Another machine that does a job may have no mirror, and most jobs need none.
                check_mirror(project.mirror)
            if changes and targets is not None and SUMMARY_PRINTED not in environment:
                load = partial(load_project, files, mirror=mirror)
                refuse_idle_keys(project, changes, targets(), load)
            if files and targets is not None and SUMMARY_PRINTED not in environment:
                warn_of_idle_keys(project, files, changes, targets(), mirror)
            if targets is not None and (named := targets()):
                project = with_attacked_runs(project, named)
            if uses_cache:
                check_cache(environment.get(CACHE_VARIABLE))
        except FedrecError as error:
            raise SystemExit(f"fedrec: {error}") from None
        return cls(project, uses_cache=uses_cache)

    def start(self, targets: Iterable[str], cores: int | None) -> None:
        """Print the runs to train, unless `fedrec run` did, and then how far they are.

        `fedrec run` has last words of its own, too.
        """
        targets = sorted(targets)
        if SUMMARY_PRINTED not in os.environ:
            start = prepare_start(self.project, targets)
            print(start.summary(cores), file=sys.stderr, flush=True)
            start.write_run_list()
            self._error_tail = LastWords(
                lambda: listed_for(self.project, targets), self.project.methods, sys.argv[1:]
            )
            self._error_tail.prepare()
        start_progress_lines(lambda: listed_for(self.project, targets), self.project.methods)

    def end(self) -> None:
        """Take note that everything is built."""
        if self._error_tail is not None:
            self._error_tail.cancel()

    def shell_prefix(self) -> str:
        """The shell text before every command: strict mode, as Snakemake's own prefix, and the environment.

        Jobs find the `fedrec` command of this Python there, the mirror, the configuration files, and whether
        diverged runs are kept. As parameters these would re-run jobs when a path alone changes.
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
        # Jobs are many processes: a module that one of them compiles, all others find.
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
        """Minutes that a run may take."""
        return self.resources.minutes(self.job(wildcards).run, attempt)

    def memory(self, wildcards: Wildcards, attempt: int) -> int:
        """MB that a run may take."""
        return self.resources.memory(self.job(wildcards).run, attempt)

    def origin(self, wildcards: Wildcards) -> str:
        """What decides a raw file, apart from its recipe, for cache keys."""
        file = self.project.catalogue.raw_file(wildcards.path)
        return unchecked_origin(file, self.project.mirror) if self.cache else ""

    def inputs(self, wildcards: Wildcards) -> list[str]:
        """Everything that a table, figure or page is made from."""
        return self.results(self.project.target(wildcards.target).inputs)

    def plan(self, wildcards: Wildcards) -> str:
        """The plan of a target: everything that decides it, apart from its inputs."""
        return self.project.target(wildcards.target).as_json()

    def priority(self, wildcards: Wildcards) -> int:
        """How early a table or figure is to be built."""
        return self.project.target(wildcards.target).priority

    def chapter(self, wildcards: Wildcards) -> str:
        """Where a target stands in the report of Snakemake."""
        return self.project.chapter_of(wildcards.target)


def warn_of_idle_keys(
    project: Project,
    files: Sequence[str | Path],
    changes: Mapping[str, Any],
    targets: Sequence[str],
    mirror: str | None,
) -> None:
    """Say which keys of configuration files change nothing of the targets."""
    configuration = read_configuration(_layers(files), changes)
    load = partial(load_project, files, mirror=mirror)
    for line in idle_in_files(project, configuration, changes, targets, load):
        print(f"fedrec: {line}", file=sys.stderr, flush=True)


def check_writable(folder: Path) -> None:
    """Raise `StorageError` where Snakemake cannot keep what it knows of a workflow in its folder."""
    kept = folder / ".snakemake"
    if not os.access(kept if kept.exists() else folder, os.W_OK):
        raise StorageError(
            f"{folder.absolute()}: cannot be written, and Snakemake needs to write its state there, in "
            ".snakemake. Copy the project to a folder that you can write to, or change the permissions of "
            "this one."
        )


def load_project(files: Sequence[str | Path], changes: Mapping[str, Any], mirror: str | None) -> Project:
    """The project of this checkout, with files and values of a command line over its configuration.

    As for Snakemake, the file of a command line may replace a configuration that does not exist.
    """
    configuration = read_configuration(_layers(files), changes)
    return Project.load(configuration, mirror=Path(mirror) if mirror else None)


def _layers(files: Sequence[str | Path]) -> list[Path]:
    """The files of a configuration, the checkout's own first."""
    own = [CONFIGURATION] if CONFIGURATION.exists() or not files else []
    return [*own, *map(Path, files)]
