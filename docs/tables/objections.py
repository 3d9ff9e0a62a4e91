"""Tables of the page of objections, from the stored runs under the clean protocol."""

from collections.abc import Mapping
from statistics import fmean, median

from docs.tables.numbers import REFERENCE, markdown

_BETA = {"0.1": "[beta=0.1]", "0.01": "", "0.001": "[beta=0.001]", "0.0001": "[beta=0.0001]", "0": "[beta=0]"}
"""The values of PFedCLR's Figure 13, with the endings of their runs' names."""
_OF_PFEDCLR = ("filmtrust", "ml-100k", "ml-1m", "lastfm-2k-c")
_WITH_JOINT_TRAINING = ("ml-100k",)
"""The datasets with a run that trains users and items jointly, without a correction."""
_OF_PFEDREC = {
    "ml-100k": range(5),
    "ml-1m": range(5),
    "lastfm-2k-a": range(5),
    "amazon-video-a": range(1),
}
"""The seeds of the runs on each dataset."""
_WITH_DRAWS = "ml-100k"
_DRAWS = ("clean", "clean-1", "clean-2")
"""Protocols that differ in their seed alone: it draws candidates, and the latest of rows with equal times."""


def beta() -> str:
    """PFedCLR with the paper's rate of the correction, and with the best of five on validation; seed 0."""
    lines = []
    for dataset in _OF_PFEDCLR:
        values = {value: _metrics(dataset, f"pfedclr{changes}") for value, changes in _BETA.items()}
        best = max(values, key=lambda value: values[value]["validation"])
        tests = (values["0.01"], values[best], _metrics(dataset, "fedmf"))
        own, chosen, backbone = (f"{one['test']:.4f}" for one in tests)
        joint = "–"
        if dataset in _WITH_JOINT_TRAINING:
            joint = f"{_metrics(dataset, 'pfedclr[beta=0][training=joint]')['test']:.4f}"
        lines.append((dataset, own, best, chosen, backbone, joint))
    head = (
        "test HR@10, clean, seed 0",
        "β = 0.01",
        "chosen β",
        "with the chosen β",
        "FedMF",
        "β = 0, items and users trained together",
    )
    return markdown(head, lines)


def both_ranks() -> str:
    """PFedRec and FedMF with PFedRec's settings, by sampled and exact HR@10."""
    from fedrec.evaluation.metrics import metrics_of
    from fedrec.plan.runs import RunId
    from fedrec.runs.store import PackedRecord, RunStore

    store, lines = RunStore(REFERENCE), []
    for dataset, seeds in _OF_PFEDREC.items():
        runs = store.runs_on(dataset)
        cells = []
        for catalogue in (False, True):
            for method in ("pfedrec", "fedmf"):
                names = [RunId("pfedrec", dataset, "clean", method, seed).folder for seed in seeds]
                records = (PackedRecord(store.folder / name, packed=runs[name]) for name in names)
                ranks = (record.user_ranks(catalogue=catalogue).rank for record in records)
                cells.append(fmean(metrics_of(rank)["hr@10"] for rank in ranks))
        lines.append([dataset, str(len(seeds)), *(f"{value:.4f}" for value in cells)])
    head = (
        "test HR@10, clean",
        "seeds",
        "PFedRec, 99 candidates",
        "FedMF, 99 candidates",
        "PFedRec, exact",
        "FedMF, exact",
    )
    return markdown(head, lines)


def candidate_draws() -> str:
    """HR@10 of methods under three draws of candidates, each method with its paper's settings; seed 0."""
    from fedrec.runs.store import RunStore

    values: dict[tuple[str, str], dict[str, float]] = {}
    for run in RunStore(REFERENCE).runs_on(_WITH_DRAWS).values():
        summary = run.summary
        protocol = summary["protocol"]["name"]
        if protocol in _DRAWS and summary["seed"] == 0:
            hr = summary["metrics"]["best_validation"]["test"]["hr@10"]
            values.setdefault((summary["paper"], summary["method"]), {})[protocol] = hr
    complete = {name: [of[draw] for draw in _DRAWS] for name, of in values.items() if len(of) == len(_DRAWS)}
    ranges = {name: max(of) - min(of) for name, of in complete.items()}
    lines = [
        (
            f"`{method}`",
            *(f"{value:.4f}" for value in complete[paper, method]),
            f"{ranges[paper, method]:.4f}",
        )
        for paper, method in sorted(complete)
        if paper == "pfedclr"
    ]
    lines += [
        (f"{label} of {len(ranges)} lines of the papers", *("–" for _ in _DRAWS), f"{value:.4f}")
        for label, value in (("median", median(ranges.values())), ("largest", max(ranges.values())))
    ]
    return markdown(("test HR@10, ml-100k, seed 0", *(f"`{draw}`" for draw in _DRAWS), "range"), lines)


def _metrics(dataset: str, method: str) -> Mapping[str, float]:
    """Validation and test HR@10 of a method with PFedCLR's settings under the clean protocol; seed 0."""
    from fedrec.plan.runs import RunId
    from fedrec.runs.store import RunStore

    record = RunStore(REFERENCE).record(RunId("pfedclr", dataset, "clean", method, 0).folder)
    return {part: record.metric("hr@10", part) for part in ("validation", "test")}
