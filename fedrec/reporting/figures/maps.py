"""Maps of item tables: a user's items in a plane with training items marked, and singular values."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from fedrec.config.papers import Artefact, Line
from fedrec.federation.observe.spectrum import singular_values
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import ArtefactRuns
from fedrec.reporting.figures.caption import inside_caption
from fedrec.reporting.figures.chart import Drawn, build_inside
from fedrec.reporting.figures.panels import (
    COLOURS,
    TABLE_TITLES,
    datasets_and_protocols,
    panel_grid,
    user_title,
)
from fedrec.reporting.figures.projection import projected, square
from fedrec.reporting.tables.table import Row
from fedrec.runs.model_inspection import ModelInspection

LAYOUT = Layout("figure", needs=("runs", "states", "splits", "models"), has_rows_of_data=True)
_ITEM_STYLES: Mapping[str, Mapping[str, Any]] = {
    "other": {"color": "#8FB3D9", "s": 3, "alpha": 0.6, "marker": "o", "label": "other items"},
    "training": {"color": "#C1272D", "s": 7, "alpha": 0.9, "marker": "o", "label": "training items"},
    "held out": {"color": "#F0A202", "s": 26, "alpha": 1.0, "marker": "D", "label": "validation and test"},
    "user": {"color": "#1B9E3E", "s": 90, "alpha": 1.0, "marker": "*", "label": "the user"},
}


@dataclass(frozen=True)
class _Panel:
    """The content of a panel of a map."""

    dataset: str
    protocol: str
    user: int
    line: str
    table: str


def build(target: Target, project: Project) -> None:
    """Draw the maps of an artefact."""
    build_inside(target, project, draw)


def draw(subject: ArtefactRuns) -> Drawn:
    """Draw a row of panels per user, a column per table."""
    artefact, options = subject.artefact, subject.artefact.options
    columns = list(_columns(artefact))
    spectrum = int(options.get("spectrum", False))
    grid = [
        (dataset, protocol, user)
        for dataset, protocol in datasets_and_protocols(artefact, subject.groups)
        for user in options["of"]
    ]
    figure, axes = panel_grid(len(grid), len(columns) + spectrum)
    rows: list[Row] = []
    opened = {key: ModelInspection(group[0]) for key, group in subject.groups.items()}
    for across, (dataset, protocol, user) in zip(axes, grid, strict=True):
        tables = []
        for (index, line, table), panel in zip(columns, across[spectrum:], strict=True):
            inside, label = opened[index, dataset, protocol], subject.label(line)
            where = _Panel(dataset, protocol, user, label, table)
            points = inside.table(table, user).double()
            tables.append((where, points))
            rows += _draw_map(panel, inside, points, where, options)
            if panel in axes[0]:
                heading = TABLE_TITLES[table]
                panel.set_title(f"{label}\n{heading}" if len(artefact.lines) > 1 else heading)
        if spectrum:
            rows += _draw_spectrum(across[0], tables)
        across[spectrum].set_ylabel(user_title(artefact, dataset, protocol, user))
    if spectrum:
        axes[-1][0].set_xlabel("dimension")
    marks = [name for name in _ITEM_STYLES if any(row.get("mark") == name for row in rows)]
    figure.legend(
        handles=[_handle(name) for name in marks], loc="outside lower center", ncols=4, frameon=False
    )
    caption = inside_caption(
        artefact,
        subject.first_seed,
        "Items of each table in a plane (t-SNE, started from principal components), the user's training "
        "items marked"
        + (", and its held-out items" if options.get("held_out") else "")
        + (f"; the user's vector {options['vector']} is projected with them" if "vector" in options else "")
        + "."
        + (" Left: the logarithm of the tables' singular values." if spectrum else ""),
    )
    return figure, rows, caption


def _columns(artefact: Artefact) -> Iterator[tuple[int, Line, str]]:
    for index, line in enumerate(artefact.lines):
        for table in line.tables or artefact.options["tables"]:
            yield index, line, table


def _draw_map(
    panel: Axes, inside: ModelInspection, points: torch.Tensor, where: _Panel, options: Mapping[str, Any]
) -> list[Row]:
    marks = inside.marks(where.user, held_out=bool(options.get("held_out", False)))
    if "vector" in options:
        index = inside.run.client_index([where.user])
        vector = inside.federation.state.client_tensors[options["vector"]].whole(index).flatten(1)
        points, marks = torch.cat((points, vector.double())), np.append(marks, "user")
    flat = projected(points.numpy())
    for front, (mark, style) in enumerate(_ITEM_STYLES.items(), start=1):
        chosen = flat[marks == mark]
        if len(chosen):
            edge = {"edgecolors": "white", "linewidths": 0.4} if style["s"] > 20 else {"linewidths": 0}
            panel.scatter(chosen[:, 0], chosen[:, 1], zorder=front, rasterized=True, **style, **edge)
    square(panel)
    return [
        vars(where) | {"item": "" if mark == "user" else item, "mark": mark, "x": x, "y": y}
        for item, ((x, y), mark) in enumerate(zip(flat.tolist(), marks.tolist(), strict=True))
    ]


def _draw_spectrum(panel: Axes, tables: Sequence[tuple[_Panel, torch.Tensor]]) -> list[Row]:
    """Singular values of tables, largest first, as logarithms."""
    rows: list[Row] = []
    for colour, (where, table) in zip(COLOURS, tables, strict=False):
        values = singular_values(table).flip(0).clamp(min=1e-12).log().tolist()
        dimensions = range(1, len(values) + 1)
        panel.plot(dimensions, values, color=colour, linewidth=1.2, label=TABLE_TITLES[where.table])
        rows += [
            vars(where) | {"dimension": dimension, "log_singular_value": value}
            for dimension, value in zip(dimensions, values, strict=True)
        ]
    panel.set_ylabel("log singular value")
    panel.legend(frameon=False, fontsize=6)
    return rows


def _handle(name: str) -> Line2D:
    style = _ITEM_STYLES[name]
    return Line2D(
        [],
        [],
        color=style["color"],
        marker=style["marker"],
        linestyle="",
        markersize=max(4.0, float(style["s"]) ** 0.5),
        label=style["label"],
    )
