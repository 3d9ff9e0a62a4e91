"""What the papers' tables and figures need, what of it is done, and what the rest would cost."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedrec.config.papers import Artefact
from fedrec.config.reference import STORED_REFERENCE
from fedrec.plan.available import without
from fedrec.plan.cost import duration
from fedrec.plan.project import Project
from fedrec.plan.runs import SUMMARY, RunId

_READ = (".md", ".svg")
"""How files end that are read as they are."""


@dataclass(frozen=True)
class Standing:
    """A table or figure of a paper and how far it is."""

    artefact: Artefact
    built: bool
    stored: Path | None
    """Where it can be read as it was built from the runs of the reference, from the project's folder."""
    runs: int
    done: int
    seconds: float
    """Of one CPU core, for the runs that are not done; a rough guess."""
    missing: Mapping[str, str]
    """Why datasets of it, or their published splits, are unavailable."""


def standing(project: Project, artefact: Artefact) -> Standing:
    """How far an artefact is."""
    target = project.target(artefact.target)
    open_runs = [run for run in target.runs if not _is_done(project, run)]
    return Standing(
        artefact,
        all((project.results / file).is_file() for file in target.files),
        _in_reference(project, target.files),
        len(target.runs),
        len(target.runs) - len(open_runs),
        sum(project.job(run).seconds for run in open_runs),
        without(artefact, project.unavailable_to_papers(artefact.datasets)),
    )


def _in_reference(project: Project, files: Iterable[str]) -> Path | None:
    """The file of them that the reference shows to readers; None where it has none."""
    found = (STORED_REFERENCE / file for file in files if Path(file).suffix in _READ)
    return next((path for path in found if (project.root / path).is_file()), None)


def _is_done(project: Project, run: RunId) -> bool:
    return (project.results / run.folder / SUMMARY).is_file()


def standing_text(project: Project, artefact: Artefact, cores: int) -> str:
    """One artefact as text: its files, its runs by dataset and protocol, what is missing, cost, command."""
    one = standing(project, artefact)
    target = project.target(artefact.target)
    lines = [
        f"{artefact.target}: {artefact.title} ({project.papers[artefact.paper].title}, {artefact.layout})",
        f"    {'built' if one.built else 'not built'}: "
        + ", ".join(str(Path(project.configuration["results"]) / file) for file in target.files),
        *([f"    the reference has it: {one.stored}"] if one.stored else []),
        f"    {_runs(one)}",
    ]
    done: dict[tuple[str, str], list[bool]] = {}
    for run in target.runs:
        done.setdefault((run.dataset, run.protocol), []).append(_is_done(project, run))
    lines += [
        f"        {dataset}, {protocol}: {sum(states)} of {len(states)} done"
        for (dataset, protocol), states in done.items()
    ]
    lines += [f"    without {name}, unavailable: {why}" for name, why in one.missing.items()]
    if one.seconds:
        spread = duration(one.seconds / cores).replace("core-", "")
        lines.append(
            f"    to go: about {duration(one.seconds)}, which is {spread} on {cores} "
            f"{'core' if cores == 1 else 'cores'}; with a GPU, far less"
        )
    return "\n".join([*lines, f"    build it: snakemake --cores {cores} {artefact.target}"])


def listing(project: Project, artefacts: Iterable[Artefact]) -> str:
    """The standings of artefacts as text, paper by paper."""
    standings = [standing(project, artefact) for artefact in artefacts]
    lines = []
    for paper in project.papers.values():
        own = [standing_ for standing_ in standings if standing_.artefact.paper == paper.name]
        if not own:
            continue
        lines.append(f"{paper.title}: snakemake --cores 2 {paper.name}")
        lines += [line for standing_ in own for line in _lines(standing_)]
        lines += [
            f"  {paper.name + '_' + name:<16} shows no data, not built: {what}"
            for name, what in paper.schemes.items()
        ]
    return "\n".join(lines)


def _lines(standing: Standing) -> list[str]:
    artefact = standing.artefact
    cost = f", about {duration(standing.seconds)} to go, on a GPU far less" if standing.seconds else ""
    state = "built" if standing.built else "not built"
    stored = [f"  {'':<16} the reference has it: {standing.stored}"] if standing.stored else []
    missing = [f"  {'':<16} without {name}, unavailable: {why}" for name, why in standing.missing.items()]
    return [
        f"  {artefact.target:<16} {artefact.title} ({artefact.layout}): {state}; {_runs(standing)}{cost}",
        *stored,
        *missing,
    ]


def _runs(standing: Standing) -> str:
    return f"{standing.done} of {standing.runs} runs done" if standing.runs else "needs no runs"
