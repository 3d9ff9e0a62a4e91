"""What pictures share: a grid of panels, colours, labels, the caption, and the files."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedrec.config.papers import Artefact
from fedrec.files.atomic import write_text
from fedrec.reporting.results import Result, provenance
from fedrec.reporting.style import save
from fedrec.reporting.tables import Row, csv_text

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#333333")
"""Colour-blind readers tell them apart too."""
PALE = "#D5D8DC"
TABLES = {
    "own": "own table",
    "shared": "server's table",
    "scored": "combined table",
    "upload": "uploaded table",
    "correction": "correction",
}
"""What `fedrec.runs.inside` calls tables, in print."""


def panels(
    rows: int, columns: int, width: float = 1.9, height: float = 1.9
) -> tuple[Figure, NDArray[np.object_]]:
    """A figure of rows x columns panels, each `width` x `height` inches."""
    figure = Figure(figsize=(max(3.2, columns * width + 0.6), rows * height + 0.7), layout="constrained")
    return figure, cast("NDArray[np.object_]", figure.subplots(rows, columns, squeeze=False))


def bare(axes: Axes) -> None:
    """A panel without numbers on its sides: a projection has no units."""
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_visible(True)
        side.set_color("#AAAAAA")


def places(
    artefact: Artefact, found: Mapping[tuple[int, str, str], Sequence[Result]]
) -> list[tuple[str, str]]:
    """The datasets and protocols there are results of, in the artefact's order."""
    kinds = artefact.options.get("protocols", ("published", "clean"))
    there = {(dataset, kind) for _, dataset, kind in found}
    return [(dataset, kind) for dataset in artefact.datasets for kind in kinds if (dataset, kind) in there]


def caption(artefact: Artefact, results: Iterable[Result], *said: str) -> str:
    """What a reader has to know: what is shown, after how many rounds, under which protocol, from what."""
    found = list(results)
    origin = provenance(found)
    rounds = sorted({one.summary["settings"]["rounds"] for one in found})
    parts = [
        f"{artefact.title}.",
        *said,
        f"Models after their last round ({', '.join(map(str, rounds))}).",
        str(artefact.options.get("note", "")),
        f"Protocols {', '.join(origin['protocols'])}; seeds {', '.join(origin['seeds'])}; "
        f"splits {', '.join(origin['splits'])}; code {', '.join(origin['code'])}.",
    ]
    return " ".join(part for part in parts if part)


def write(stem: Path, figure: Figure, rows: Sequence[Row], said: str) -> None:
    """Write what is plotted (csv), the picture (pdf, png) and its caption (txt)."""
    write_text(stem.with_name(f"{stem.name}.csv"), csv_text(rows))
    save(figure, stem)
    write_text(stem.with_name(f"{stem.name}.txt"), said + "\n")
