"""Tables and figures as the report shows them, with the files they come from."""

import base64
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedrec.config.papers import BOTH, Artefact
from fedrec.plan.available import without
from fedrec.plan.fingerprint import code_fingerprint
from fedrec.reporting.comparison import comparison_table
from fedrec.reporting.dataset_statistics import statistics_tables
from fedrec.reporting.metric_tables import metric_tables
from fedrec.reporting.tables import Column, Row, Table
from fedrec.reporting.views import (
    View,
    address_of,
    columns_of,
    content_of,
    not_whole,
    read_csv,
    side_by_side,
    typed,
    typed_rows,
    view,
)

_CHARTS = {
    "convergence": "Curves over rounds",
    "sweep": "Curves over the values of a setting",
    "bars": "Bars",
    "curricula": "Curves",
    "bubbles": "Bubbles",
}
_METRICS = tuple(f"{name}@10_{kind}" for name in ("hr", "ndcg") for kind in BOTH)
TABLE_FORMS = ("csv", "md", "tex")
FIGURE_FORMS = ("csv", "pdf", "png")
"""The forms that the page links to."""
_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_END = b"IEND\xaeB`\x82"


@dataclass(frozen=True)
class Image:
    """A picture in the page itself."""

    uri: str
    width: int
    height: int
    alt: str
    caption: str


@dataclass(frozen=True)
class Shown:
    """A table or figure of a paper on the page."""

    artefact: Artefact
    label: str
    views: Sequence[View]
    image: Image | None
    links: Sequence[tuple[str, str]]
    """Ending and relative address of each file."""
    without: Mapping[str, str]
    """Why it shows less than it should, by dataset."""


def label(name: str) -> str:
    """`Table 3` for `table3`, `Figure 10` for `fig10`."""
    found = re.fullmatch(r"(table|fig)(\w+)", name)
    return name if found is None else f"{'Table' if found[1] == 'table' else 'Figure'} {found[2]}"


def comparison_of(results: Path, dataset: str, out: Path) -> tuple[View, list[tuple[str, str]], Image | None]:
    """The methods compared on `dataset`: table, its files as seen from `out`, and curves if drawn."""
    stem = results / "tables" / f"{dataset}_comparison"
    path = stem.with_name(f"{stem.name}.csv")
    with telling(path):
        rows = [
            {
                key: float(text) if re.match(r"(hr|ndcg)@\d+(_sd)?$|seconds", key) and text else text or None
                for key, text in row.items()
            }
            for row in read_csv(path)
        ]
        table = comparison_table(
            rows, dataset, {str(row["method"]): str(row.get("title") or row["method"]) for row in rows}
        )
        found = view(f"comparison-{dataset}", table, best=_METRICS, fold=True)
    curves = results / "figures" / f"{dataset}_convergence"
    image = None
    if curves.with_name(f"{curves.name}.png").exists():
        image = image_of(curves, f"{_CHARTS['convergence']} on {dataset}, one for each method.")
    return found, links_of(stem, TABLE_FORMS, out), image


def statistics_of(results: Path, selection: str, out: Path) -> tuple[list[View], list[tuple[str, str]]]:
    """The tables of statistics of `selection` that have rows, and their files as seen from `out`."""
    stem = results / "tables" / f"{selection}_statistics"
    path = stem.with_name(f"{stem.name}.csv")
    with telling(path):
        rows = [{key: typed(key, text) for key, text in row.items()} for row in read_csv(path)]
        tables = statistics_tables(rows, code_fingerprint("fedrec.reporting.dataset_statistics"))
        views = [
            view(f"statistics-{selection}-{part}", table)
            for part, table in zip(("counts", "splits"), tables, strict=True)
            if table.rows
        ]
    return views, links_of(stem, TABLE_FORMS, out)


@contextmanager
def telling(path: Path) -> Iterator[None]:
    """Names the file whose columns are not what they should be."""
    try:
        yield
    except KeyError as error:
        raise not_whole(path, f"it has no column {error}") from error
    except (TypeError, ValueError) as error:
        raise not_whole(path, f"a number in it is none ({error})") from error


