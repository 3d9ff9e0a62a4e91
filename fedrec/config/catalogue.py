"""The catalogue of datasets: the sources of their files, and the format of each file.

`config/datasets.yaml` has one entry per dataset. `load_catalogue` reads and checks all entries. This module
reads no raw file.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from fedrec.config.default_files import file_or_default
from fedrec.config.document import Document, KeyPath
from fedrec.config.population import Population
from fedrec.config.schema import load
from fedrec.config.size import Size
from fedrec.errors import ConfigurationError, did_you_mean
from fedrec.files.atomic import canonical_json

Column = str | int
SourceKind = Literal["mirror", "url", "package"]
TimeSource = Literal["file", "first_appearance", "row_number", "constant"]
Encoding = Literal["utf-8", "latin-1", "cp1252", "gb18030"]
ENCODINGS: tuple[Encoding, ...] = get_args(Encoding)
DateForm = Literal["iso", "day_first", "month_first"]
"""The order in a date: year, day or month first."""
TimeFormat = Literal["seconds", "milliseconds", "ymd"] | DateForm
_OUTWARD = re.compile(r"^(/|(\.\./)+)")
"""The beginning of a path outside the project."""


@dataclass(frozen=True)
class Source:
    """A source of a raw file.

    `member` is the path inside an archive. `convert` names the function in `fedrec.data.convert` that
    converts the member. The result must have the file's sha256, unless `sha256` has another one or
    `unverified` has the reason why none is known.
    """

    kind: SourceKind
    location: str
    member: str | None = None
    convert: str | None = None
    sha256: str | None = None
    unverified: str | None = None

    def __str__(self) -> str:
        inside = f", member {self.member}" if self.member else ""
        return f"{self.kind} {self.location}{inside}"


@dataclass(frozen=True)
class TableFormat:
    """How to read a text table: separators, header, and which column is which."""

    separator: str
    columns: Mapping[str, Column | tuple[Column, ...]]
    header: bool = False
    quoted: bool = False
    encoding: Encoding = "utf-8"
    ids: Literal["auto", "integer", "text"] = "auto"
    time: TimeFormat = "seconds"


@dataclass(frozen=True)
class RawFile:
    """A raw file: its path below `results/raw`, its sha256, its sources, its format."""

    path: str
    sha256: str | None
    sources: tuple[Source, ...]
    format: TableFormat
    licence_page: str | None = None
    elsewhere: str | None = None
    """The path in the entry if it is outside the project: absolute, or with `..`; else None."""

    @property
    def written(self) -> str:
        """The path in the entry; a relative path starts at the project's top folder."""
        return self.elsewhere or self.path

    def accepted_sha256(self) -> set[str | None]:
        """The allowed hashes of its content, with None if a source cannot be checked."""
        return {self.expected_sha256(source) for source in self.sources}

    def expected_sha256(self, source: Source) -> str | None:
        """The hash of the content from `source`; None if it cannot be checked."""
        return None if source.unverified else source.sha256 or self.sha256

    def recipe(self) -> str:
        """Everything that decides the file's content, in one canonical line."""
        return canonical_json([self.path, self.sha256, [asdict(source) for source in self.sources]])


@dataclass(frozen=True)
class Published:
    """The statistics that a paper prints for a dataset; None for a missing one."""

    table: str
    sparsity: float
    users: int | None = None
    items: int | None = None
    interactions: int | None = None
    note: str = ""


@dataclass(frozen=True)
class Synthetic:
    """Settings of the generator of a small synthetic dataset (`fedrec.data.synthetic`)."""

    seed: int
    users: int
    items: int
    tastes: int


@dataclass(frozen=True)
class Slice:
    """A part of a dataset: `count` users, or items, starting at index `first`.

    They are sorted by their number of interactions, most first, and ties by id.
    """

    of: Literal["users", "items"]
    first: int
    count: int


