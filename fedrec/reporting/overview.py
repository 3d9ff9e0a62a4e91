"""What the papers' tables and figures need, what of it is there, and what the rest would cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrec.config.catalogue import Catalogue, Dataset
from fedrec.config.methods import resolve
from fedrec.config.names import parse
from fedrec.config.papers import UNTRAINED, Artefact, Paper
from fedrec.plan.runs import RunId
from fedrec.plan.selection import runs_of

_ROWS = 100_000
"""Rows of the dataset that the methods' seconds were measured on."""
_MADE = 20
"""Rows of a made user."""
_USUAL = 5.0
"""Seconds of a round where a method's entry has none."""


@dataclass(frozen=True)
class Standing:
    """An artefact and how far it is."""

    artefact: Artefact
    built: bool
    runs: int
    done: int
    hours: float
    """Of one CPU core, for the runs that are not done; a rough guess."""
    missing: Mapping[str, str]
    """Datasets that cannot be had, and why."""


def standing(
    artefact: Artefact, methods: Mapping[str, Any], catalogue: Catalogue, results: Path,
    seeds: Sequence[int], unavailable: Mapping[str, str],
) -> Standing:  # fmt: skip
    """How far an artefact is."""
    groups = {} if artefact.layout in UNTRAINED else runs_of(artefact, methods, seeds, unavailable)
    runs = {run for group in groups.values() for run in group}
    open_ = {run for run in runs if not (results / run.folder / "run.json").is_file()}
    return Standing(
        artefact,
        all((results / file).is_file() for file in artefact.files),
        len(runs),
        len(runs) - len(open_),
        sum(seconds_of(run, methods, catalogue) for run in open_) / 3600,
        {name: unavailable[name] for name in artefact.datasets if name in unavailable},
    )


def seconds_of(run: RunId, methods: Mapping[str, Any], catalogue: Catalogue) -> float:
    """About how long a run takes on one CPU core.

    From the seconds of a round that `config/methods.yaml` holds, for as many rounds, epochs and rows.
    """
    composition = parse(run.method)
    names = [composition.backbone] + ([f"+{composition.plugin}"] if composition.plugin else [])
    values, _, _ = resolve(methods, run.method, run.paper, run.dataset)
    usual, _, _ = resolve(methods, composition.name, None, run.dataset)
    epochs = values.get("local_epochs", 1) / usual.get("local_epochs", 1)
    share = values.get("participation", 1) / usual.get("participation", 1)
    rows = _rows(catalogue[run.dataset]) / _ROWS
    seconds = sum(methods[name].get("seconds", _USUAL) for name in names)
    return float(seconds * values["rounds"] * epochs * share * rows)


def _rows(dataset: Dataset) -> int:
    """About how many rows a dataset has: as printed, of so many made users, or as many as is usual."""
    if dataset.synthetic is not None:
        return _MADE * dataset.synthetic.users
    return next((one.interactions for one in dataset.published.values() if one.interactions), _ROWS)


def listed(papers: Mapping[str, Paper], found: Sequence[Standing]) -> str:
    """The standings as text, paper by paper."""
    lines = []
    for paper in papers.values():
        lines.append(f"{paper.title}: snakemake {paper.name}")
        lines += [line for one in found if one.artefact.paper == paper.name for line in _lines(one)]
        lines += [
            f"  {paper.name + '_' + name:<16} shows no data, not built: {what}"
            for name, what in paper.schemes.items()
        ]
    return "\n".join(lines)


def _lines(one: Standing) -> list[str]:
    runs = f"{one.done} of {one.runs} runs done" if one.runs else "needs no runs"
    cost = f", about {one.hours:.1f} h of a core to go" if one.hours else ""
    said = (
        f"{one.artefact.title} ({one.artefact.layout}): {'built' if one.built else 'not built'}; {runs}{cost}"
    )
    missing = [f"  {'':<16} without {name}: {why}" for name, why in one.missing.items()]
    return [f"  {one.artefact.target:<16} {said}", *missing]
