"""The report: one page of all results, which opens in any browser and loads nothing from anywhere.

Its numbers come from the csv files of tables and figures and from the files of runs. What is
asked for but missing is an error; what cannot be had, or was not asked for, is listed on the page.
"""

import base64
import hashlib
import json
import os
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from fedrec.data.store import read_table
from fedrec.errors import ResultError, StorageError
from fedrec.files import write_text
from fedrec.papers import KINDS, Artefact, Paper, can_be_built, without
from fedrec.provenance import code_hash
from fedrec.reporting.comparison import comparison_table
from fedrec.reporting.dataset_statistics import statistics_tables
from fedrec.reporting.metric_tables import metric_tables
from fedrec.reporting.tables import Column, Row, Table
from fedrec.reporting.views import (
    View,
    columns_of,
    not_whole,
    read_csv,
    side_by_side,
    typed,
    typed_rows,
    view,
)

PAGE = Path(__file__).resolve().parent / "page"
"""The template of the page, its style and its script."""
_CHARTS = {
    "convergence": "Curves over rounds",
    "sweep": "Curves over the values of a setting",
    "bars": "Bars",
    "curricula": "Curves",
    "bubbles": "Bubbles",
}
_METRICS = tuple(f"{name}@10_{kind}" for name in ("hr", "ndcg") for kind in KINDS)
_TIMES = ("clients", "bytes_down_per_client", "bytes_up_per_client", "local_seconds", "server_seconds")
_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_END = b"IEND\xaeB`\x82"
_GIB = 2**30
_KIB = 2**10


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


@dataclass(frozen=True)
class Finished:
    """A finished run: what it says of itself, and its mean or median over rounds."""

    folder: Path
    summary: Mapping[str, Any]
    rounds: Mapping[str, float]

    @property
    def key(self) -> tuple[str, str, str, str, int, str]:
        """The order of runs on the page, whatever the order they are given in."""
        run = self.summary
        protocol = run["protocol"]["name"]
        return run["paper"], run["dataset"], protocol, run["method"], run["seed"], str(self.folder)


def page_files() -> list[Path]:
    """The files of the page that are no Python sources: a rule that makes it depends on them, too."""
    return sorted(path for path in PAGE.iterdir() if path.is_file())


def write_report(
    results: Path,
    papers: Mapping[str, Paper],
    chosen: Sequence[Artefact],
    *,
    datasets: Sequence[str],
    selections: Sequence[str],
    unavailable: Mapping[str, str],
    runs: Sequence[Path],
    out: Path,
) -> None:
    """Write the page `out` about what is below `results`.

    `chosen` are the tables and figures asked for, `datasets` those whose methods are compared
    (`tables/<dataset>_comparison.csv`), `selections` the tables of statistics
    (`tables/<selection>_statistics.csv`), `unavailable` the reason for each dataset or split
    (`dataset/protocol`) that cannot be had, and `runs` the folders of finished runs. The same
    files give the same page.
    """
    finished = sorted((_finished(folder) for folder in set(runs)), key=lambda run: run.key)
    asked = {one.target for one in chosen}
    every = [one for paper in papers.values() for one in paper.artefacts.values()]
    built = [one for one in every if one.target in asked and can_be_built(one, unavailable)]
    compared = [name for name in dict.fromkeys(datasets) if name not in unavailable]
    style, script = (_page_file(name) for name in ("report.css", "report.js"))
    page = _template().render(
        style=Markup(style),  # noqa: S704 - a file of this package
        script=Markup(script),  # noqa: S704 - a file of this package
        style_hash=_hash_of(style),
        script_hash=_hash_of(script),
        protocols=_protocols(finished),
        comparisons=[(name, _comparison(results, name, out)) for name in compared],
        papers=[
            (paper, [_shown(results, one, unavailable, out) for one in built if one.paper == name])
            for name, paper in papers.items()
        ],
        statistics=[(name, *_statistics(results, name, out)) for name in dict.fromkeys(selections)],
        provenance=_provenance(finished, out) if finished else None,
        costs=_costs(finished) if finished else None,
        unbuilt=[
            (one, label(one.name), without(one, unavailable))
            for one in every
            if one.target in asked and one not in built
        ],
        partial=[
            (one, label(one.name), without(one, unavailable)) for one in built if without(one, unavailable)
        ],
        uncompared=[name for name in dict.fromkeys(datasets) if name in unavailable],
        unasked=[
            (paper, [(one, label(one.name)) for one in paper.artefacts.values() if one.target not in asked])
            for paper in papers.values()
            if any(one.target not in asked for one in paper.artefacts.values())
        ],
        schemes=[
            (paper, [(label(name), what) for name, what in paper.schemes.items()])
            for paper in papers.values()
            if paper.schemes
        ],
        unavailable=unavailable,
        papers_by_name=papers,
    )
    write_text(out, page)


