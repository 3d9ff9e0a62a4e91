"""Write the settings that finished searches found into `config/found.yaml`, by the rule of their tables."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fedrec.config.default_files import file_or_default
from fedrec.config.document import Document
from fedrec.config.found_file import findings_text, with_findings
from fedrec.config.method_entries import Finding
from fedrec.config.methods import Methods, resolve
from fedrec.config.names import parse
from fedrec.config.schema import load
from fedrec.config.tuning import Search, finding_mistakes, fixed_settings
from fedrec.files.atomic import write_text
from fedrec.plan.project import Project
from fedrec.plan.trial_results import trial_validation
from fedrec.reporting.build import build
from fedrec.reporting.tables.tuning import trial_results

_DIGITS = 4
"""Significant digits of the stored validation metric."""


@dataclass(frozen=True)
class Adoption:
    """The results of searches, by the names of their targets."""

    found: Mapping[str, Finding]
    lacking: Mapping[str, str]
    """The trials that an unfinished search lacks, as text."""
    stale: Mapping[str, str] = field(default_factory=dict)
    """The reason why an earlier or new finding no longer holds, by method and dataset."""


def collect(project: Project, names: Iterable[str]) -> Adoption:
    """Collect the findings of the finished searches among `names`."""
    findings: dict[str, Finding] = {}
    lacking: dict[str, str] = {}
    for name in names:
        why = _lacking(name, project)
        if why:
            lacking[name] = why
        else:
            findings[name] = _finding(name, project)
    return Adoption(findings, lacking)


def adopt(project: Project, adoption: Adoption) -> Adoption:
    """Write the findings, and the table of each search.

    Findings that were made with settings that have changed since are removed, and listed as stale.
    """
    written = Path(project.configuration["found_file"])
    before = file_or_default(written, project.root)
    content = {key: dict(datasets) for key, datasets in load(before, "found").content.items()}
    for name, one in adoption.found.items():
        search = project.tuning.searches[name]
        content.setdefault(search.key, {})[search.dataset] = asdict(one)
    stale: dict[str, str] = {}
    while mistakes := finding_mistakes(content, _methods_with(content, project), project.tuning):
        for mistake in mistakes:
            # The file was checked before: only fixed settings can have changed since.
            key, dataset = map(str, mistake.key[:2])
            stale.setdefault(f"{key} on {dataset}", mistake.text)
            content[key].pop(dataset, None)
        content = {key: datasets for key, datasets in content.items() if datasets}
    findings = {
        key: {dataset: Finding(**one) for dataset, one in datasets.items()}
        for key, datasets in content.items()
    }
    for name in adoption.found:
        target = project.target(name)
        build(target, project)
        write_text(project.results / target.plan, target.as_json())
    write_text(project.root / written, findings_text(before.read_text(encoding="utf-8"), findings))
    return replace(adoption, stale=stale)


def _methods_with(content: Mapping[str, Any], project: Project) -> Methods:
    return Methods(with_findings(project.methods, Document("what was found", dict(content))))


def _lacking(name: str, project: Project) -> str:
    """The trials that a search lacks before a setting can be chosen, as text; empty if it is finished."""
    target = project.target(name)
    unavailable: Mapping[str, str] = target.content["unavailable"]
    if unavailable:
        return "; ".join(f"{what}: {why}" for what, why in unavailable.items())
    validation_of = trial_validation(project, exact=project.tuning.searches[name].exact)
    last = target.content["stages"][-1]
    folders = {folder for runs in last["runs"].values() for folder in runs}
    runs = [run for run in target.runs if run.folder in folders]
    left = sum(validation_of(run) is None for run in runs)
    if left:
        length = "all rounds" if last["rounds"] is None else f"{last['rounds']} rounds"
        with_seeds = f" with {seeds} seeds" if (seeds := len(runs) // len(last["runs"])) > 1 else ""
        what = "runs" if with_seeds else "trials"
        return f"{left} of {len(runs)} {what} of {length}{with_seeds} are not finished here"
    return ""


def _finding(name: str, project: Project) -> Finding:
    content, search = project.target(name).content, project.tuning.searches[name]
    best = trial_results(content, project)[0]
    return Finding(
        trials=len(content["trials"]),
        settings=_values(search, best.values, project),
        held=fixed_settings(search, project.methods),
        seeds=len(best.records),
        validation=float(f"{best.score:.{_DIGITS}g}"),
    )


def _values(search: Search, texts: Mapping[str, str], project: Project) -> dict[str, Any]:
    """Values as the methods file has them, from their spelling in the names of runs."""
    name = str(parse(search.method).with_changes(texts))
    values, _, _ = resolve(project.methods, name, search.paper, search.dataset)
    return {setting: values[setting] for setting in texts}
