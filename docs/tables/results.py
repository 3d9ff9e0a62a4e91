"""Tables of methods' metrics, and of datasets.

Numbers on MovieLens 100K come from the runs in results/reference, if these have the method.
"""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from textwrap import fill
from typing import TYPE_CHECKING, Any

from docs.tables.numbers import REFERENCE, ROOT, Row, markdown, numbers, stored_table

if TYPE_CHECKING:
    from fedrec.plan.runs import RunId

SIX = {
    "draw-counter": "`draw-counter`: no model, counts sampled negatives",
    "pfedclr": "PFedCLR",
    "fedrap": "FedRAP",
    "fedem": "FedEM",
    "fedmf+plgc": "PLGC over FedMF",
    "pfedrec": "PFedRec",
    "fedmf": "FedMF, without an item table per client",
    "popularity": "popularity",
}
_PROTOCOLS = ("published", "clean")
_SWITCHED = {"ml-100k": "ML-100K", "filmtrust": "FilmTrust"}
"""Datasets of the table of methods under several protocols."""
_STEPS = ("published", "only-pool", "clean")
_LINES_TO_SHOW = 5
"""The least number of audit lines of a shown dataset."""
_BEFORE_ITS_SEARCH = """\
‡: trained before a [search](tuning.md) on validation changed some of its settings; with those both
protocols have not been trained yet."""


def from_reference(rows: Sequence[Row], store: Path = REFERENCE) -> list[Row]:
    """Fill in rows of methods on MovieLens 100K from the stored runs of seed 0.

    A row has one setting for both protocols: after a search changed it, both numbers are replaced or none.
    """
    filled_in = []
    stored = _summaries(store)
    for row in rows:
        found, searched = _stored_metrics(row, stored)
        if searched and len(found) < len(_PROTOCOLS):
            found = {}
        changed = dict(row)
        for protocol, metrics in found.items():
            changed |= {f"{protocol}_{name}": f"{metrics[f'{name}@10']:.4f}" for name in ("hr", "ndcg")}
        filled_in.append(changed)
    return filled_in


def _summaries(store: Path) -> "dict[RunId, Mapping[str, Any]]":
    """The summary of every stored run on MovieLens 100K."""
    from fedrec.runs.store import RunStore

    return {run.id: run.summary for run in RunStore(store).runs_on("ml-100k").values()}


def _stored_metrics(
    row: Row, stored: "Mapping[RunId, Mapping[str, Any]]"
) -> tuple[dict[str, dict[str, float]], bool]:
    """The stored metrics of a row with today's settings by protocol, and whether a search metrics some."""
    from fedrec.config.methods import load_methods, resolve
    from fedrec.config.protocol_file import load_protocols
    from fedrec.plan.reference import is_as_named
    from fedrec.plan.runs import run_of

    known = load_methods(ROOT / "config/methods.yaml")
    protocols = load_protocols(ROOT / "config/protocols.yaml")
    paper, method = row["settings_of"].lower() or "pfedclr", row["method"]
    metrics = {}
    for protocol in _PROTOCOLS:
        summary = stored.get(run_of(known, paper, "ml-100k", protocol, method, 0))
        if summary is not None and is_as_named(summary, known, protocols):
            metrics[protocol] = summary["metrics"][summary["protocol"]["round_rule"]]["test"]
    _, sources, _ = resolve(known, method, paper, "ml-100k")
    return metrics, any(source.startswith("searched") for source in sources.values())


def _is_of_before_its_search(row: Row, stored: "Mapping[RunId, Mapping[str, Any]]") -> bool:
    """Whether a row's numbers have settings that a search has changed since."""
    metrics, searched = _stored_metrics(row, stored)
    return searched and len(metrics) < len(_PROTOCOLS)