def label(name: str) -> str:
    """`Table 3` for `table3`, `Figure 10` for `fig10`."""
    found = re.fullmatch(r"(table|fig)(\w+)", name)
    return name if found is None else f"{'Table' if found[1] == 'table' else 'Figure'} {found[2]}"


def _comparison(results: Path, dataset: str, out: Path) -> tuple[View, list[tuple[str, str]], Image | None]:
    stem = results / "tables" / f"{dataset}_comparison"
    path = stem.with_name(f"{stem.name}.csv")
    with _telling(path):
        rows = [
            {
                key: float(text) if re.match(r"(hr|ndcg)@|seconds", key) and text else text or None
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
        image = _image(curves, f"{_CHARTS['convergence']} on {dataset}, one for each method.")
    return found, _links(stem, ("csv", "md", "tex"), out), image


def _statistics(results: Path, selection: str, out: Path) -> tuple[list[View], list[tuple[str, str]]]:
    stem = results / "tables" / f"{selection}_statistics"
    path = stem.with_name(f"{stem.name}.csv")
    with _telling(path):
        rows = [{key: typed(key, text) for key, text in row.items()} for row in read_csv(path)]
        tables = statistics_tables(rows, code_hash("fedrec.reporting.dataset_statistics"))
        views = [
            view(f"statistics-{selection}-{part}", table)
            for part, table in zip(("counts", "splits"), tables, strict=True)
            if table.rows
        ]
    return views, _links(stem, ("csv", "md", "tex"), out)


@contextmanager
def _telling(path: Path) -> Iterator[None]:
    """Names the file whose columns are not what they should be."""
    try:
        yield
    except KeyError as error:
        raise not_whole(path, f"it has no column {error}") from error
    except (TypeError, ValueError) as error:
        raise not_whole(path, f"a number in it is none ({error})") from error


def _shown(results: Path, artefact: Artefact, unavailable: Mapping[str, str], out: Path) -> Shown:
    stem = results / f"{artefact.form}s" / artefact.target
    figure = artefact.form == "figure"
    rows = read_csv(stem.with_name(f"{stem.name}.csv"))
    return Shown(
        artefact,
        label(artefact.name),
        () if figure else _views(artefact, rows),
        _image(stem, _told(artefact)) if figure else None,
        _links(stem, ("csv", "pdf", "png") if figure else ("csv", "md", "tex"), out),
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
    return [
        view(
            f"{artefact.target}-{dataset}",
            table,
            best=[column.key for column in table.columns if column.ranked],
        )
        for dataset, table in zip(artefact.datasets, metric_tables(artefact, found, caption, ()), strict=True)
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


def _image(stem: Path, told: str) -> Image:
    path, pdf, text = (stem.with_name(f"{stem.name}.{ending}") for ending in ("png", "pdf", "txt"))
    content = _content(path)
    if not content.startswith(_PNG) or not content.endswith(_PNG_END):
        raise not_whole(path, "it does not begin and end like a png file")
    if b"%%EOF" not in _content(pdf)[-32:]:
        raise not_whole(pdf, "it does not end like a pdf file")
    caption = _content(text).decode("utf-8").strip()
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


def _finished(folder: Path) -> Finished:
    path = folder / "run.json"
    try:
        summary = json.loads(_content(path))
    except ValueError as error:
        raise not_whole(path, str(error)) from error
    try:
        found = Finished(folder, summary, _rounds(folder))
        # What cannot be told of this run is found out here, where its folder can be named.
        _ = found.key, _provenance_row(found, ""), _protocol_row(found)
    except (KeyError, TypeError) as error:
        raise not_whole(path, f"it does not say {error}") from error
    return found


def _rounds(folder: Path) -> dict[str, float]:
    """What a round of a run cost."""
    path = folder / "timing.parquet"
    try:
        table, _ = read_table(path)
        columns = {name: np.asarray(table[name].to_numpy(), dtype=np.float64) for name in _TIMES}
    except StorageError as error:
        raise ResultError(f"{error} It tells what the rounds of this run cost.") from error
    except KeyError as error:
        raise not_whole(path, f"it has no column {error}") from error
    return {
        "rounds": table.num_rows,
        "clients": float(columns["clients"].mean()),
        "down": float(columns["bytes_down_per_client"].mean()) / _KIB,
        "up": float(columns["bytes_up_per_client"].mean()) / _KIB,
        "local": float(np.median(columns["local_seconds"])),
        "server": float(np.median(columns["server_seconds"])),
        "round": float(np.median(columns["local_seconds"] + columns["server_seconds"])),
    }


def _identity(run: Finished) -> dict[str, Any]:
    found = {key: run.summary[key] for key in ("paper", "dataset", "method", "seed")}
    return found | {"protocol": run.summary["protocol"]["name"]}


_IDENTITY = (
    Column("method", "method", align="left"),
    Column("dataset", "dataset", align="left"),
    Column("protocol", "protocol", align="left"),
    Column("paper", "settings of", align="left"),
    Column("seed", "seed", align="left"),
)


def _provenance_row(run: Finished, href: str) -> Row:
    summary, measured = run.summary, run.summary["measured"]
    changed = [key for key, source in summary["sources"].items() if source == "user"]
    return _identity(run) | {
        "href": href,
        "changed": ", ".join(f"{key}={_spelt(summary['settings'][key])}" for key in changed) or "none",
        "method_code": summary["code"]["method"],
        "engine_code": summary["code"]["engine"],
        "split": summary["split"],
        "device": measured["device"],
        "versions": ", ".join(f"{name} {version}" for name, version in measured["versions"].items()),
        "seconds": measured["seconds"],
        "memory": measured["peak_memory_bytes"] / _GIB,
    }


def _spelt(value: object) -> str:
    if isinstance(value, list):
        return "x".join(map(str, value)) or "none"
    return "null" if value is None else str(value)


def _provenance(runs: Sequence[Finished], out: Path) -> View:
    table = Table(
        "Every run of this report. Hashes are cut to eight letters; run.json, behind the name of the method, "
        "has them whole, with every setting.",
        [
            *_IDENTITY,
            Column("changed", "settings changed", align="left"),
            Column("method_code", "code of method", "{:.8}", align="left"),
            Column("engine_code", "code of engine", "{:.8}", align="left"),
            Column("split", "split", "{:.8}", align="left"),
            Column("device", "device", align="left"),
            Column("versions", "versions", align="left"),
            Column("seconds", "seconds", "{:,.1f}"),
            Column("memory", "peak memory, GiB", "{:.2f}"),
        ],
        [_provenance_row(run, _relative(run.folder / "run.json", out)) for run in runs],
    )
    return view("runs-table", table, fold=True, linked="method")


def _costs(runs: Sequence[Finished]) -> View:
    table = Table(
        "What a round costs: seconds, as the median over rounds, and what a client receives and sends, as "
        "the mean over rounds, at four bytes a number. Seconds of different devices do not compare.",
        [
            *_IDENTITY,
            Column("device", "device", align="left"),
            Column("rounds", "rounds", "{:.0f}"),
            Column("clients", "clients a round", "{:,.0f}"),
            Column("round", "s a round", "{:,.3f}"),
            Column("local", "of it clients", "{:,.3f}"),
            Column("server", "of it server", "{:,.3f}"),
            Column("down", "KiB down a client", "{:,.1f}"),
            Column("up", "KiB up a client", "{:,.1f}"),
        ],
        [_identity(run) | {"device": run.summary["measured"]["device"], **run.rounds} for run in runs],
    )
    return view("costs-table", table, fold=True)


def _protocol_row(run: Finished) -> dict[str, Any]:
    found = {key: value for key, value in run.summary["protocol"].items() if key != "name"}
    return {"protocol": run.summary["protocol"]["name"]} | found


def _protocols(runs: Sequence[Finished]) -> View | None:
    """The choices of each protocol there are runs of, as the runs state them."""
    rows: list[Row] = []
    for row in sorted((_protocol_row(run) for run in runs), key=lambda row: str(row["protocol"])):
        if row not in rows:
            rows.append(row)
    if not rows:
        return None
    keys = dict.fromkeys(key for row in rows for key in row)
    columns = [Column(key, key.replace("_", " "), align="left") for key in keys]
    spelt = [
        {key: None if value is None else str(value).replace("_", " ") for key, value in row.items()}
        for row in rows
    ]
    table = Table(
        "Protocols of the runs of this report. The leak is the pool of negatives: “exclude all” leaves out "
        "the held-out items, too.",
        columns,
        spelt,
    )
    return view("protocols-table", table, fold=True)


def _links(stem: Path, endings: Sequence[str], out: Path) -> list[tuple[str, str]]:
    paths = [stem.with_name(f"{stem.name}.{ending}") for ending in endings]
    for path in paths:
        _content(path)
    return [(ending, _relative(path, out)) for ending, path in zip(endings, paths, strict=True)]


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ResultError(f"{path}: no such file. Build it with: snakemake --cores 2 '{path}'") from None
    if not content:
        raise not_whole(path, "it is empty")
    return content


def _relative(path: Path, out: Path) -> str:
    return quote(Path(os.path.relpath(path, out.parent)).as_posix())


@cache
def _page_file(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8")


def _template() -> Any:  # noqa: ANN401 - jinja2's own type says no more
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["breakable"] = _breakable
    return environment.from_string(_page_file("report.html"))


def _breakable(text: str) -> Markup:
    """The text, to be broken before the settings in a method's name rather than anywhere."""
    return escape(text).replace("[", Markup("<wbr>["))


def _hash_of(text: str) -> str:
    """What the page's policy calls an inline style or script that may be used."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"


def folders_of_runs(named: Sequence[str], listed: Sequence[Path]) -> list[Path]:
    """The folders behind names of runs, given on the command line or one per line in files.

    A name is a run's folder, its run.json, or a pattern with `*`. Brackets are no pattern:
    they stand in names of methods.
    """
    found: dict[Path, None] = {}
    for name in [*named, *_lines(listed)]:
        paths = _matching(name) if "*" in name else [Path(name)]
        if not paths:
            raise ResultError(f"{name}: no run matches this pattern.")
        found |= {path.parent if path.name == "run.json" else path: None for path in paths}
    return list(found)


def _lines(files: Sequence[Path]) -> Iterator[str]:
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ResultError(f"{file}: no such file; it should name one run per line.") from None
        yield from (line.strip() for line in text.splitlines() if line.strip())


def _matching(pattern: str) -> list[Path]:
    path = Path(pattern)
    start = Path(path.anchor) if path.anchor else Path()
    inner = pattern.removeprefix(path.anchor).replace("[", "[[]")
    return sorted(found for found in start.glob(inner) if found.name == "run.json" or found.is_dir())