@dataclass(frozen=True)
class Dataset:
    """One entry of the catalogue; a user's own dataset needs no citation, licence, papers or statistics."""

    name: str
    title: str
    min_rows: int
    time: TimeSource
    citation: str = ""
    licence: str = ""
    papers: tuple[str, ...] = ()
    published: Mapping[str, Published] = field(default_factory=dict)
    interactions: RawFile | None = None
    titles: RawFile | None = None
    row_orders: Mapping[str, RawFile] = field(default_factory=dict)
    sorted_rows: tuple[str, ...] = ()
    """Papers whose code sorts a user's rows by time, unstably, and then holds out the first latest row."""
    synthetic: Synthetic | Population | None = None
    distinct_pairs: bool = False
    """Whether no (user, item) pair is repeated, which fedrec checks: then `repeated_pairs` has no effect."""
    slice: Slice | None = None
    """The part of the interactions to keep after `min_rows`; a dataset with a slice is a part of another."""
    size: Size | None = None
    """The true size if no paper prints it; only estimates of time and memory use it."""
    homepage: str = ""
    note: str = ""

    def files(self) -> tuple[RawFile, ...]:
        """Every file of this dataset: the interactions, then the optional ones."""
        needed = () if self.interactions is None else (self.interactions,)
        return (*needed, *self.optional_files())

    def optional_files(self) -> tuple[RawFile, ...]:
        """Files that are used if available: titles, a paper's own row order."""
        titles = () if self.titles is None else (self.titles,)
        return (*self.row_orders.values(), *titles)

    def recipe(self) -> str:
        """Everything that decides `interactions.parquet`, in one canonical line."""
        formats = [asdict(file.format) for file in self.files()]
        synthetic = asdict(self.synthetic) if self.synthetic else None
        orders = sorted(self.row_orders)
        # Only for datasets that have them, so that the recipes of others stay the same.
        sliced = [asdict(self.slice)] if self.slice else []
        resorted = [{"sorted_rows": sorted(self.sorted_rows)}] if self.sorted_rows else []
        return canonical_json(
            [self.name, formats, orders, synthetic, self.min_rows, self.time, *sliced, *resorted]
        )

    def description(self) -> str:
        """Everything about this entry that a table prints, in one canonical line."""
        published = {paper: asdict(statistics) for paper, statistics in self.published.items()}
        return canonical_json([self.title, self.papers, published, self.note])


class Catalogue(Mapping[str, Dataset]):
    """All datasets by name. An unknown name is an error that lists the known ones."""

    def __init__(self, datasets: Mapping[str, Dataset], origin: str) -> None:
        self._datasets = dict(datasets)
        self._origin = origin

    def __getitem__(self, name: str) -> Dataset:
        try:
            return self._datasets[name]
        except KeyError:
            raise ConfigurationError(
                f"unknown dataset '{name}'.{did_you_mean(name, self)} {self._origin} has: "
                f"{', '.join(self._datasets)}."
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._datasets)

    def __len__(self) -> int:
        return len(self._datasets)

    def __contains__(self, name: object) -> bool:
        # Mapping's default expects a KeyError from __getitem__, which this class does not raise.
        return name in self._datasets

    def whole(self) -> list[str]:
        """The names of datasets that are not a slice of another."""
        return [name for name, dataset in self.items() if dataset.slice is None]

    def raw_file(self, path: str) -> RawFile:
        """The raw file at `path`, below the folder of raw files."""
        files = self.raw_files()
        if path not in files:
            raise ConfigurationError(f"{self._origin} has no raw file '{path}'.{did_you_mean(path, files)}")
        return files[path]

    def raw_files(self) -> dict[str, RawFile]:
        """Every raw file by path, including titles; datasets may share a file."""
        files: dict[str, RawFile] = {}
        for dataset in self.values():
            for file in dataset.files():
                known = files.setdefault(file.path, file)
                if known.recipe() != file.recipe():
                    raise ConfigurationError(
                        f"{self._origin}, {dataset.name}: another entry describes {file.path} differently. "
                        "Give both the same sha256 and sources (a YAML anchor keeps them equal), or another "
                        "path."
                    )
        return files


def load_catalogue(path: Path) -> Catalogue:
    """Read and check `config/datasets.yaml`."""
    return catalogue_of(load(file_or_default(path), "datasets"))


def catalogue_of(document: Document) -> Catalogue:
    """The catalogue in a document that fits the schema, with the checks that a schema cannot express."""
    catalogue = Catalogue(
        {name: _dataset(name, entry, document) for name, entry in document.content.items()},
        origin=document.origin,
    )
    catalogue.raw_files()
    return catalogue


def _dataset(name: str, entry: dict[str, Any], document: Document) -> Dataset:
    if ("interactions" in entry) == ("synthetic" in entry):
        raise ConfigurationError(
            f"{document.location((name,))}: give 'interactions' (files to read) or 'synthetic' (settings of "
            "the generator), not both."
        )
    rows = entry.get("filter", {})
    interactions = _file(entry, (name, "interactions"), document)
    timed = interactions is None or "time" in interactions.format.columns
    dataset = Dataset(
        name=name,
        title=entry.get("title", name),
        min_rows=rows.get("min_rows", 1),
        time=entry.get("time", "file" if timed else "first_appearance"),
        citation=entry.get("citation", ""),
        licence=entry.get("licence", ""),
        papers=tuple(entry.get("papers", ())),
        published={
            paper: Published(**statistics) for paper, statistics in entry.get("published", {}).items()
        },
        interactions=interactions,
        titles=_file(entry, (name, "titles"), document),
        row_orders={
            paper: _raw_file(file, (name, "row_orders", paper), document)
            for paper, file in entry.get("row_orders", {}).items()
        },
        sorted_rows=tuple(entry.get("sorted_rows", ())),
        synthetic=_synthetic(entry["synthetic"], (name, "synthetic"), document)
        if "synthetic" in entry
        else None,
        distinct_pairs=entry.get("distinct_pairs", False),
        slice=Slice(**rows["slice"]) if "slice" in rows else None,
        size=Size(**entry["size"]) if "size" in entry else None,
        homepage=entry.get("homepage", ""),
        note=entry.get("note", ""),
    )
    for paper in dataset.row_orders:
        if paper not in dataset.papers:
            raise ConfigurationError(
                f"{document.location((name, 'row_orders', paper))}: '{paper}' is not a paper of this dataset "
                f"({', '.join(dataset.papers)}). Add it to papers, or remove it here."
            )
    for paper in dataset.sorted_rows:
        if paper not in dataset.papers or paper in dataset.row_orders or dataset.time != "file":
            raise ConfigurationError(
                f"{document.location((name, 'sorted_rows'))}: only papers of this dataset "
                f"({', '.join(dataset.papers)}) without a row order of their own can have sorted rows, and "
                f"the file needs times. Remove '{paper}' here."
            )
    if dataset.time == "file" and not timed:
        raise ConfigurationError(
            f"{document.location((name, 'time'))}: 'file' needs a time column. Name it in "
            "interactions.format.columns.time, or write first_appearance."
        )
    return dataset


