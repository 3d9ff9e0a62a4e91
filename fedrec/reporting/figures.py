"""The figures of papers and comparisons: csv of what is plotted, pdf, png, and a caption as txt."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from fedrec.config.papers import Artefact, Line
from fedrec.config.protocol import short_name
from fedrec.files.atomic import write_text
from fedrec.reporting.bubbles import bubbles
from fedrec.reporting.captions import caption, metric_title, own_title, space_title
from fedrec.reporting.panels import (
    Key,
    distinct,
    empty,
    legend,
    no_flatter_than,
    panels,
    protocol_title,
    setting_axis,
)
from fedrec.reporting.plotted import EXTRA_SPACE, GROUPS, Found, kinds_of, part_of, plotted
from fedrec.reporting.results import read_result
from fedrec.reporting.style import HEIGHT, MUTED, WIDTH, Look, canvas, looks, ordered_looks, save, theme
from fedrec.reporting.tables import Row, csv_text

_CURVE_MARKERS = 7
"""Markers on a curve, to tell it from others without colour."""
_MANY = 10
"""Curves from which on a panel is to be higher."""
_MORE = 1.0
"""By so many inches."""
_LEAST_SPAN = 0.05
"""Of a y axis: what differs by less is noise, and shall look like it."""


def draw(
    artefact: Artefact,
    found: Found,
    methods: Mapping[str, Any],
    stem: Path,
    *,
    data: Path | None = None,
    unavailable: Mapping[str, str] | None = None,
) -> None:
    """Write `stem`.csv, .pdf, .png and .txt.

    `data` is the folder of the splits (`results/data`), for the layouts `groups` and `bubbles` and a sweep
    that shows space; `unavailable` tells why datasets are missing in `found`, for the caption.
    """
    rows = plotted(artefact, found, methods, data)
    text = caption(artefact, rows, found, methods, unavailable or {})
    with theme():
        save(figure_of(artefact, rows), stem)
    write_text(stem.with_name(f"{stem.name}.csv"), csv_text(rows))
    write_text(stem.with_name(f"{stem.name}.txt"), text)


def convergence_of(runs: Iterable[Path], methods: Mapping[str, Any], stem: Path) -> None:
    """Draw the test metrics per round of finished runs on one dataset, given by their `run.json`."""
    found: dict[tuple[int, str, str], list[Any]] = {}
    names: dict[str, int] = {}
    for path in runs:
        result = read_result(path.parent)
        place = names.setdefault(result.run.method, len(names))
        found.setdefault((place, result.run.dataset, short_name(result.run.protocol)), []).append(result)
    datasets = distinct(dataset for _, dataset, _ in found)
    kinds = [kind for kind in ("published", "clean") if any(kind == key[2] for key in found)]
    first = next(iter(found.values()))[0].run
    # The axis shows how many rounds each was given, and names need not.
    options = {"protocols": kinds, "setting": "rounds"}
    artefact = Artefact(
        first.paper, "comparison", f"Convergence on {', '.join(datasets)}", "convergence", tuple(datasets),
        ("hr@10", "ndcg@10"), tuple(Line(run=name) for name in names), options=options,
    )  # fmt: skip
    draw(artefact, found, methods, stem)


def figure_of(artefact: Artefact, rows: Sequence[Row]) -> Figure:
    """The picture of the rows of an artefact; to be made and saved inside `style.theme`."""
    if not rows:
        return empty()
    if artefact.layout == "bubbles":
        return bubbles(rows, kinds_of(artefact))
    return {
        "convergence": _convergence,
        "sweep": _sweep,
        "bars": _bars,
        "curricula": _curricula,
        "groups": _groups,
    }[artefact.layout](artefact, rows)


def _convergence(artefact: Artefact, rows: Sequence[Row]) -> Figure:
    figure, axes = panels(artefact, rows, share=True)
    look = looks(row["method"] for row in rows)
    series = _series(rows, "method", "label")
    last: dict[Key, int] = {}
    for row in rows:
        last[_panel(row)] = max(row["x"], last.get(_panel(row), 0))
    for place, ((method, label), lines) in enumerate(series.items()):
        for key, points in lines.items():
            _curve(axes[key], _levelled(points, last[key]), look[method], label, place / len(series))
    for ax in axes.values():
        # After all curves: a limit stops the axis from growing.
        ax.set_ylim(bottom=0)
    _labelled(axes, "round", artefact.metrics)
    if len(series) > _MANY:
        figure.set_figheight(figure.get_figheight() + _MORE * len({dataset for dataset, _, _ in axes}))
    legend(figure, [look[method].handle(label) for method, label in series])
    return figure


def _levelled(points: Sequence[Row], last: int) -> Sequence[Row]:
    """A method of one round is a level line up to the last round of others."""
    return [{**points[0], "x": x} for x in range(1, last + 1)] if len(points) == 1 else points


def _curve(ax: Axes, points: Sequence[Row], look: Look, label: str, shift: float) -> None:
    x, mean = [row["x"] for row in points], [row["mean"] for row in points]
    every = max(len(x) // _CURVE_MARKERS, 1)
    ax.plot(x, mean, **look.line(label=label, markevery=(int(shift * every), every)))  # type: ignore[arg-type]
    if points[0]["sd"] is not None:
        low, high = ([row["mean"] + sign * row["sd"] for row in points] for sign in (-1, 1))
        ax.fill_between(x, low, high, color=look.colour, alpha=0.18, linewidth=0)
    ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=True))


def _sweep(artefact: Artefact, every: Sequence[Row]) -> Figure:
    rows = [row for row in every if row["metric"] != EXTRA_SPACE]
    spaces = [row for row in every if row["metric"] == EXTRA_SPACE]
    figure, axes = panels(artefact, rows, share=False)
    look = looks(row["method"] for row in rows)
    series = _series(rows, "method", "label")
    values = distinct(row["x"] for row in rows)
    for (method, label), lines in series.items():
        for key, points in lines.items():
            place = setting_axis(axes[key], values)
            _swept(axes[key], [(place[row["x"]], row) for row in points], look[method], label)
            own = [row for row in points if row["own"] != "no"]
            _ring(axes[key], [(place[row["x"]], row["mean"]) for row in own])
            if part_of(artefact) == "validation" and key[2] == artefact.metrics[0]:
                _rounds(axes[key], [(place[row["x"]], row) for row in points])
    for ax in axes.values():
        no_flatter_than(ax, _LEAST_SPAN)
    _labelled(axes, rows[0]["axis"], artefact.metrics)
    handles = [look[method].handle(label) for method, label in series]
    if spaces:
        _space_axes(axes, spaces, values)
        handles.append(Line2D([], [], label=space_title(spaces), **_SPACE))  # type: ignore[arg-type]
    if marked := own_title(rows):
        handles.append(_ring_handle(marked))
    legend(figure, handles)
    return figure


def _space_axes(axes: Mapping[Key, Axes], rows: Sequence[Row], values: Sequence[Any]) -> None:
    """The extra space behind each panel; its scale stands right of the last panel of a dataset."""
    last = {key[0]: key for key in axes}
    for key, ax in axes.items():
        beside = ax.twinx()
        place = setting_axis(ax, values)
        for lines in _series(rows, "method").values():
            points = lines.get((*key[:2], EXTRA_SPACE), [])
            ordered = sorted((place[row["x"]], row["mean"]) for row in points)
            beside.plot(*zip(*ordered, strict=True), **_SPACE)  # type: ignore[arg-type]
        beside.set_ylim(bottom=0)
        beside.grid(visible=False)
        at_end = key == last[key[0]]
        beside.tick_params(colors=MUTED, right=at_end, labelright=at_end)
        if at_end:
            beside.set_ylabel("extra space, MB", color=MUTED)
        # A twin is drawn above: the metrics come first, and their white ground must not hide it.
        ax.set_zorder(beside.get_zorder() + 1)
        ax.patch.set_visible(False)


_SPACE = {"linestyle": (0, (3.2, 1.4)), "color": MUTED, "linewidth": 0.9, "marker": "none"}


def _swept(ax: Axes, points: Iterable[tuple[float, Row]], look: Look, label: str) -> None:
    ordered = sorted(points, key=lambda point: point[0])
    x, mean = [place for place, _ in ordered], [row["mean"] for _, row in ordered]
    sd = [row["sd"] for _, row in ordered]
    errors = None if None in sd else sd
    ax.errorbar(x, mean, yerr=errors, capsize=1.5, elinewidth=0.7, **look.line(label=label))  # type: ignore[arg-type]


def _rounds(ax: Axes, points: Iterable[tuple[float, Row]]) -> None:
    """The round of each value, above it."""
    ax.margins(y=0.16)
    for place, row in points:
        top = row["mean"] + (row["sd"] or 0.0)
        ax.annotate(
            f"{row['round']:.0f}", (place, top), (0, 3.5), textcoords="offset points",
            ha="center", va="bottom", fontsize=5, color=MUTED,
        )  # fmt: skip


def _ring(ax: Axes, points: Sequence[tuple[float, float]]) -> None:
    if points:
        ax.plot(*zip(*points, strict=True), **_RING)  # type: ignore[arg-type]


def _ring_handle(label: str) -> Line2D:
    return Line2D([], [], label=label, **_RING)  # type: ignore[arg-type]


_RING = {
    "linestyle": "none",
    "marker": "o",
    "markersize": 7.5,
    "markerfacecolor": "none",
    "markeredgecolor": MUTED,
    "zorder": 5,
}


def _groups(artefact: Artefact, rows: Sequence[Row]) -> Figure:
    figure, axes = panels(artefact, rows, share=False)
    shades = ordered_looks(GROUPS)
    values = distinct(row["x"] for row in rows)
    for (number,), lines in _series(rows, "group").items():
        for key, points in lines.items():
            place = setting_axis(axes[key], values)
            _swept(
                axes[key], [(place[row["x"]], row) for row in points], shades[number - 1], f"group {number}"
            )
            best = max(points, key=lambda row: row["mean"])
            _ring(axes[key], [(place[best["x"]], best["mean"])])
    for ax in axes.values():
        no_flatter_than(ax, _LEAST_SPAN)
    _labelled(axes, rows[0]["axis"], artefact.metrics)
    names = {1: "group 1 (fewest training rows)", GROUPS: f"group {GROUPS} (most)"}
    handles = [
        shades[number].handle(names.get(number + 1, f"group {number + 1}")) for number in range(GROUPS)
    ]
    legend(figure, [*handles, _ring_handle("best of the group")])
    return figure


def _bars(artefact: Artefact, rows: Sequence[Row]) -> Figure:
    """Datasets on the x axis; a row of panels per metric, a column per protocol."""
    kinds = [kind for kind in kinds_of(artefact) if any(row["protocol"] == kind for row in rows)]
    datasets = [name for name in artefact.datasets if any(row["dataset"] == name for row in rows)]
    look = looks(row["method"] for row in rows)
    series = _series(rows, "method", "label")
    figure = canvas(WIDTH, 1.2 * HEIGHT * len(artefact.metrics) + 0.5)
    grid = figure.subplots(len(artefact.metrics), len(kinds), sharex=True, sharey="row", squeeze=False)
    width = 0.84 / len(series)
    for place, ((method, label), lines) in enumerate(series.items()):
        for (_, kind, metric), (row,) in lines.items():
            ax = grid[artefact.metrics.index(metric)][kinds.index(kind)]
            x = datasets.index(row["dataset"]) + (place - (len(series) - 1) / 2) * width
            ax.bar(x, row["mean"], width, yerr=row["sd"], error_kw={"elinewidth": 0.6}, label=label,
                   **look[method].bar())  # fmt: skip
    for metric, line in zip(artefact.metrics, grid, strict=True):
        line[0].set_ylabel(f"{metric_title(metric)}, %")
        for kind, ax in zip(kinds, line, strict=True):
            ax.set_title(f"{metric_title(metric)}, {protocol_title(kind)}")
            ax.yaxis.set_major_formatter(PercentFormatter(1, symbol=""))
            ax.set_xticks(range(len(datasets)), datasets, rotation=25, ha="right", rotation_mode="anchor")
            ax.grid(visible=False, axis="x")
    legend(figure, [Patch(label=label, **look[method].bar()) for method, label in series])  # type: ignore[arg-type]
    return figure


def _curricula(_artefact: Artefact, rows: Sequence[Row]) -> Figure:
    """One panel for the paper's formulas and one for the code's."""
    schedules = distinct(row["schedule"] for row in rows)
    look = looks(row["method"] for row in rows)
    figure = canvas(0.8 * WIDTH, 1.3 * HEIGHT + 0.4)
    grid = figure.subplots(1, len(schedules), sharex=True, sharey=True, squeeze=False)[0]
    names = distinct((row["method"], row["label"]) for row in rows)
    for schedule, ax in zip(schedules, grid, strict=True):
        for place, (method, label) in enumerate(names):
            points = [row for row in rows if row["schedule"] == schedule and row["method"] == method]
            _curve(ax, [{**row, "sd": None} for row in points], look[method], label, place / len(names))
        ax.set_title(f"as the {schedule} writes them")
        ax.set_xlabel("round")
    grid[0].set_ylabel("strength, v = 0.1")
    legend(figure, [look[method].handle(label) for method, label in names])
    return figure


def _series(rows: Sequence[Row], *names: str) -> dict[tuple[Any, ...], dict[Key, list[Row]]]:
    """The rows of each curve, by what tells curves apart and then by panel."""
    found: dict[tuple[Any, ...], dict[Key, list[Row]]] = {}
    for row in rows:
        lines = found.setdefault(tuple(row[name] for name in names), {})
        lines.setdefault(_panel(row), []).append(row)
    return found


def _panel(row: Row) -> Key:
    return row["dataset"], row["protocol"], row["metric"]


def _labelled(axes: Mapping[Key, Axes], x_label: str, metrics: Sequence[str]) -> None:
    """Titles on every panel; the x axis is named below each column, the y axis before each metric."""
    lowest = {(kind, metric): dataset for dataset, kind, metric in axes}
    named: set[tuple[str, str]] = set()
    for (dataset, kind, metric), ax in axes.items():
        ax.set_title(f"{dataset}, {kind}")
        if lowest[kind, metric] == dataset:
            ax.set_xlabel(x_label)
        if (dataset, metric) not in named and metric in metrics:
            ax.set_ylabel(metric_title(metric))
            named.add((dataset, metric))
