"""Results nobody trained for: small folders laid out as the workflow leaves them, to report on."""

import copy
import pickle
import shutil
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.figure import Figure

from fedrec.config.methods import load_methods, resolve
from fedrec.config.papers import Artefact, Paper, load_papers
from fedrec.files.checked_json import write_checked_json
from fedrec.files.parquet import write_table
from fedrec.plan.layouts import load_layouts
from fedrec.plan.runs import RunId
from fedrec.reporting.figures import chart
from fedrec.reporting.figures.chart import write_figure
from fedrec.reporting.figures.slope import method_scores_figure, slope_caption
from fedrec.reporting.figures.style import theme
from fedrec.reporting.figures.svg import svg_of
from fedrec.reporting.method_scores import method_scores, rows_of
from fedrec.reporting.page.page import write_page
from fedrec.reporting.tables.comparison import comparison
from fedrec.reporting.tables.metrics import metric_tables
from fedrec.reporting.tables.statistics import statistics_tables
from fedrec.reporting.tables.table import ReportColumn, ReportTable, write_forms
from fedrec.runs.record import RunRecord
from tests.conftest import ROOT
from tests.once import once_for_all_workers

ALL_METHODS = load_methods(ROOT / "config/methods.yaml")
USERS = 1000
CHOSEN = ("pfedclr_table1", "pfedclr_table5", "pfedclr_fig10", "fedrap_fig3", "plgc_fig7")
BUILT = CHOSEN[:-1]
"""Those of them whose datasets are available."""
DATASETS = ("filmtrust", "ml-100k")
LAYOUTS = load_layouts()
UNAVAILABLE = {
    "hetrec2011": "hetrec/<b>ratings</b>.dat is not local, and files.example.org cannot be reached",
    "douban-book": "douban/book.txt is not local, and its licence must be accepted first (https://douban.example)",
}
METHODS = {
    "popularity": 0.41, "draw-counter": 0.0997, "mf": 0.6405, "fedmf": 0.4624, "fedmf[d=16]": 0.45, "fedmf[d=8]": 0.44,
    "fedmf+plgc[beta=0.3]": 0.26, "pfedclr": 0.2672,
}  # fmt: skip

PDF = b"%PDF-1.4\nnothing\n%%EOF\n"


def png(width: int = 60, height: int = 40) -> bytes:
    """A picture of one grey."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    rows = (b"\x00" + b"\x99" * width) * height
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def svg(width: int = 60, height: int = 40) -> str:
    """A picture with a line of ink."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"><style>@media screen and '
        '(prefers-color-scheme:dark){[style*="stroke: #000000"]{stroke:#ededed!important}}</style>'
        f'<path d="M 0 0 L {width} {height}" style="stroke: #000000"/></svg>\n'
    )


def shared_made(tmp_path_factory: pytest.TempPathFactory) -> "Made":
    """The results of `Made`, written once for all workers: a test changes a copy."""
    folder = once_for_all_workers(
        tmp_path_factory,
        "made results",
        lambda folder: folder.joinpath("made.pickle").write_bytes(pickle.dumps(Made(folder))),
    )
    made: Made = pickle.loads((folder / "made.pickle").read_bytes())
    return made


@contextmanager
def drawn_as_svg() -> Iterator[None]:
    """Inside, the svg of a figure is drawn alone, as pages show it; its png and pdf, to which they lead, are stubs."""

    def save(figure: Figure, stem: Path) -> None:
        for ending, content in (("png", png()), ("pdf", PDF), ("svg", svg_of(figure).encode())):
            stem.parent.mkdir(parents=True, exist_ok=True)
            stem.with_name(f"{stem.name}.{ending}").write_bytes(content)

    with mock.patch.object(chart, "save", save):
        yield


