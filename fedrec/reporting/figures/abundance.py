"""Information abundance of users' item tables, with users sorted by training rows."""

import numpy as np
from numpy.typing import NDArray

from fedrec.config.papers import Artefact
from fedrec.config.protocol import short_name
from fedrec.errors import ResultError
from fedrec.federation.observe.recorder import extras
from fedrec.federation.observe.spectrum import information_abundance
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import ArtefactRuns
from fedrec.reporting.figures.caption import inside_caption
from fedrec.reporting.figures.chart import Drawn, build_inside
from fedrec.reporting.figures.panels import COLOURS, TABLE_TITLES, panel_grid
from fedrec.reporting.tables.table import Row
from fedrec.runs.model_inspection import ModelInspection, own_table

LAYOUT = Layout("figure", needs=("runs", "states", "splits", "models"))


def build(target: Target, project: Project) -> None:
    """Draw the abundance of an artefact."""
    build_inside(target, project, draw)


def draw(subject: ArtefactRuns) -> Drawn:
    """Draw a panel per protocol: the information abundance of each user's tables, users by training rows."""
    artefact = subject.artefact
    figure, axes = panel_grid(1, len(subject.groups), 3.2, 2.4)
    for panel in axes[0][1:]:
        panel.sharey(axes[0][0])
    rows: list[Row] = []
    for panel, (key, group) in zip(axes[0], subject.groups.items(), strict=True):
        inside = ModelInspection(group[0])
        count = inside.run.clients.sizes.numpy()
        order = np.argsort(count, kind="stable")
        for colour, (name, values) in zip(COLOURS, _measures(artefact, inside).items(), strict=False):
            # Users outside the last round have no value.
            there = np.flatnonzero(np.isfinite(values[order]))
            shown = values[order][there]
            panel.scatter(there, shown, s=2, color=colour, alpha=0.35, linewidths=0, rasterized=True)
            panel.plot(there, _running(shown), color=colour, linewidth=1.3, label=name)
            rows += [
                {
                    "line": subject.label(artefact.lines[key[0]]), "dataset": key[1],
                    "protocol": key[2],
                    "place": index, "user": int(inside.run.clients.user[who]),
                    "training_rows": int(count[who]), "series": name, "abundance": values[who],
                }
                for index, who in enumerate(order)
            ]  # fmt: skip
        panel.set_title(short_name(key[2]))
        panel.set_xlabel("users, by training rows")
    axes[0][0].set_ylabel("information abundance")
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False)
    sentence = (
        "The sum of a table's singular values divided by the largest: each user (dots) and a running median."
    )
    return (
        figure,
        rows,
        inside_caption(artefact, subject.first_seed, sentence, "Users are sorted by training rows."),
    )


def _measures(artefact: Artefact, inside: ModelInspection) -> dict[str, NDArray[np.float64]]:
    if artefact.options["show"] == "tables":
        return {
            TABLE_TITLES[name]: inside.measured(name, information_abundance)
            for name in artefact.options["tables"]
        }
    records, name = extras(inside.run.tensors), own_table(inside.federation.method)
    if f"abundance/{name}/after" not in records:
        raise ResultError(
            f"{inside.run.folder}: abundance was not recorded. Train it with --record abundance."
        )
    moments = ("before", "after")
    return {f"{moment} local training": records[f"abundance/{name}/{moment}"].numpy() for moment in moments}


def _running(values: NDArray[np.float64], share: int = 20) -> NDArray[np.float64]:
    """The median of each value's neighbours, a `share`-th of all."""
    half = max(1, len(values) // share // 2)
    return np.array([np.median(values[max(0, at - half) : at + half + 1]) for at in range(len(values))])
