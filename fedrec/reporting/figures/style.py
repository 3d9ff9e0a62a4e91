"""The common style of all figures: a method has the same look everywhere.

A method has a colour, a marker and a dash. A plug-in keeps the colour of its backbone and changes the dash;
changed settings also change the shade. The ten colours are far apart for the common forms of colour blindness
(a test simulates them). Methods that share a colour never appear in one figure of a paper, and differ in
marker and dash. A method without an entry in `LOOKS` has a look that is computed from its name.

The same data give the same bytes: files contain no dates, and no font or setting of the machine.
"""

import logging
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import seaborn as sns
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import ScalarFormatter

from fedrec.config.names import parse
from fedrec.files.atomic import atomic, write_text
from fedrec.reporting.figures.colours import KIND_COLOURS
from fedrec.reporting.figures.svg import svg_of
from fedrec.runs.method_kinds import MethodKind

Dash = Literal["-"] | tuple[int, tuple[float, ...]]

PALETTE = {
    "blue": "#446de2",
    "green": "#17b052",
    "red": "#c33108",
    "purple": "#b47fc7",
    "lime": "#b8cc25",
    "magenta": "#8c105b",
    "sky": "#77cfee",
    "brown": "#582d02",
    "pink": "#f2a8a5",
    "navy": "#1a3d9d",
}
GREYS = ("#000000", "#787878", "#a8a8a8")
MUTED = "#606060"
"""The colour of marks, leader lines and small print."""

WIDTH = 7.2
"""Width of the text on a page, in inches."""
HEIGHT = 1.6
"""Height of a row of panels, in inches."""

_FEDERATED: Dash = "-"
_CENTRALISED: Dash = (0, (5, 1.3, 1, 1.3))
_REFERENCE: Dash = (0, (1, 1.2))
_PLUGINS: Mapping[str, Dash] = {
    "plgc": (0, (3.2, 1.4)),
    "em": (0, (6, 1.4, 1.4, 1.4, 1.4, 1.4)),
    "dualper": (0, (1.6, 1.0)),
}
_VARIANTS: Sequence[tuple[float, Dash, str]] = (
    (-0.45, (0, (3.2, 1.4)), "^"),
    (0.3, (0, (1.4, 1.0)), "s"),
    (-0.75, (0, (6, 1.4, 1.4, 1.4)), "v"),
    (-0.22, (0, (6, 1.4, 1.4, 1.4, 1.4, 1.4)), "D"),
    (0.45, (0, (8, 2)), "P"),
    (-0.6, (0, (2, 2)), "X"),
)
"""Shade (below zero towards black, above towards white), dash and marker of the changed settings of a method,
in the order they appear in a figure."""
_MARKERS = "os^DvPX<>phd"


@dataclass(frozen=True)
class Look:
    """The style of a method."""

    colour: str
    marker: str
    dash: Dash
    hollow: bool = False
    """Whether markers are empty, as for plug-ins and changed settings."""
    hatch: str = ""

    def line(self, **more: object) -> dict[str, object]:
        """Arguments of `Axes.plot`."""
        return {
            "color": self.colour,
            "linestyle": self.dash,
            "marker": self.marker,
            "markerfacecolor": "white" if self.hollow else self.colour,
            "markeredgecolor": self.colour,
        } | more

    def bar(self) -> dict[str, object]:
        """Arguments of `Axes.bar`."""
        return {"facecolor": self.colour, "edgecolor": "white", "linewidth": 0.3, "hatch": self.hatch}

    def handle(self, label: str) -> Line2D:
        """Its entry in a legend of lines."""
        return Line2D([], [], label=label, **self.line())  # type: ignore[arg-type]


def _look(colour: str, marker: str, dash: Dash = _FEDERATED) -> Look:
    return Look(PALETTE.get(colour, colour), marker, dash)


LOOKS: Mapping[str, Look] = {
    "fedmf": _look("blue", "o"),
    "fedncf": _look("green", "s"),
    "pfedrec": _look("red", "^"),
    "fedrap": _look("purple", "D"),
    "gpfedrec": _look("lime", "v"),
    "fedem": _look("magenta", "P"),
    "pfedclr": _look("navy", "X"),
    "colr": _look("sky", "<"),
    "pfedgraph": _look("sky", ">"),
    "fedcia": _look("brown", "p"),
    "fedrecon": _look("brown", "h"),
    "fedfast": _look("pink", "d"),
    "perfedrec": _look("pink", "H"),
    "mf": _look("magenta", "o", _CENTRALISED),
    "ncf": _look("sky", "s", _CENTRALISED),
    "lightgcn": _look("pink", "^", _CENTRALISED),
    "centrap": _look("navy", "D", _CENTRALISED),
    "popularity": _look(GREYS[0], "v", _REFERENCE),
    "draw-counter": _look(GREYS[1], "P", _REFERENCE),
    "local-only": _look(GREYS[2], "X", _REFERENCE),
}


