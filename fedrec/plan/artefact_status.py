"""The status of the papers' tables and figures: the runs they need, the runs that are done, and the cost."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedrec.config.papers import Artefact
from fedrec.config.reference import STORED_REFERENCE
from fedrec.plan.availability import without
from fedrec.plan.cost import duration
from fedrec.plan.project import Project
from fedrec.plan.run_matching import unfinished
from fedrec.plan.runs import RunId

_READ = (".md", ".svg")
"""Extensions of the files that a person can open without special software."""


@dataclass(frozen=True)
class ArtefactStatus:
    """A table or figure of a paper, and which of its runs are to be trained."""

    artefact: Artefact
    built: bool
    stored: Path | None
    """Its file among the reference results, as a path from the project's folder; None if there is none."""
    runs: tuple[RunId, ...]
    unfinished: frozenset[RunId]
    """The runs to train: missing or outdated ones."""
    seconds: float
    """Estimated training time of the unfinished runs on one CPU core, in seconds."""
    unavailable: Mapping[str, str]
    """The reason for each dataset or split of the artefact that is unavailable, by its name."""

    @property
    def done(self) -> int:
        """How many runs are done."""
        return sum(run not in self.unfinished for run in self.runs)


def artefact_status(project: Project, artefact: Artefact) -> ArtefactStatus:
    """The status of an artefact."""
    target = project.target(artefact.target)
    to_train = unfinished(project, target.runs)
    return ArtefactStatus(
        artefact,
        all((project.results / file).is_file() for file in target.files),
        _in_reference(project, target.files),
        tuple(target.runs),
        frozenset(to_train),
        sum(project.job(run).seconds for run in to_train),
        without(artefact, project.unavailable_to_papers(artefact.datasets)),
    )


def _in_reference(project: Project, files: Iterable[str]) -> Path | None:
    """The first of these files that people can read and that the reference has; None if it has none."""
    paths = (STORED_REFERENCE / file for file in files if Path(file).suffix in _READ)
    return next((path for path in paths if (project.root / path).is_file()), None)


def artefact_text(project: Project, artefact: Artefact, cores: int) -> str:
    """One artefact as text: its files, its runs by dataset and protocol, what is missing, cost, command."""
    status = artefact_status(project, artefact)
    target = project.target(artefact.target)
    lines = [
        f"{artefact.target}: {artefact.title} ({project.papers[artefact.paper].title}, {artefact.layout})",
        f"    {'built' if status.built else 'not built'}: "
        + ", ".join(str(Path(project.configuration["results"]) / file) for file in target.files),
        *([f"    in the reference runs: {status.stored}"] if status.stored else []),
        f"    {_runs(status)}",
    ]
    done: dict[tuple[str, str], list[bool]] = {}
    for run in status.runs:
        done.setdefault((run.dataset, run.protocol), []).append(run not in status.unfinished)
    lines += [
        f"        {dataset}, {protocol}: {sum(states)} of {len(states)} done"
        for (dataset, protocol), states in done.items()
    ]
    lines += [f"    left out: {name}: {why}" for name, why in status.unavailable.items()]
    if status.seconds:
        spread = duration(status.seconds / cores).replace("core-", "")
        lines.append(
            f"    left to train: about {duration(status.seconds)} on a CPU, {spread} on {cores} "
            f"{'core' if cores == 1 else 'cores'}; far less on a GPU"
        )
    return "\n".join([*lines, f"    build it with: snakemake --cores {cores} {artefact.target}"])


def list_artefacts(project: Project, artefacts: Iterable[Artefact]) -> str:
    """The status of artefacts as text, paper by paper."""
    statuses = [artefact_status(project, artefact) for artefact in artefacts]
    lines = []
    for paper in project.papers.values():
        of_paper = [status for status in statuses if status.artefact.paper == paper.name]
        if not of_paper:
            continue
        lines.append(f"{paper.title}: snakemake --cores 2 {paper.name}")
        lines += [line for status in of_paper for line in _lines(status)]
        lines += [
            f"  {paper.name + '_' + name:<16} a scheme without data, which fedrec does not build: {meaning}"
            for name, meaning in paper.schemes.items()
        ]
    return "\n".join(lines)


def _lines(status: ArtefactStatus) -> list[str]:
    artefact = status.artefact
    cost = f", about {duration(status.seconds)} left to train, far less on a GPU" if status.seconds else ""
    state = "built" if status.built else "not built"
    stored = [f"  {'':<16} in the reference runs: {status.stored}"] if status.stored else []
    left_out = [f"  {'':<16} left out: {name}: {why}" for name, why in status.unavailable.items()]
    return [
        f"  {artefact.target:<16} {artefact.title} ({artefact.layout}): {state}; {_runs(status)}{cost}",
        *stored,
        *left_out,
    ]


def _runs(status: ArtefactStatus) -> str:
    return f"{status.done} of {len(status.runs)} runs done" if status.runs else "needs no runs"
