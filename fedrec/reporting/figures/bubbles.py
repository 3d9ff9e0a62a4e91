"""Bubbles: space of a client against space of the server; the area of a bubble is the seconds of a round."""

import math
from collections.abc import Iterator, Sequence
from itertools import product

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from fedrec.config.papers import Artefact, Line
from fedrec.config.protocol import short_name
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import ArtefactRuns, split_sizes
from fedrec.reporting.figures.caption import under_protocols
from fedrec.reporting.figures.chart import Drawn, build_figure, chart
from fedrec.reporting.figures.figure_data import line_rows, over_seeds_columns
from fedrec.reporting.figures.panels import distinct
from fedrec.reporting.figures.style import MUTED, WIDTH, blank_figure, looks
from fedrec.reporting.parameters import megabytes, numbers_held
from fedrec.reporting.tables.table import Row
from fedrec.runs.record import RunRecord

LAYOUT = Layout("figure", needs=("runs", "splits", "models", "statistics"))
_LARGEST = 1000.0
"""Area of the largest bubble, in square points."""
_DECADE = 10
_DISTANCES = (4, 12, 22, 34, 48)
_DIRECTIONS = 16


def build(target: Target, project: Project) -> None:
    """Draw the bubbles of an artefact."""
    build_figure(target, project, draw)


def draw(subject: ArtefactRuns) -> Drawn:
    """The figure, its rows and its caption."""
    rows = line_rows(subject, bubble_rows)
    return chart(subject, rows, _figure_of, _shown(subject.artefact), "", timed=True)


def bubble_rows(subject: ArtefactRuns, _line: Line, records: Sequence[RunRecord]) -> Iterator[Row]:
    """Three rows: space of a client, space of the server, seconds of a round."""
    first = records[0]
    client, server = numbers_held(first.id.method, first.settings, *split_sizes(first, subject.data))
    seconds = [record.summary["measured"]["seconds_per_round"] for record in records]
    for metric, numbers in (("space_client", client), ("space_server", server)):
        yield over_seeds_columns(metric, [megabytes(numbers)] * len(records), records) | {"unit": "MB"}
    yield over_seeds_columns("seconds_per_round", seconds, records) | {"unit": "s"}


def _shown(artefact: Artefact) -> str:
    """The sentence of the caption that describes the bubbles."""
    return (
        "Space of the parameters of one client and of the server (4 bytes a number, MB of 2^20 bytes); "
        f"the area of a bubble is the median seconds of a round, {under_protocols(artefact)}."
    )


def _figure_of(artefact: Artefact, rows: Sequence[Row]) -> Figure:
    """One panel per dataset and protocol, one labelled bubble per method."""
    values = {
        (row["dataset"], row["protocol"], row["method"], row["metric"]): float(row["mean"]) for row in rows
    }
    labels = {row["method"]: row["label"] for row in rows}
    look = looks(labels)
    slowest = max(value for key, value in values.items() if key[-1] == "seconds_per_round")
    panels = [
        (dataset, protocol)
        for dataset in distinct(row["dataset"] for row in rows)
        for protocol in artefact.protocols
        if any((row["dataset"], row["protocol"]) == (dataset, protocol) for row in rows)
    ]
    figure = blank_figure(min(WIDTH, 4.4 * len(panels)), 3.4 * math.ceil(len(panels) / 2))
    grid = figure.subplots(math.ceil(len(panels) / 2), min(len(panels), 2), squeeze=False).flat
    drawn: list[tuple[Axes, list[tuple[float, float, float, str]]]] = []
    for (dataset, protocol), ax in zip(panels, grid, strict=False):
        points = []
        for method, label in labels.items():
            if (dataset, protocol, method, "space_client") not in values:
                continue
            client, server, seconds = (
                values[dataset, protocol, method, metric]
                for metric in ("space_client", "space_server", "seconds_per_round")
            )
            points.append((client, server, _LARGEST * seconds / slowest, label))
            colour = look[method].colour
            ax.scatter(client, server, s=points[-1][2], color=colour, alpha=0.35, linewidth=0, label=label)
            ax.scatter(client, server, s=points[-1][2], facecolor="none", edgecolor=colour, linewidth=0.9)
            ax.plot(client, server, color=colour, marker=look[method].marker, markersize=2.6)
        _scale(ax, points)
        ax.set(
            title=f"{dataset}, {short_name(protocol)}",
            xlabel="space of a client, MB",
            ylabel="space of the server, MB",
        )
        drawn.append((ax, points))
    for ax in list(grid)[len(panels) :]:
        ax.set_axis_off()
    handles = [_area(seconds, slowest) for seconds in _round_numbers(slowest)]
    room = math.sqrt(_LARGEST) / mpl.rcParams["legend.fontsize"]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=len(handles), handlelength=room, handleheight=room
    )
    figure.draw_without_rendering()
    for ax, points in drawn:
        _labelled(figure, ax, points)
    return figure