def six_lines() -> str:
    """HR@10 of six methods: printed, under both protocols, and tuned under the clean one."""
    rows = {row["method"]: row for row in numbers("ml-100k")}
    tuned = {row["method"]: row for row in stored_table("leaderboard") if row["dataset"] == "ml-100k"}
    (seeds,) = {tuned[name]["seeds_shown"] for name in SIX}
    return markdown(
        (
            "MovieLens 100K, HR@10",
            "printed",
            "ours, published protocol",
            "ours, clean protocol",
            f"clean, tuned, {seeds} seeds",
        ),
        (
            (
                label,
                *(rows[name][key] or "–" for key in ("printed_hr", "published_hr", "clean_hr")),
                f"{float(tuned[name]['hr@10']):.4f}",
            )
            for name, label in SIX.items()
        ),
    )


def claims() -> str:
    """The counts of verdicts and of agreeing numbers, and the leaderboard's result."""
    from fedrec.audit.verdict_summary import summary_sentences

    sentences = summary_sentences(stored_table("verdicts"))
    parts = (f"**Claims.** {sentences[0]} {sentences[-1]}", _coverage(), _leaderboard())
    return "\n\n".join(fill(part, width=120, break_long_words=False) for part in parts)


def _coverage() -> str:
    """The counts of printed ranking metrics: with a number of ours, agreeing, and by origin of settings."""
    ranked = [row for row in stored_table("coverage") if "@" in row["metric"] and row["unit"] == "fraction"]
    agreeing = [row for row in ranked if row["standing"] == "agrees"]
    ours = sum(bool(row["published"]) for row in ranked)
    alone = sum(row["rests_on"] == "neither" for row in agreeing)
    return (
        f"**Numbers.** {ours:,} of {len(ranked):,} printed HR and NDCG values have a run of ours. "
        f"{len(agreeing):,} of them [agree](results/reference/tables/coverage.md) with print; "
        f"{alone:,} of these are the strongest: their settings were neither fitted to print nor "
        "searched."
    )


def _leaderboard() -> str:
    """The comparison of the papers' methods, tuned by one rule without the leak."""
    from fedrec.audit.significance import ALPHA
    from fedrec.reporting.tables.leaderboard_rows import FEDERATED_KINDS, best_on_validation

    table = stored_table("leaderboard")
    rows = [row for row in table if row["central_difference"] and not row["not_counted"]]
    pairs = [row for row in rows if row["kind"] == "personalised" and row["backbone_difference"]]
    lacking = sum(
        row["kind"] == "personalised" and bool(row["backbone"]) and not row["not_counted"] for row in table
    ) - len(pairs)
    decided = [float(row["backbone_difference"]) > 0 for row in pairs if float(row["backbone_holm"]) < ALPHA]
    better, worse = sum(decided), len(decided) - sum(decided)
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    differences, best_rows = [], []
    for dataset in datasets:
        of_papers = [row for row in rows if row["dataset"] == dataset and row["is_of_papers"] == "True"]
        best = best_on_validation(of_papers, FEDERATED_KINDS)
        assert best is not None, f"{dataset}: no federated method is compared with a centralised one"
        difference, low, high = (float(best[f"central_{name}"]) for name in ("difference", "low", "high"))
        (rival,) = (
            row["title"]
            for row in table
            if (row["dataset"], row["method"]) == (dataset, best["central_against"])
        )
        best_rows.append(best)
        interval = f"[{low:+.4f}, {high:+.4f}]"
        differences.append(f"{best['title']} minus {rival} {difference:+.4f} {interval} on {dataset}")
    (seeds,) = {row["seeds_shown"] for row in [*pairs, *best_rows]}
    return (
        "**Tuned alike.** The [leaderboard](docs/leaderboard.md) searches settings of methods under the "
        f"clean protocol by one rule. On {', '.join(datasets)}, a method with client item tables beats its "
        f"backbone (named in `config/tuning.yaml`) in {better} of {len(pairs)} comparisons and loses in "
        f"{worse}; "
        f"{len(pairs) - len(decided)} are undecided. {lacking} further comparisons lack searches or runs. We "
        "compare the best federated method of the papers with the best centralised one, both chosen by "
        "sampled NDCG@10 on validation. The difference in exact NDCG@10 (95 % interval, "
        f"{seeds} seeds): {'; '.join(differences)}. On test, another pair may be best."
    )