KIND_LOOKS: Mapping[MethodKind, Look] = {
    "personalised": Look(KIND_COLOURS["personalised"][0], "o", _FEDERATED),
    "federated": Look(KIND_COLOURS["federated"][0], "s", _FEDERATED),
    "centralised": Look(KIND_COLOURS["centralised"][0], "D", _CENTRALISED),
    "reference": Look(KIND_COLOURS["reference"][0], "v", _REFERENCE),
}
"""The look of methods in figures that distinguish only kinds."""


def looks(names: Iterable[str]) -> dict[str, Look]:
    """The look of each method, plug-in or variant of a figure, by its spelling."""
    by_name: dict[str, Look] = {}
    variants: dict[str, int] = {}
    for name in names:
        if name in by_name:
            continue
        composition = parse(name)
        # The number of rounds does not change the look.
        changes = [change for change in composition.changes if change[0] != "rounds"]
        look = _of_method(composition.backbone)
        if composition.plugin is not None:
            look = replace(look, dash=_dash_of_plugin(composition.plugin), hollow=True, hatch="//")
        if changes:
            number = variants.get(composition.name, 0)
            variants[composition.name] = number + 1
            shade, dash, marker = _VARIANTS[number % len(_VARIANTS)]
            look = Look(shaded(look.colour, shade), marker, dash, hollow=True, hatch="xx")
        by_name[name] = look
    return by_name


def shaded(colour: str, shade: float) -> str:
    """The colour moved towards black (a shade below zero) or white (above)."""
    goal = 0.0 if shade < 0 else 1.0
    red, green, blue = (part + abs(shade) * (goal - part) for part in to_rgb(colour))
    return to_hex((red, green, blue))


def ordered_looks(count: int) -> list[Look]:
    """Looks of `count` groups that have an order, from dark to light."""
    colours = mpl.colormaps["viridis"]
    return [
        Look(to_hex(colours(0.85 * index / max(count - 1, 1))), _MARKERS[index % len(_MARKERS)], "-")
        for index in range(count)
    ]


def _of_method(name: str) -> Look:
    """The look of a method: its entry, or an unused one that is computed from its name."""
    if name in LOOKS:
        return LOOKS[name]
    taken = {(look.colour, look.marker) for look in LOOKS.values()}
    free = [
        (colour, marker)
        for colour in PALETTE.values()
        for marker in _MARKERS
        if (colour, marker) not in taken
    ]
    return _look(*free[zlib.crc32(name.encode()) % len(free)])


def _dash_of_plugin(name: str) -> Dash:
    """The dash of a plug-in: its entry, or an unused one that is computed from its name."""
    if name in _PLUGINS:
        return _PLUGINS[name]
    number = zlib.crc32(name.encode())
    return 0, (2.4 + number % 7, 0.9, 1.0 + number // 7 % 3, 0.9)


@contextmanager
def theme() -> Iterator[None]:
    """Apply the project's style to figures drawn and saved inside, whatever the machine's style is."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(sns.axes_style("whitegrid"))
        mpl.rcParams.update(sns.plotting_context("paper"))
        mpl.rcParams.update(_SETTINGS)
        yield


def blank_figure(width: float, height: float) -> Figure:
    """An empty figure of a size in inches."""
    figure = Figure((width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


class _PlainNumbers(ScalarFormatter):
    """Numbers along an axis as plain text, which matplotlib would otherwise typeset as formulas.

    A shared power of ten stays a formula.
    """

    def __call__(self, x: float, pos: int | None = None) -> str:
        """The label of a tick."""
        return super().__call__(x, pos).removeprefix(r"$\mathdefault{").removesuffix("}$")


def save(figure: Figure, stem: Path) -> None:
    """Write `stem`.png, `stem`.pdf and `stem`.svg with one layout."""
    # Matplotlib's font library logs every font table that it leaves out.
    logging.getLogger("fontTools").setLevel(logging.WARNING)
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            if type(axis.get_major_formatter()) is ScalarFormatter:
                axis.set_major_formatter(_PlainNumbers())
    with atomic(stem.with_name(f"{stem.name}.png")) as path:
        figure.savefig(path, format="png", metadata={"Software": None})
    # Layout takes longer than drawing, so it is computed once for all files.
    figure.set_layout_engine(None)
    with atomic(stem.with_name(f"{stem.name}.pdf")) as path:
        figure.savefig(path, format="pdf", metadata={"CreationDate": None, "Creator": None, "Producer": None})
    write_text(stem.with_name(f"{stem.name}.svg"), svg_of(figure))


_SETTINGS: dict[Any, Any] = {
    "font.family": "sans-serif",
    # This font comes with matplotlib; others may be missing on a machine.
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 7.0,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7.0,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": 7.0,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "axes.titlepad": 4.0,
    "axes.labelpad": 2.0,
    "axes.linewidth": 0.6,
    "axes.edgecolor": "#404040",
    "axes.formatter.use_mathtext": True,
    "grid.linewidth": 0.4,
    "grid.color": "#e0e0e0",
    "lines.linewidth": 1.2,
    "lines.markersize": 3.4,
    "lines.markeredgewidth": 0.8,
    "hatch.linewidth": 0.5,
    "hatch.color": "white",
    "xtick.major.pad": 2.0,
    "ytick.major.pad": 2.0,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,
}