def shown_of(results: Path, artefact: Artefact, unavailable: Mapping[str, str], out: Path) -> Shown:
    """A table or figure of a paper, from its files below `results`, for the page `out`."""
    stem = results / f"{artefact.form}s" / artefact.target
    figure = artefact.form == "figure"
    rows = read_csv(stem.with_name(f"{stem.name}.csv"))
    return Shown(
        artefact,
        label(artefact.name),
        () if figure else _views(artefact, rows),
        image_of(stem, _told(artefact)) if figure else None,
        links_of(stem, FIGURE_FORMS if figure else TABLE_FORMS, out),
        without(artefact, unavailable),
    )


def _views(artefact: Artefact, rows: Sequence[Mapping[str, str]]) -> list[View]:
    """A table of several datasets as one table each: the columns of one can be compared."""
    if artefact.layout == "results":
        return _metrics(artefact, rows)
    columns: Sequence[Column] = columns_of(rows)
    columns, found = side_by_side(columns, typed_rows(rows, columns))
    parts = list(dict.fromkeys(row.get("dataset") for row in found))
    if artefact.layout == "statistics" or len(parts) in (1, len(found)):
        return [_view(artefact, f"{artefact.target}-values", artefact.title, columns, found)]
    return [
        _view(
            artefact,
            f"{artefact.target}-{re.sub(r'[^A-Za-z0-9]+', '-', str(part))}-{place}",
            f"{artefact.title}, {part}",
            [column for column in columns if column.key != "dataset"],
            [row for row in found if row["dataset"] == part],
        )
        for place, part in enumerate(parts)
    ]


def _metrics(artefact: Artefact, rows: Sequence[Mapping[str, str]]) -> list[View]:
    """A table of metrics as it is written: printed, published, difference and clean beside each other."""
    found = [{key: typed(key, text) for key, text in row.items()} for row in rows]
    caption = f"{label(artefact.name)}: {artefact.title}."
    tables = metric_tables(artefact, found, caption, ())
    parts = artefact.datasets if len(artefact.lines) > 1 else ("values",)
    return [
        view(
            f"{artefact.target}-{part}", table, best=[column.key for column in table.columns if column.ranked]
        )
        for part, table in zip(parts, tables, strict=True)
    ]


def _view(
    artefact: Artefact, anchor: str, title: str, columns: Sequence[Column], rows: Sequence[Row]
) -> View:
    caption = f"{label(artefact.name)}: {title}."
    return view(anchor, Table(caption, _first_text_first(columns), rows), fold=True)


def _first_text_first(columns: Sequence[Column]) -> list[Column]:
    """The first column names its row, so it is one of text."""
    texts = [column for column in columns if column.align == "left"][:1]
    return [*texts, *(column for column in columns if column not in texts)]


def _told(artefact: Artefact) -> str:
    """What a figure shows, for those who cannot see it."""
    place = f" on {', '.join(artefact.datasets)}" if artefact.datasets else ""
    shown = f": {', '.join(metric.upper() for metric in artefact.metrics)}" if artefact.metrics else ""
    return f"{_CHARTS.get(artefact.layout, 'Figure')}. {artefact.title}{place}{shown}."


def image_of(stem: Path, told: str) -> Image:
    """A figure with its caption; `told` says what it is to those who cannot see it."""
    path, pdf, text = (stem.with_name(f"{stem.name}.{ending}") for ending in ("png", "pdf", "txt"))
    content = content_of(path)
    if not content.startswith(_PNG) or not content.endswith(_PNG_END):
        raise not_whole(path, "it does not begin and end like a png file")
    if b"%%EOF" not in content_of(pdf)[-32:]:
        raise not_whole(pdf, "it does not end like a pdf file")
    caption = content_of(text).decode("utf-8").strip()
    if not caption:
        raise not_whole(text, "it is empty")
    width, height = struct.unpack(">II", content[16:24])
    return Image(
        f"data:image/png;base64,{base64.b64encode(content).decode('ascii')}",
        width,
        height,
        f"{told} What it shows is told below it; its numbers are in the csv file.",
        caption,
    )


def links_of(stem: Path, endings: Sequence[str], out: Path) -> list[tuple[str, str]]:
    """Ending and relative address of each form of a table or figure, as seen from the page `out`."""
    paths = [stem.with_name(f"{stem.name}.{ending}") for ending in endings]
    for path in paths:
        content_of(path)
    return [(ending, address_of(path, out)) for ending, path in zip(endings, paths, strict=True)]
