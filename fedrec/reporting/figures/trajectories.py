"""Trajectories: the vectors of users after each round, projected into one plane."""

from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize

from fedrec.config.papers import Line
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import ArtefactRuns
from fedrec.reporting.figures.caption import inside_caption
from fedrec.reporting.figures.chart import Drawn, build_inside
from fedrec.reporting.figures.panels import datasets_and_protocols, panel_grid, user_title
from fedrec.reporting.figures.projection import Points, projected, square
from fedrec.reporting.provenance import mean_over_seeds
from fedrec.reporting.tables.table import Row
from fedrec.runs.model_inspection import ModelInspection

LAYOUT = Layout("figure", needs=("runs", "states", "splits", "models"))
_PALE = "#D5D8DC"
_ROUNDS = "viridis"  # the colours of rounds


def build(target: Target, project: Project) -> None:
    """Draw the trajectories of an artefact."""
    build_inside(target, project, draw)


def draw(subject: ArtefactRuns) -> Drawn:
    """Draw a row of panels per user, a column per line."""
    artefact = subject.artefact
    name, users = artefact.options.get("vector", "p"), artefact.options["of"]
    grid = [
        (dataset, protocol, user)
        for dataset, protocol in datasets_and_protocols(artefact, subject.groups)
        for user in users
    ]
    figure, axes = panel_grid(len(grid), len(artefact.lines), 1.5, 1.4)
    rows: list[Row] = []
    last = 1
    above: tuple[str, str] | None = None
    for across, (dataset, protocol, user) in zip(axes, grid, strict=True):
        runs = [subject.groups[index, dataset, protocol][0] for index in range(len(artefact.lines))]
        paths = [ModelInspection(run).recorded("vectors", name, user).flatten(1).numpy() for run in runs]
        whole = projected(np.concatenate(paths))
        pieces = np.split(whole, np.cumsum([len(path) for path in paths])[:-1])
        last = max(last, *map(len, paths))
        for line, panel, piece in zip(artefact.lines, across, pieces, strict=True):
            for other in pieces:
                panel.plot(*other.T, color=_PALE, linewidth=0.5, zorder=1)
            _draw_path(panel, piece, last)
            square(panel)
            if above != (dataset, protocol):
                label = [subject.label(line)] if above is None else []
                panel.set_title("\n".join([*label, *_performance(subject, line, dataset, protocol)]))
            about = {"dataset": dataset, "protocol": protocol, "user": user, "line": subject.label(line)}
            rows += [
                about | {"round": round_, "x": x, "y": y}
                for round_, (x, y) in enumerate(piece.tolist(), start=1)
            ]
        across[0].set_ylabel(user_title(artefact, dataset, protocol, user))
        above = (dataset, protocol)
    scale = ScalarMappable(Normalize(1, last), _ROUNDS)
    figure.colorbar(scale, ax=axes.ravel().tolist(), label="round", shrink=0.6, aspect=30, pad=0.01)
    caption = inside_caption(
        artefact,
        subject.first_seed,
        f"Each panel follows the vector {name} of a user from its first round (ring) to its last (dot), "
        "coloured by round; pale: the other panels of its row. All vectors of a row are projected together "
        "(t-SNE, started from principal components), so that places can be compared along a row.",
    )
    return figure, rows, caption


def _draw_path(panel: Axes, points: Points, rounds: int) -> None:
    """Draw a line through the points, coloured by round, with a ring at its start and a dot at its end."""
    shade = ScalarMappable(Normalize(1, rounds), _ROUNDS)
    segments = np.stack((points[:-1], points[1:]), axis=1)
    colours = shade.to_rgba(np.arange(1, len(points)) + 0.5)
    panel.add_collection(LineCollection(list(segments), colors=colours, linewidths=1.4, zorder=2))
    first, last = shade.to_rgba(np.array([1.0, float(len(points))]))
    ends = partial(panel.plot, marker="o", markersize=4.5, linestyle="", zorder=3, markeredgewidth=1.3)
    ends(*points[:1].T, markerfacecolor="white", markeredgecolor=first)
    ends(*points[-1:].T, color=last)


def _performance(subject: ArtefactRuns, line: Line, dataset: str, protocol: str) -> list[str]:
    """The metrics of a line on a dataset under a protocol, one per line of text."""
    records = subject.groups[subject.artefact.lines.index(line), dataset, protocol]
    return [
        f"{name.upper()} {mean_over_seeds(record.metric(name) for record in records).mean:.3f}"
        for name in subject.artefact.metrics
    ]