def _file(entry: dict[str, Any], key: tuple[str, str], document: Document) -> RawFile | None:
    return _raw_file(entry[key[1]], key, document) if key[1] in entry else None


def _raw_file(entry: dict[str, Any], key: KeyPath, document: Document) -> RawFile:
    if "sha256" in entry and "unverified" in entry:
        raise ConfigurationError(
            f"{document.location(key)}: 'unverified' gives the reason for a missing 'sha256'. Remove one of "
            "them."
        )
    sources = tuple(
        _source(source, (*key, "sources", index), document)
        for index, source in enumerate(entry.get("sources", ()))
    )
    path = _OUTWARD.sub("", entry["path"])
    return RawFile(
        path=path,
        sha256=entry.get("sha256"),
        # Always try a file in the mirror first, since a user may have put it there.
        sources=(Source("mirror", path), *sources),
        format=_format(entry["format"], (*key, "format"), document),
        licence_page=entry.get("licence_page"),
        elsewhere=entry["path"] if path != entry["path"] else None,
    )


def _source(entry: dict[str, Any], key: KeyPath, document: Document) -> Source:
    kinds: list[SourceKind] = [kind for kind in ("mirror", "url", "package") if kind in entry]
    if len(kinds) != 1:
        raise ConfigurationError(f"{document.location(key)}: give exactly one of mirror, url and package.")
    if kinds[0] == "package" and "member" not in entry:
        raise ConfigurationError(
            f"{document.location(key)}: a package needs 'member', the path of the file in it."
        )
    rest = {name: value for name, value in entry.items() if name != kinds[0]}
    return Source(kinds[0], entry[kinds[0]], **rest)


def _format(entry: dict[str, Any], key: KeyPath, document: Document) -> TableFormat:
    columns = {
        name: tuple(column) if isinstance(column, list) else column
        for name, column in entry["columns"].items()
    }
    parts = {name: column if isinstance(column, tuple) else (column,) for name, column in columns.items()}
    # Columns given by name need a header line, columns given by position do not.
    named = all(isinstance(part, str) for several in parts.values() for part in several)
    usual: dict[str, Any] = {"separator": ",", "header": named}
    format_ = TableFormat(**usual | entry | {"columns": columns})
    wanted = str if format_.header else int
    for name, several in parts.items():
        for part in several:
            if not isinstance(part, wanted):
                raise ConfigurationError(
                    f"{document.location((*key, 'columns', name))}: {part!r} must be "
                    + (
                        "the name of a column, because the file has a header line."
                        if format_.header
                        else "the position of a column from 0, because the file has no header line."
                    )
                )
    if format_.quoted and len(format_.separator) > 1:
        raise ConfigurationError(
            f"{document.location((*key, 'quoted'))}: needs a separator of one character, but "
            f"{format_.separator!r} has {len(format_.separator)}."
        )
    if isinstance(columns.get("time"), tuple) != (format_.time == "ymd") and "time" in columns:
        raise ConfigurationError(
            f"{document.location((*key, 'columns', 'time'))}: time: ymd needs a list [year, month, day], "
            "every other format one column."
        )
    return format_


def _synthetic(settings: Mapping[str, int], path: KeyPath, document: Document) -> Synthetic | Population:
    """A synthetic dataset: a small one with taste groups, or one of any size."""
    if ("tastes" in settings) == ("interactions" in settings):
        raise ConfigurationError(
            f"{document.location(path)}: give 'tastes' (a small dataset with taste groups) or 'interactions' "
            "(any size, popularity only), not both."
        )
    if "tastes" in settings:
        return Synthetic(**settings)
    try:
        return Population(**settings)
    except ConfigurationError as error:
        raise ConfigurationError(f"{document.location(path)}: {error}") from error