def orders() -> str:
    """The difficulty of the task by each order of rows."""
    return markdown(
        (
            "dataset",
            "order",
            "users",
            "test items in the user's training rows",
            "test items in nobody's training rows",
            "HR@10 / NDCG@10 of popularity",
        ),
        (
            (
                row["dataset"],
                row["order"],
                row["users"],
                row["own"],
                row["cold"],
                f"{row['hr']} / {row['ndcg']}",
            )
            for row in numbers("row_orders")
        ),
        right=4,
    )


def cuts() -> str:
    """The users that a split at one time keeps, at the cut of `temporal` and at a later one."""
    rows = {(row["dataset"], row["cut"]): row for row in numbers("cuts")}
    return markdown(
        (
            "dataset", "users", "stay at cut 0.8", "stay at cut 0.9", "left before T", "joined after T",
            "share of the rows before T, %", "median rows of users who stay", "median rows of all users",
            "cold test items, %", "candidates that the user meets later, %",
        ),
        (
            (
                dataset,
                f"{int(row['users']):,}",
                f"{int(row['stay']):,} ({row['stay_percent']} %)",
                f"{int(rows[dataset, '0.9']['stay']):,} ({rows[dataset, '0.9']['stay_percent']} %)",
                f"{int(row['left']):,}",
                f"{int(row['joined']):,}",
                *(row[name] for name in ("rows_percent", "median_rows", "median_rows_of_all")),
                *(row[name] for name in ("cold_percent", "later_percent")),
            )
            for (dataset, cut), row in rows.items()
            if cut == "0.8"
        ),
    )  # fmt: skip


def clusters() -> str:
    """The first runs that test clusters of misses, beside print."""
    return markdown(
        ("cluster", "paper", "dataset", "run", "printed HR@10 / NDCG@10", "HR@10 / NDCG@10 of this run"),
        (
            (
                row["cluster"],
                row["paper"],
                row["dataset"],
                f"`{row['run']}`",
                f"{row['printed_hr']} / {row['printed_ndcg']}",
                f"{row['hr']} / {row['ndcg']}" + (" †" if row["diverged"] else ""),
            )
            for row in numbers("clusters")
        ),
        right=2,
    )


def methods() -> str:
    """Every method with the settings of its paper: HR@10 and NDCG@10."""

    def pair(row: Row, protocol: str) -> str:
        hit, gain = row[f"{protocol}_hr"], row[f"{protocol}_ndcg"]
        return f"{hit} / {gain}" if hit else "–"

    stored = _summaries(REFERENCE)
    table = markdown(
        ("method", "settings of", "printed", "published protocol", "clean protocol"),
        (
            (
                f"`{row['method']}`" + (" ‡" if _is_of_before_its_search(row, stored) else ""),
                row["settings_of"] or "–",
                *(pair(row, which) for which in ("printed", "published", "clean")),
            )
            for row in numbers("ml-100k")
        ),
        right=2,
    )
    return f"{table}\n\n{_BEFORE_ITS_SEARCH}" if "‡" in table else table


def protocols() -> str:
    """HR@10 of methods under three protocols, and their ranks by it, on two datasets."""
    head = [f"{name} {step.replace('-', ' ')}" for name in _SWITCHED.values() for step in _STEPS]
    found = {(dataset, step): switched(dataset, step) for dataset in _SWITCHED for step in _STEPS}

    def ranked(values: Mapping[str, float], method: str) -> str:
        rank = 1 + sum(other > values[method] for other in values.values())
        return f"{values[method]:.4f} ({rank})"

    clean = found[next(iter(_SWITCHED)), "clean"]
    return markdown(
        ("method", *head),
        (
            (method, *(ranked(values, method) for values in found.values()))
            for method in sorted(clean, key=clean.__getitem__, reverse=True)
        ),
    )


def switched(dataset: str, step: str) -> dict[str, float]:
    """HR@10 of methods with PFedCLR's settings at a step from `published` to `clean`, by their titles."""
    rows = (row for table in ("audit_protocols", "audit_protocols_pfedclr") for row in stored_table(table))
    return {
        row["title"]: float(row["hr@10"])
        for row in rows
        if (row["dataset"], row["step"], row["paper"]) == (dataset, step, "pfedclr")
    }


