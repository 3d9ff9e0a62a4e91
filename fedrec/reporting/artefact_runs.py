"""The lines of a table or figure of a paper, and the finished runs behind each line."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedrec.config.catalogue import Catalogue
from fedrec.config.methods import Methods, title
from fedrec.config.names import parse
from fedrec.config.papers import Artefact, Line
from fedrec.config.protocol import rules_name
from fedrec.data.split import how_to_split
from fedrec.errors import ResultError
from fedrec.files.checked_json import read_checked_json
from fedrec.files.parquet import read_table
from fedrec.plan.project import Project
from fedrec.plan.protocol_steps import ProtocolSteps
from fedrec.plan.selection import runs_of
from fedrec.plan.targets import Target
from fedrec.reporting.built_files import reading_built
from fedrec.runs.record import RunRecord

RunGroups: TypeAlias = Mapping[tuple[int, str, str], Sequence[RunRecord]]
"""Finished runs by the index of the line, the dataset and the protocol's full name: one per seed."""


@dataclass(frozen=True)
class ArtefactRuns:
    """An artefact, its finished runs, and the configuration that explains them."""

    artefact: Artefact
    groups: RunGroups
    methods: Methods
    results: Path
    catalogue: Catalogue
    unavailable: Mapping[str, str]
    """Why a dataset, or the split of one (`dataset/protocol`), is not available."""

    @property
    def records(self) -> list[RunRecord]:
        """All runs."""
        return [record for group in self.groups.values() for record in group]

    @property
    def first_seed(self) -> list[RunRecord]:
        """The run of the first seed in each group, which figures of models show."""
        return [group[0] for group in self.groups.values()]

    @property
    def data(self) -> Path:
        """The folder of datasets and splits."""
        return self.results / "data"

    def label(self, line: Line) -> str:
        """The label of a line."""
        return line.label or title(self.methods, self.method(line))

    def method(self, line: Line) -> str:
        """The name of a line's method, without the setting on the axis of a figure."""
        assert line.run is not None, "a line of a figure is a run"
        composition = parse(line.run)
        setting = self.artefact.options.get("setting")
        return str(replace(composition, changes=tuple(c for c in composition.changes if c[0] != setting)))

    def statistics(self, dataset: str) -> Mapping[str, Any] | None:
        """The statistics of a dataset, if it is available."""
        path = self.data / dataset / "statistics.json"
        if dataset in self.unavailable or not path.is_file():
            return None
        return read_statistics(path)

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Users and items of the datasets that are available."""
        return {
            name: (statistics["users"], statistics["items"])
            for name in self.artefact.datasets
            if (statistics := self.statistics(name))
        }


def artefact_runs_of(target: Target, project: Project) -> ArtefactRuns:
    """The runs of a target that is a paper's table or figure."""
    artefact = project.artefact(target)
    unavailable: Mapping[str, str] = target.content["unavailable"]
    runs = runs_of(artefact, project.methods, target.content["seeds"], unavailable) if target.runs else {}
    shown = set(target.runs)
    groups = {
        key: records
        for key, group in runs.items()
        if (records := [RunRecord(project.results / run.folder) for run in group if run in shown])
    }
    return ArtefactRuns(artefact, groups, project.methods, project.results, project.catalogue, unavailable)


def stem_of(target: Target, project: Project) -> Path:
    """The path of a target's files without their endings."""
    return (project.results / target.files[0]).with_suffix("")


def is_of_a_paper(target: Target) -> bool:
    """Whether a target is a paper's table or figure."""
    return "artefact" in target.content


def comparison_runs_of(target: Target, project: Project) -> ArtefactRuns:
    """The runs of a comparison on one dataset, as an artefact with one line per method."""
    records = of_one_protocol_seed(finished_runs(target, project))
    indices: dict[str, int] = {}
    groups: dict[tuple[int, str, str], list[RunRecord]] = {}
    for record in records:
        index = indices.setdefault(record.id.method, len(indices))
        groups.setdefault((index, record.id.dataset, record.protocol), []).append(record)
    datasets = list(dict.fromkeys(record.id.dataset for record in records))
    protocols = sorted({record.protocol for record in records}, key=lambda name: (name == "clean", name))
    # The axis shows rounds, so names leave them out.
    artefact = Artefact(
        records[0].id.paper, "", f"Convergence on {', '.join(datasets)}", target.layout,
        tuple(datasets), ("hr@10",), tuple(Line(run=name) for name in indices),
        options={"protocols": protocols, "setting": "rounds"},
    )  # fmt: skip
    return ArtefactRuns(artefact, groups, project.methods, project.results, project.catalogue, {})


def finished_runs(target: Target, project: Project) -> list[RunRecord]:
    """The runs of a target, sorted."""
    return [RunRecord(project.results / run.folder) for run in sorted(target.runs)]


def of_one_protocol_seed(records: Iterable[RunRecord]) -> list[RunRecord]:
    """Runs without those under a protocol with another seed, such as `clean-1`."""
    return [record for record in records if rules_name(record.protocol) == record.protocol]


def statistics_of(target: Target, project: Project) -> dict[str, Mapping[str, Any]]:
    """The statistics that a target reads, by dataset."""
    statistics = {}
    for file in target.reads:
        if file.endswith("/statistics.json"):
            content = read_statistics(project.results / file)
            statistics[content["dataset"]] = content
    return statistics


def read_statistics(path: Path) -> Mapping[str, Any]:
    """The statistics that `fedrec describe` wrote; raise `ResultError` if they are of another dataset."""
    with reading_built(path):
        statistics = read_checked_json(path)
        if statistics["dataset"] != path.parent.name:
            raise ValueError(f"it has the statistics of {statistics['dataset']}")
    return statistics


def steps_of(target: Target) -> tuple[list[ProtocolSteps], list[int]]:
    """The steps between protocols that a target shows, by dataset, and the seeds."""
    return [
        ProtocolSteps(**{**entry, "methods": tuple(entry["methods"]), "switches": tuple(entry["switches"])})
        for entry in target.content["steps"]
    ], list(target.content["seeds"])


def has_split(record: RunRecord, data: Path) -> bool:
    """Whether the data has the split that a run was trained on."""
    return _split_path(record, data).is_file()


def _split_path(record: RunRecord, data: Path) -> Path:
    return data / record.id.dataset / record.protocol / "split.parquet"


def split_table(record: RunRecord, data: Path) -> tuple[Any, dict[str, Any]]:
    """The rows of the split that a run was trained on, as a pyarrow table, and the metadata of its file."""
    path = _split_path(record, data)
    if not path.is_file():
        raise ResultError(f"{path}: no such split. Build it with: snakemake --cores 2 '{path}'")
    rows, about = read_table(path, rebuild=f"Delete the folder, then: {how_to_split(path.parent)}")
    if about["split"] != record.summary["split"]:
        raise ResultError(
            f"{record.folder} was trained on split {record.summary['split'][:8]}, but {path} is "
            f"{about['split'][:8]}. Train it again: snakemake does, or type `fedrec train`."
        )
    return rows, about


def training_counts(split: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # noqa: ANN401 - pyarrow's table
    """The users of a split, and the number of training interactions of each."""
    users = split["user"].to_numpy()
    train = pc.equal(split["part"], "train").to_numpy()
    present = np.unique(users).astype(np.int64)
    return present, np.bincount(users[train], minlength=int(present[-1]) + 1)[present].astype(np.int64)


def split_sizes(record: RunRecord, data: Path) -> tuple[int, int]:
    """The numbers of clients and items of the split that a run was trained on."""
    _, about = split_table(record, data)
    return about["users"] - len(about["dropped_users"]), about["items"]
