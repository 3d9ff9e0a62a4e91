"""PFedRec compared with a federated baseline under the clean protocol, by sampled and exact metrics."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from docs.tables.numbers import REFERENCE, Row, markdown, numbers

if TYPE_CHECKING:
    from fedrec.runs.store import PackedRun

_METHOD, _RIVALS = "pfedrec", ("fedmf", "fedncf", "fedrecon")
_DATASETS = {"ml-100k": "MovieLens 100K", "ml-1m": "MovieLens 1M", "lastfm-2k-a": "`lastfm-2k-a`"}
_METRICS = {"hr@10": "99 candidates", "exact_hr@10": "all items"}
_SEEDS = range(5)


@cache
def from_store(store: Path = REFERENCE) -> tuple[Row, ...]:
    """The difference of PFedRec from the best of its federated baselines, by dataset and metric.

    It is the mean over five seeds and all users, with an interval over users. Sampled validation HR@10
    chooses the best.
    """
    from fedrec.runs.store import RunStore

    runs = {dataset: RunStore(store).runs_on(dataset) for dataset in _DATASETS}
    return tuple(_row(runs[dataset], dataset, metric) for dataset in _DATASETS for metric in _METRICS)


def _row(runs: "Mapping[str, PackedRun]", dataset: str, metric: str) -> Row:
    from fedrec.audit.significance import bootstrap_interval
    from fedrec.evaluation.metrics import per_user
    from fedrec.runs.exact import sampled_name
    from fedrec.runs.store import PackedRecord

    values, on_validation = {}, {}
    for method in (_METHOD, *_RIVALS):
        names = [f"runs/pfedrec/{dataset}/clean/{method}/seed{seed}" for seed in _SEEDS]
        records = [PackedRecord(Path(name), packed=runs[name]) for name in names]
        on_validation[method] = fmean(record.metric(sampled_name(metric), "validation") for record in records)
        ranks = [record.ranks_of(metric).rank for record in records]
        values[method] = np.mean([per_user(rank, sampled_name(metric)) for rank in ranks], axis=0)
    rival = max(_RIVALS, key=on_validation.__getitem__)
    differences = values[_METHOD] - values[rival]
    low, high = bootstrap_interval(differences)
    return {
        "dataset": dataset,
        "metric": metric,
        "pfedrec": f"{values[_METHOD].mean():.4f}",
        "rival": rival,
        "rival_value": f"{values[rival].mean():.4f}",
        "difference": f"{differences.mean():+.4f}",
        "distance": f"{abs(differences.mean()):.4f}",
        "low": f"{low:+.4f}",
        "high": f"{high:+.4f}",
        "users": str(len(differences)),
        "seeds": str(len(_SEEDS)),
    }


def exact() -> str:
    """The differences as a table."""
    return markdown(
        (
            "dataset",
            "HR@10 among",
            "PFedRec",
            "federated baseline, best on validation",
            "difference [95 % interval over users]",
        ),
        (
            (
                f"{_DATASETS[row['dataset']]}, {int(row['users']):,} users",
                _METRICS[row["metric"]],
                row["pfedrec"],
                f"`{row['rival']}` {row['rival_value']}",
                f"{row['difference']} [{row['low']}, {row['high']}]",
            )
            for row in numbers("exact")
        ),
        right=2,
    )
