"""The project of the repository with other results, papers or layouts, for tests that build targets."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fedrec.config.papers import Artefact, Paper
from fedrec.plan.project import Project
from fedrec.plan.runs import RunId
from fedrec.plan.targets import Target, files_of
from fedrec.reporting.build import build
from tests.conftest import ROOT


@cache
def _own() -> Project:
    configuration = yaml.safe_load((ROOT / "config/config.yaml").read_text(encoding="utf-8"))
    return Project.load(configuration, ROOT)


def project_with(
    results: Path, unavailable: Mapping[str, str] | None = None, *artefacts: Artefact, **configuration: Any
) -> Project:
    """The project with its results in another folder, where all data but `unavailable` is taken as available.

    With `artefacts`, their papers have no others.
    """
    own = _own()
    papers: dict[str, Paper] = dict(own.papers)
    for name in {artefact.paper for artefact in artefacts}:
        of_paper = {one.name: one for one in artefacts if one.paper == name}
        papers[name] = replace(papers[name], artefacts=of_paper)
    changed = {**own.configuration, "results": str(results), **configuration}
    project = replace(own, configuration=changed, papers=papers)
    known = {*own.catalogue, *(name for artefact in artefacts for name in artefact.datasets)}
    project._unavailable.update({name: {} for name in known})
    for name, reason in (unavailable or {}).items():
        project._unavailable.setdefault(name.partition("/")[0], {})[name] = reason
    return project


def build_artefact(
    results: Path, artefact: Artefact, seeds: Sequence[int] = (0,), **unavailable: str
) -> None:
    """Plan and build one table or figure of a paper, from the runs below `results`."""
    project = project_with(results, unavailable, artefact, seeds=list(seeds))
    build(project.target(artefact.target), project)


def build_target(
    results: Path,
    layout: str,
    name: str,
    runs: Iterable[RunId] = (),
    reads: Iterable[str] = (),
    **content: Any,
) -> None:
    """Build a target of our own that nobody planned, from the runs below `results`."""
    project = project_with(results)
    form = project.layouts[layout].form
    build(
        Target(name, form, layout, files_of(form, name), tuple(runs), tuple(reads), content, "f" * 64),
        project,
    )
