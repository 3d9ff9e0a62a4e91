"""Build the files of a target with the module of its layout."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedrec.errors import ConfigurationError
from fedrec.files.atomic import write_text
from fedrec.plan.layouts import layout_named
from fedrec.plan.project import Project
from fedrec.plan.runs import RunId
from fedrec.plan.targets import Target
from fedrec.reporting.tables.table import add_note
from fedrec.reporting.undated import add_undated_notes
from fedrec.runs.record import RunRecord

_NAMED = 20
"""The most lines that a remark names."""


def build(target: Target, project: Project) -> None:
    """Write all files of a target and its plan; the files that it reads must exist."""
    layout = layout_named(project.layouts, target.layout, target.name)
    module = importlib.import_module(layout.module)
    if not hasattr(module, "build"):
        raise ConfigurationError(
            f"{layout.module}: has no function build(target, project). Add it: every layout needs one."
        )
    left_out = _without_models(target, project) if "states" in layout.needs else []
    shown = replace(target, runs=tuple(run for run in target.runs if run not in {*left_out}))
    module.build(shown, project)
    if target.form == "table":
        add_undated_notes(target, project)
    if left_out:
        names = ", ".join(run.folder.removeprefix("runs/") for run in left_out)
        add_remark(target, project, f"Not shown, because these runs diverged and have no model: {names}.")
    if "lacking" in target.content:
        missing = in_short(target.content["lacking"])
        what = "their models are not measured yet" if "states" in layout.needs else "not run yet"
        add_remark(target, project, f"Not shown, because {what}: {missing}.")
    if "other_seeds" in target.content:
        lines = "; ".join(target.content["other_seeds"])
        add_remark(target, project, f"Lines with different seeds than most: {lines}.")
    if "older" in target.content:
        add_remark(target, project, older_text(target.content["older"], len(target.runs)))
    write_text(project.results / target.plan, target.as_json())


def in_short(names: Sequence[str]) -> str:
    """The first names, and the number of the others."""
    more = len(names) - _NAMED
    return "; ".join([*names[:_NAMED], *([f"and {more} others"] if more > 0 else [])])


def older_text(of_methods: Mapping[str, tuple[int, int]], runs: int) -> str:
    """Say how many of `runs` older code trained, by method."""
    whole = [name for name, (older, there) in of_methods.items() if older == there]
    parts = [f"{older} of {there} of {name}" for name, (older, there) in of_methods.items() if older < there]
    named = [*([f"all of {', '.join(whole)}"] if whole else []), *parts]
    older = sum(older for older, _ in of_methods.values())
    return f"Older code trained {older} of {runs} runs: {'; '.join(named)}."


def _without_models(target: Target, project: Project) -> list[RunId]:
    """The runs of a target that diverged, and so have no model."""
    return [run for run in target.runs if RunRecord(project.results / run.folder).diverged is not None]


def add_remark(target: Target, project: Project, sentence: str) -> None:
    """Add a sentence below a table, or to the caption of a figure; the page shows both."""
    stem = (project.results / target.files[0]).with_suffix("")
    if target.form == "table":
        add_note(stem, sentence)
    elif target.form == "figure":
        caption = stem.with_name(f"{stem.name}.txt")
        write_text(caption, f"{caption.read_text(encoding='utf-8').rstrip()}\n{sentence}\n")