def datasets() -> str:
    """The size of every whole dataset."""
    about = {row["dataset"]: row for row in numbers("datasets_about")}

    def count(row: Row, name: str) -> str:
        return f"{int(row[name]):,}" + (" (printed)" if row["source"] == "printed" else "")

    return markdown(
        ("name", "users", "items", "interactions", "used by", "licence"),
        (
            (
                f"`{row['dataset']}`" + (f" ({note})" if (note := about[row["dataset"]]["note"]) else ""),
                *(count(row, name) for name in ("users", "items", "interactions")),
                about[row["dataset"]]["used_by"],
                about[row["dataset"]]["licence"],
            )
            for row in numbers("datasets")
        ),
    )


def goes() -> str:
    """Run lists of the reference: estimated and measured time on a GPU."""
    return markdown(
        ("runs", "contents", "estimate, one by one", "training time, summed", "wall time"),
        (tuple(row.values()) for row in numbers("h200-goes")),
        right=2,
    )


def trained_again() -> str:
    """Stored runs that newer code trained again: the number of equal ones, and the differences of others."""
    return markdown(
        ("method", "runs", "runs with the same ranks", "mean change of HR@10", "largest change"),
        (tuple(row.values()) for row in numbers("trained-again")),
        right=1,
    )


def switches() -> str:
    """The effect of each single switch of the published protocol on HR@10, over the audits of all papers."""
    changes = _changes_by_switch()
    every = dict.fromkeys(switch for switch, _ in changes)
    datasets = [name for name in dict.fromkeys(where for _, where in changes) if ("pool", name) in changes]
    shown = [name for name in datasets if len(changes["pool", name]) >= _LINES_TO_SHOW]
    return markdown(
        ("switch", *shown),
        (
            (f"`{switch}`", *(_spread_words(changes.get((switch, name), [])) for name in shown))
            for switch in every
        ),
    )


def _changes_by_switch() -> dict[tuple[str, str], list[float]]:
    """The change of HR@10 by a switch, for each line of a paper's audit, by switch and dataset.

    Lines that diverged on either side are left out.
    """
    changes: dict[tuple[str, str], list[float]] = {}
    for path in sorted((REFERENCE / "tables").glob("audit_protocols_*.csv")):
        with path.open(encoding="utf-8", newline="") as stream:
            rows = [row for row in csv.DictReader(stream) if row["hr@10"] and not row["diverged"]]
        published = {(row["dataset"], row["method"]): row for row in rows if row["step"] == "published"}
        for row in rows:
            before = published.get((row["dataset"], row["method"]))
            if before is None or not row["step"].startswith("only-"):
                continue
            # A step that reads the published runs by the same rule changes nothing on this dataset.
            if any(row[key] != before[key] for key in ("protocol", "round_rule")):
                change = float(row["hr@10"]) - float(before["hr@10"])
                changes.setdefault((row["step"].removeprefix("only-"), row["dataset"]), []).append(change)
    return changes


def _spread_words(changes: Sequence[float]) -> str:
    if not changes:
        return "–"
    low, high = min(changes), max(changes)
    return f"{median(changes):+.3f} ({low:+.3f} to {high:+.3f}; {len(changes)})"


def baselines() -> str:
    """Baselines without a paper, by dataset: means over seeds at the round of the best validation."""
    rows = numbers("baselines")
    lines = []
    for dataset, method in dict.fromkeys((row["dataset"], row["method"]) for row in rows):
        own = [row for row in rows if (row["dataset"], row["method"]) == (dataset, method)]
        means = [
            f"{fmean(float(row[f'{part}_hr']) for row in own):.4f} / "
            f"{fmean(float(row[f'{part}_ndcg']) for row in own):.4f}"
            for part in ("validation", "test")
        ]
        lines.append([dataset, f"`{method}`", str(len(own)), *means])
    head = ["dataset", "method", "seeds", "validation HR@10 / NDCG@10", "test HR@10 / NDCG@10"]
    return markdown(head, lines, right=2)