class Made:
    """A folder of results, and what a report on it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "results"
        self.papers: dict[str, Paper] = load_papers(ROOT / "config/papers")
        self.runs: list[Path] = []
        self.forms = {artefact.target: LAYOUTS[artefact.layout].form for artefact in self.artefacts}
        self.forms |= {f"{dataset}_comparison": "table" for dataset in DATASETS}
        self.forms |= {f"{dataset}_slope": "figure" for dataset in DATASETS}
        for dataset in DATASETS:
            self._compare(dataset)
        self._statistics()
        for artefact in self.artefacts:
            if artefact.target in BUILT:
                self._figure(artefact) if self.forms[artefact.target] == "figure" else self._table(artefact)

    def copied(self, folder: Path) -> "Made":
        """The same results in another folder, without a report."""
        other = copy.copy(self)
        other.folder = folder / "results"
        other.runs = [other.folder / run.relative_to(self.folder) for run in self.runs]
        shutil.copytree(self.folder, other.folder, ignore=shutil.ignore_patterns("report"))
        return other

    @property
    def artefacts(self) -> list[Artefact]:
        return [artefact for paper in self.papers.values() for artefact in paper.artefacts.values()]

    def content(self) -> dict[str, Any]:
        """What the page shows."""
        return {
            "datasets": list(DATASETS),
            "targets": [
                *(f"{dataset}_{layout}" for dataset in DATASETS for layout in ("comparison", "slope")),
                *BUILT,
            ],
            "artefacts": list(CHOSEN),
            "built": list(BUILT),
            "kept": {},
            "prefix": "",
            "statistics": ["selected_statistics"],
            "audit": [],
            "unavailable": UNAVAILABLE,
        }

    def write_page(
        self, runs: Sequence[Path] | None = None, forms: Mapping[str, str] = {}, **changes: Any
    ) -> Path:
        """Write the page, of other content where so asked."""
        page = self.folder / "report/report.html"
        records = [RunRecord(folder) for folder in (self.runs if runs is None else runs)]
        content = self.content() | changes
        write_page(page, self.folder, self.papers, {**self.forms, **forms}, content, records, ALL_METHODS)
        return page

    def run(self, dataset: str, kind: str, method: str, hits: float) -> RunRecord:
        """Write a finished run."""
        protocol = {
            "name": "clean" if kind == "clean" else "published-pfedclr",
            "round_rule": "best_validation",
        }
        settings, sources, _ = resolve(ALL_METHODS, method, "pfedclr", dataset)
        summary = {
            "dataset": dataset,
            "method": method,
            "paper": "pfedclr",
            "protocol": protocol
            | {"negative_pool": "exclude_train" if kind == "clean" else "exclude_all", "candidates": 99},
            "seed": 0,
            "settings": settings | {"layers": [32, 16], "clip": None},
            "sources": sources | {"layers": "user" if method == "pfedclr" else "paper", "clip": "ours"},
            "split": {"clean": "ab", "published": "cd"}[kind] * 32,
            "code": "ef" * 32,
            "rounds": {"best_validation": 7},
            "metrics": {
                "best_validation": {
                    part: {"hr@10": hits, "ndcg@10": hits / 2} for part in ("validation", "test")
                }
            },
            **({"also_settings_of": ["fedem", "plgc"]} if (kind, method) == ("clean", "mf") else {}),
            "measured": {
                "seconds": 100 * len(method) / 7,
                "seconds_per_round": len(method) / 7,
                "peak_memory_bytes": 3 * 2**29,
                "device": "cpu (x86_64, 2 threads)",
                "versions": {"fedrec": "0.1.0", "torch": "2.13.0"},
            },
        }
        folder = self.folder / RunId("pfedclr", dataset, protocol["name"], method, 0).folder
        folder.mkdir(parents=True)
        write_checked_json(folder / "run.json", summary)
        timing = {
            "round": [1, 2, 3],
            "clients": [10, 10, 10],
            "bytes_down_per_client": [2048, 2048, 5120],
            "bytes_up_per_client": [1024, 1024, 1024],
            "local_seconds": [1.0, 2.0, 9.0],
            "server_seconds": [0.5, 0.5, 0.5],
        }
        write_table(folder / "timing.parquet", pa.table(timing), {})
        rank = np.where(np.arange(USERS) < round(USERS * hits), 1.0, 50.0).astype(np.float32)
        ranks = {"at": ["best_validation"] * USERS, "user": np.arange(USERS), "test_rank": rank}
        write_table(folder / "ranks.parquet", pa.table(ranks), {})
        self.runs.append(folder)
        return RunRecord(folder)

    def write(self, path: str, content: str | bytes) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)

    def write_table(
        self, target: str, rows: Sequence[Mapping[str, Any]], tables: Sequence[ReportTable]
    ) -> None:
        write_forms(self.folder / "tables" / target, rows, tables)

    def _compare(self, dataset: str) -> None:
        runs = []
        for method, hits in METHODS.items():
            runs.append(
                self.run(dataset, "published", method, 1.0 if method == "draw-counter" else hits + 0.1)
            )
            runs.append(self.run(dataset, "clean", method, hits))
        rows, tables = comparison(runs, ALL_METHODS)
        self.write_table(f"{dataset}_comparison", rows, tables)
        found = method_scores(runs, ALL_METHODS)
        with theme(), drawn_as_svg():
            figure = method_scores_figure(found)
            write_figure(
                self.folder / f"figures/{dataset}_slope",
                figure,
                rows_of(found),
                slope_caption(found, "Made."),
            )

    def _statistics(self) -> None:
        counts = ("users", "items", "interactions", "sparsity")
        row = {
            "dataset": "ml-100k", "title": "MovieLens 100K", "paper": "pfedclr", "printed_in": "pfedclr, Table 5",
            **dict(zip(counts, (943, 1682, 100000, 93.6953), strict=True)),
            **{f"{count}_published": value for count, value in zip(counts, (943, 1682, 100000, 93.7), strict=True)},
            "match": "exact", "unavailable": None, "note": "Five stars.", "note_on_printed": None, "unprinted": False,
            "repeated_pairs": 0, "tied_last_percent": 34.5, "protocol": "published-pfedclr",
            "interactions_hash": "7" * 64,
        }  # fmt: skip
        for kind in ("published", "clean"):
            row |= {f"{name}_{kind}": 0.1 for name in ("cold_test_percent", "known_test_percent")}
            row |= {f"{name}_{kind}": 943 for name in ("split_users", "dropped_users")}
        missing = dict.fromkeys(row) | {
            "dataset": "hetrec2011", "paper": "pfedclr", "printed_in": "pfedclr, Table 5", "users_published": 2113,
            "match": "not available", "unavailable": UNAVAILABLE["hetrec2011"], "unprinted": False,
        }  # fmt: skip
        rows = [row, missing]
        self.write_table("selected_statistics", rows, statistics_tables(rows, "c0de" * 16))

    def _table(self, artefact: Artefact) -> None:
        draws = np.random.default_rng(0)
        rows = [
            {
                "dataset": dataset,
                "line": line.label or (line.printed or ("?",))[0]
                if line.run != "fedmf"
                else "FedMF <i>x</i>",
                "method": line.run,
                "metric": metric,
                "protocol": protocol,
                "of_lines": line.run is None,
                "printed": round(float(draws.random()), 4),
                "value": (ours := float(draws.random()))
                if dataset not in UNAVAILABLE and line.run != "ncf"
                else None,
                "sd": None,
                "difference": ours - 0.5 if protocol != "clean" else None,
                "runs": [RunId("pfedclr", dataset, protocol, line.run, 0).folder] if line.run else [],
                "seeds": "0",
                "split_hash": "12345678",
            }
            for dataset in artefact.datasets
            for line in artefact.lines
            for metric in artefact.metrics
            for protocol in artefact.protocols
        ]
        if rows:
            self.write_table(
                artefact.target, rows, metric_tables(artefact, rows, f"{artefact.title}.", (), {})
            )
            return
        rows = [{"dataset": name, "users": 10 * place} for place, name in enumerate(artefact.datasets)]
        columns = [ReportColumn("dataset", "dataset", align="left"), ReportColumn("users", "users", "{:,}")]
        self.write_table(
            artefact.target, rows, [ReportTable(f"{artefact.title}.", columns, rows, part="values")]
        )

    def _figure(self, artefact: Artefact) -> None:
        stem = f"figures/{artefact.target}"
        self.write(f"{stem}.csv", "dataset,round,value\nml-100k,1,0.5\n")
        self.write(f"{stem}.txt", f"{artefact.title}: 3 < 4 & so on.\n")
        self.write(f"{stem}.png", png())
        self.write(f"{stem}.svg", svg())
        self.write(f"{stem}.pdf", PDF)
