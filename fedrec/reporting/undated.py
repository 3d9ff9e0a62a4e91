"""Datasets without times: why a number under the clean protocol may be above the published one."""

from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import stem_of
from fedrec.reporting.tables.table import ReportTable, add_note, read_shown


def add_undated_notes(target: Target, project: Project) -> None:
    """Add a note below each table of a dataset without times with a clean number above a published one."""
    datasets = {run.dataset for run in target.runs}
    undated = {name for name in datasets & set(project.catalogue) if project.catalogue[name].time != "file"}
    if not undated:
        return
    stem = stem_of(target, project)
    below: dict[str, list[int]] = {}
    for index, table in enumerate(read_shown(stem.with_name(f"{stem.name}.json")).tables):
        dataset = _dataset_of(table, datasets)
        if dataset is not None and dataset in undated and _is_clean_above(table):
            below.setdefault(dataset, []).append(index)
    for dataset, indices in below.items():
        add_note(stem, undated_note(dataset), indices)


def undated_note(dataset: str) -> str:
    """Explain why clean may be above published on a dataset without times."""
    return (
        f"{dataset} has no times. The clean protocol holds out a random item of each user; the published "
        "protocol holds out the last item in the order of the file. So clean may be above published."
    )


def _dataset_of(table: ReportTable, datasets: set[str]) -> str | None:
    """The dataset of a table: the one that its part names, or the only one of its target."""
    part = table.part.removesuffix("-exact")
    if part in datasets:
        return part
    return next(iter(datasets)) if len(datasets) == 1 else None


def _is_clean_above(table: ReportTable) -> bool:
    """Whether a row has a larger number under clean than under published in the same metric."""
    keys = [column.key for column in table.columns if "@" in column.key]
    metrics = [key.removesuffix("_clean") for key in keys if key.endswith("_clean")]
    pairs = (
        (row.get(f"{metric}_clean"), row.get(f"{metric}_published"))
        for row in table.rows
        for metric in metrics
        if not row.get("unranked")
    )
    return any(
        clean is not None and published is not None and clean > published for clean, published in pairs
    )
