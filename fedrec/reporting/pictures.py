"""Figures that look inside trained models: trajectories of user vectors and maps of item tables.

`draw` is the entry of all of them; heat maps, abundance and inference are in `insights`. Of several seeds
these figures show the first.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from sklearn.manifold import TSNE

from fedrec.config.papers import Artefact, Line
from fedrec.errors import ResultError
from fedrec.federation.observe.spectrum import singular_values
from fedrec.reporting.canvas import (
    COLOURS,
    PALE,
    TABLES,
    bare,
    caption,
    panels,
    places,
    write,
)
from fedrec.reporting.insights import abundance, heatmaps, inference
from fedrec.reporting.plotted import label_of
from fedrec.reporting.results import Result, spread
from fedrec.reporting.style import theme
from fedrec.reporting.tables import Row
from fedrec.runs.inside import Inside

Points = NDArray[np.float64]
Found = Mapping[tuple[int, str, str], Sequence[Result]]
_MARKS: Mapping[str, Mapping[str, Any]] = {
    "other": {"color": "#8FB3D9", "s": 3, "alpha": 0.6, "marker": "o", "label": "other items"},
    "training": {"color": "#C1272D", "s": 7, "alpha": 0.9, "marker": "o", "label": "training items"},
    "held out": {"color": "#F0A202", "s": 26, "alpha": 1.0, "marker": "D", "label": "validation and test"},
    "user": {"color": "#1B9E3E", "s": 90, "alpha": 1.0, "marker": "*", "label": "the user"},
}
_ROUNDS = "viridis"


def draw(artefact: Artefact, found: Found, methods: Mapping[str, Any], stem: Path) -> None:
    """Draw one of the figures that look inside models; see `canvas.write` for the files."""
    if not found:
        raise ResultError(f"{artefact.target}: there is no run to show. Are its datasets at hand?")
    layout = {
        "trajectories": trajectories,
        "maps": maps,
        "heatmaps": heatmaps,
        "abundance": abundance,
        "inference": inference,
    }[artefact.layout]
    with theme():
        write(stem, *layout(artefact, found, methods))


def projected(points: Points) -> Points:
    """A plane in which near points stay near (t-SNE); equal points stay equal."""
    distinct, place = np.unique(points.astype(np.float32), axis=0, return_inverse=True)
    if len(distinct) < 4:
        return np.column_stack((points[:, 0], np.zeros(len(points)))).astype(np.float64)
    perplexity = min(30.0, (len(distinct) - 1) / 3)
    flat = TSNE(perplexity=perplexity, init="pca", random_state=0, n_jobs=1).fit_transform(distinct)
    low, high = flat.min(0), flat.max(0)
    scaled: Points = ((flat - low) / np.where(high > low, high - low, 1)).astype(np.float64)
    return scaled[place.reshape(-1)]


def trajectories(
    artefact: Artefact, found: Found, methods: Mapping[str, Any]
) -> tuple[Figure, list[Row], str]:
    """A row per user, a column per line: where its vector was after each round, all lines in one plane."""
    name, users = artefact.options.get("vector", "p"), artefact.options["of"]
    grid = [(dataset, kind, user) for dataset, kind in places(artefact, found) for user in users]
    figure, axes = panels(len(grid), len(artefact.lines), 1.5, 1.4)
    rows: list[Row] = []
    last = 1
    for across, (dataset, kind, user) in zip(axes, grid, strict=True):
        runs = {place: found[place, dataset, kind] for place in range(len(artefact.lines))}
        paths = [
            Inside(runs[place][0].folder).kept("vectors", name, user).flatten(1).numpy() for place in runs
        ]
        whole = projected(np.concatenate(paths))
        pieces = np.split(whole, np.cumsum([len(path) for path in paths])[:-1])
        last = max(last, *map(len, paths))
        for place, (panel, piece) in enumerate(zip(across, pieces, strict=True)):
            for other in pieces:
                panel.plot(*other.T, color=PALE, linewidth=0.5, zorder=1)
            _path(panel, piece, last)
            _frame(panel)
            label = label_of(artefact, artefact.lines[place], methods)
            if panel in axes[0]:
                panel.set_title(_performance(label, artefact, runs[place]))
            rows += [
                {
                    "dataset": dataset, "protocol": kind, "user": user, "line": label,
                    "round": round_, "x": x, "y": y,
                }
                for round_, (x, y) in enumerate(piece.tolist(), start=1)
            ]  # fmt: skip
        across[0].set_ylabel(_row_label(artefact, dataset, kind, user))
    scale = ScalarMappable(Normalize(1, last), _ROUNDS)
    figure.colorbar(scale, ax=axes.ravel().tolist(), label="round", shrink=0.6, aspect=30, pad=0.01)
    said = caption(
        artefact,
        _shown(found),
        f"Each panel follows the vector {name} of a user from its first round (ring) to its last (dot), "
        "coloured by round; pale: the other panels of its row. All vectors of a row are projected together "
        "(t-SNE, started from principal components), so that places can be compared along a row.",
    )
    return figure, rows, said


def maps(artefact: Artefact, found: Found, methods: Mapping[str, Any]) -> tuple[Figure, list[Row], str]:
    """A row per user, a column per table: its items in a plane, training items marked."""
    options = artefact.options
    shown = list(_columns(artefact))
    spectrum = int(options.get("spectrum", False))
    grid = [(dataset, kind, user) for dataset, kind in places(artefact, found) for user in options["of"]]
    figure, axes = panels(len(grid), len(shown) + spectrum)
    rows: list[Row] = []
    opened = {place: Inside(results[0].folder) for place, results in found.items()}
    for across, (dataset, kind, user) in zip(axes, grid, strict=True):
        tables = []
        for (place, line, table), panel in zip(shown, across[spectrum:], strict=True):
            inside = opened[place, dataset, kind]
            label = label_of(artefact, line, methods)
            where = _Panel(dataset, kind, user, label, table)
            points = inside.table(table, user).double()
            tables.append((where, points))
            rows += _map(panel, inside, points, where, options)
            if panel in axes[0]:
                panel.set_title(f"{label}\n{TABLES[table]}" if len(artefact.lines) > 1 else TABLES[table])
        if spectrum:
            rows += _spectrum(across[0], tables)
        across[spectrum].set_ylabel(_row_label(artefact, dataset, kind, user))
    if spectrum:
        axes[-1][0].set_xlabel("dimension")
    legend = [name for name in _MARKS if any(row.get("mark") == name for row in rows)]
    figure.legend(
        handles=[_handle(name) for name in legend], loc="outside lower center", ncols=4, frameon=False
    )
    said = caption(
        artefact,
        _shown(found),
        "Items of each table in a plane (t-SNE, started from principal components), the user's training "
        "items marked"
        + (", and its held-out items" if options.get("held_out") else "")
        + (f"; the user's vector {options['vector']} is projected with them" if "vector" in options else "")
        + "."
        + (" Left: the logarithm of the tables' singular values." if spectrum else ""),
    )
    return figure, rows, said


@dataclass(frozen=True)
class _Panel:
    """What a panel of a map shows."""

    dataset: str
    protocol: str
    user: int
    line: str
    table: str


def _columns(artefact: Artefact) -> Iterator[tuple[int, Line, str]]:
    for place, line in enumerate(artefact.lines):
        for table in line.tables or artefact.options["tables"]:
            yield place, line, table


def _map(
    panel: Axes, inside: Inside, points: torch.Tensor, where: _Panel, options: Mapping[str, Any]
) -> list[Row]:
    marks = inside.marks(where.user, held_out=bool(options.get("held_out", False)))
    if "vector" in options:
        vector = inside.federation.state.kept[options["vector"]].whole(inside.place(where.user)).flatten(1)
        points, marks = torch.cat((points, vector.double())), np.append(marks, "user")
    flat = projected(points.numpy())
    for mark, style in _MARKS.items():
        chosen = flat[marks == mark]
        if len(chosen):
            front = 1 + list(_MARKS).index(mark)
            edge = {"edgecolors": "white", "linewidths": 0.4} if style["s"] > 20 else {"linewidths": 0}
            panel.scatter(chosen[:, 0], chosen[:, 1], zorder=front, rasterized=True, **style, **edge)
    _frame(panel)
    return [
        vars(where) | {"item": "" if mark == "user" else item, "mark": mark, "x": x, "y": y}
        for item, ((x, y), mark) in enumerate(zip(flat.tolist(), marks.tolist(), strict=True))
    ]


def _spectrum(panel: Axes, tables: Sequence[tuple[_Panel, torch.Tensor]]) -> list[Row]:
    """Singular values of tables, largest first, as logarithms."""
    rows: list[Row] = []
    for colour, (where, table) in zip(COLOURS, tables, strict=False):
        values = singular_values(table).flip(0).clamp(min=1e-12).log().tolist()
        dimensions = range(1, len(values) + 1)
        panel.plot(dimensions, values, color=colour, linewidth=1.2, label=TABLES[where.table])
        rows += [
            vars(where) | {"dimension": dimension, "log_singular_value": value}
            for dimension, value in zip(dimensions, values, strict=True)
        ]
    panel.set_ylabel("log singular value")
    panel.legend(frameon=False, fontsize=6)
    return rows


def _path(panel: Axes, points: Points, rounds: int) -> None:
    """A line through the points, coloured by round; ring at its start, dot at its end."""
    shade = ScalarMappable(Normalize(1, rounds), _ROUNDS)
    segments = np.stack((points[:-1], points[1:]), axis=1)
    colours = shade.to_rgba(np.arange(1, len(points)) + 0.5)
    panel.add_collection(LineCollection(list(segments), colors=colours, linewidths=1.4, zorder=2))
    first, last = shade.to_rgba(np.array([1.0, float(len(points))]))
    ends = partial(panel.plot, marker="o", markersize=4.5, linestyle="", zorder=3, markeredgewidth=1.3)
    ends(*points[:1].T, markerfacecolor="white", markeredgecolor=first)
    ends(*points[-1:].T, color=last)


def _frame(panel: Axes) -> None:
    """The same square for every panel: projections are scaled to it."""
    panel.set_xlim(-0.05, 1.05)
    panel.set_ylim(-0.05, 1.05)
    panel.set_box_aspect(1)
    bare(panel)


def _handle(name: str) -> Line2D:
    style = _MARKS[name]
    size = max(4.0, float(style["s"]) ** 0.5)
    return Line2D(
        [],
        [],
        color=style["color"],
        marker=style["marker"],
        linestyle="",
        markersize=size,
        label=style["label"],
    )


def _row_label(artefact: Artefact, dataset: str, kind: str, user: int) -> str:
    return f"user {user}\n" + (kind if len(artefact.datasets) == 1 else f"{dataset}, {kind}")


def _performance(label: str, artefact: Artefact, results: Sequence[Result]) -> str:
    values = [
        f"{name.upper()} {spread(one.metric(name) for one in results).mean:.3f}" for name in artefact.metrics
    ]
    return "\n".join((label, *values))


def _shown(found: Found) -> list[Result]:
    """The runs these figures look into: of the first seed."""
    return [results[0] for results in found.values()]