def _scale(ax: Axes, points: Sequence[tuple[float, float, float, str]]) -> None:
    for name, values in (("x", [point[0] for point in points]), ("y", [point[1] for point in points])):
        if max(values) >= _DECADE * min(values) > 0:
            getattr(ax, f"set_{name}scale")("log")
    ax.margins(0.22)


def _round_numbers(most: float) -> list[float]:
    """Three round numbers of seconds for the legend, the largest first."""
    numbers = [float(f"{most * share:.0e}") for share in (1.0, 0.3, 0.1)]
    return sorted(set(numbers))


def _area(seconds: float, slowest: float) -> Line2D:
    return Line2D(
        [], [], linestyle="none", marker="o", markersize=math.sqrt(_LARGEST * seconds / slowest),
        markerfacecolor="none", markeredgecolor=MUTED, label=f"{seconds:g} s per round",
    )  # fmt: skip


def _labelled(figure: Figure, ax: Axes, points: Sequence[tuple[float, float, float, str]]) -> None:
    """Place each label as near to its bubble as possible, without covering a label or a bubble."""
    pixels = figure.dpi / 72
    circles = []
    for client, server, area, _ in points:
        x, y = ax.transData.transform((client, server))
        radius = math.sqrt(area) / 2 * pixels
        circles.append(Bbox([[x - radius, y - radius], [x + radius, y + radius]]))
    taken: list[Bbox] = []
    for (client, server, area, label), circle in zip(points, circles, strict=True):
        note = ax.annotate(
            label, (client, server), (0, 0), textcoords="offset points", ha="center", va="center", fontsize=7,
            arrowprops={"arrowstyle": "-", "color": MUTED, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 1},
        )  # fmt: skip
        note.set_in_layout(False)
        others = [other for other in circles if other is not circle]
        _place(note, math.sqrt(area) / 2, ax.bbox, taken, others)
        taken.append(_box(note))


def _place(note: Annotation, radius: float, inside: Bbox, taken: list[Bbox], circles: list[Bbox]) -> None:
    best: tuple[float, tuple[float, float]] | None = None
    half = _box(note).width / 2 * 72 / note.figure.dpi
    for distance, step in product(_DISTANCES, range(_DIRECTIONS)):
        angle = 2 * math.pi * step / _DIRECTIONS
        away = radius + distance
        position = ((away + half) * math.cos(angle), (away + 4) * math.sin(angle))
        note.xyann = position
        box = _box(note)
        outside = 1 - _overlap(box, inside) / (box.width * box.height)
        cover = sum(_overlap(box, other) for other in taken) + 0.5 * sum(
            _overlap(box, circle) for circle in circles
        )
        cost = cover + 1e6 * (outside > 1e-6)
        if best is None or cost < best[0]:
            best = cost, position
        if cost == 0:
            break
    assert best is not None
    note.xyann = best[1]


def _box(note: Annotation) -> Bbox:
    """The box of a text without its leader line."""
    note.update_positions(note.figure.canvas.get_renderer())  # type: ignore[attr-defined]
    return super(Annotation, note).get_window_extent().padded(1.5)


def _overlap(one: Bbox, other: Bbox) -> float:
    common = Bbox.intersection(one, other)
    return 0.0 if common is None else float(common.width * common.height)
