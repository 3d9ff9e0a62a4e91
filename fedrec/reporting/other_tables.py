"""Tables that are not about metrics: learning rates, inactive users, time, effort, space and costs."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedrec.config.methods import resolve
from fedrec.config.modules import modules_of
from fedrec.config.papers import Artefact
from fedrec.config.printed import printed
from fedrec.reporting.plotted import Found, label_of
from fedrec.reporting.results import Result, spread
from fedrec.reporting.space import megabytes, space
from fedrec.reporting.tables import Column

Shape = tuple[list[dict[str, Any]], list[Column]]


def inactive_users(data: Path, artefact: Artefact) -> dict[str, list[int]]:
    """By dataset, the users with at least so many rows and fewer than so many, as the paper counts them."""
    found = {}
    for dataset, (least, below) in artefact.options.get("users", {}).items():
        path = data / dataset / "interactions.parquet"
        if path.is_file():
            rows = pl.read_parquet(path, columns=["user"]).group_by("user").len()
            chosen = rows.filter((pl.col("len") >= least) & (pl.col("len") < below))
            found[dataset] = sorted(chosen["user"].to_list())
    return found


def inactive_table(artefact: Artefact, data: Path) -> Shape:
    """How many users are inactive."""
    rows: list[dict[str, Any]] = []
    for dataset, users in inactive_users(data, artefact).items():
        least, below = artefact.options["users"][dataset]
        everyone = pl.read_parquet(data / dataset / "interactions.parquet", columns=["user"])[
            "user"
        ].n_unique()
        line = ("", f"inactive users: {least}-{below} interactions")
        counts = {"users": float(len(users)), "share_of_users": 100 * len(users) / everyone}
        row: dict[str, Any] = {"dataset": dataset, "least": least, "below": below}
        for key, value in counts.items():
            number = printed(artefact.paper, artefact.printed, dataset, line, key)
            row |= {key: value, f"{key}_printed": None if number is None else number.value}
        rows.append(row)
    return rows, [
        Column("dataset", "dataset", align="left"),
        Column("least", "rows, at least"),
        Column("below", "rows, fewer than"),
        Column("users", "users", "{:.0f}"),
        Column("users_printed", "users, printed", "{:.0f}"),
        Column("share_of_users", "percent", "{:.2f}"),
        Column("share_of_users_printed", "percent, printed", "{:.2f}"),
    ]


def rates_table(artefact: Artefact, methods: Mapping[str, Any]) -> Shape:
    """The learning rate of each method on each dataset, as we run it and as printed."""
    rows: list[dict[str, Any]] = []
    for line in artefact.lines:
        for dataset in artefact.datasets:
            assert line.run is not None, "a rate is a run's"
            values, sources, _ = resolve(methods, line.run, artefact.paper, dataset)
            number = printed(artefact.paper, artefact.printed, dataset, line.printed, "learning_rate")
            rows.append(
                {
                    "method": label_of(artefact, line, methods),
                    "dataset": dataset,
                    "rate": values["rate"],
                    "source": sources["rate"],
                    "rate_printed": None if number is None else number.value,
                }
            )
    return rows, [
        Column("method", "method", align="left"),
        Column("dataset", "dataset", align="left"),
        Column("rate", "rate", "{:g}"),
        Column("rate_printed", "rate, printed", "{:g}"),
        Column("source", "source", align="left"),
    ]


def costs_table(artefact: Artefact, methods: Mapping[str, Any]) -> Shape:
    """What a round costs, as each method's own file states it."""
    rows = []
    for line in artefact.lines:
        assert line.run is not None, "a cost is a run's"
        cost = importlib.import_module(modules_of(line.run)[0]).METHOD.cost
        rows.append({"method": label_of(artefact, line, methods), "cost": cost or None})
    return rows, [
        Column("method", "method", align="left"),
        Column("cost", "cost of a round (E epochs, S samples, n clients, m items)", align="left"),
    ]


def time_table(artefact: Artefact, found: Found, methods: Mapping[str, Any]) -> Shape:
    """Seconds of a round: ours for the whole federation, theirs for the slowest client and the server."""
    rows: list[dict[str, Any]] = []
    for (place, dataset, kind), group in found.items():
        line = artefact.lines[place]
        seconds = spread(one.summary["measured"]["seconds_per_round"] for one in group)
        number = printed(artefact.paper, artefact.printed, dataset, line.printed, "time_per_round")
        rows.append(
            {
                "method": label_of(artefact, line, methods),
                "dataset": dataset,
                "protocol": kind,
                "seconds": seconds.mean,
                "seconds_sd": seconds.sd,
                "seconds_printed": None if number is None else number.value,
                "device": group[0].summary["measured"]["device"],
            }
        )
    return rows, [
        Column("method", "method", align="left"),
        Column("dataset", "dataset", align="left"),
        Column("seconds", "s, all clients at once", "{:.3f}"),
        Column("seconds_printed", "s, slowest client and server, printed", "{:.3f}"),
        Column("device", "ours on", align="left"),
    ]


def effort_table(
    artefact: Artefact, found: Found, methods: Mapping[str, Any], items: Mapping[str, int]
) -> Shape:
    """Numbers a client holds, rounds to the best validation, and seconds until then."""
    rows: list[dict[str, Any]] = []
    for (place, dataset, kind), group in found.items():
        line = artefact.lines[place]
        values = group[0].summary["settings"]
        client, _ = space(str(group[0].summary["method"]), values, 1, items[dataset])
        ours = {
            "parameters": float(client),
            "epochs": float(np.mean([one.summary["rounds"]["best_validation"] for one in group])),
            "time_total": float(np.mean([_seconds_until_best(one) for one in group])),
        }
        row: dict[str, Any] = {
            "method": label_of(artefact, line, methods),
            "dataset": dataset,
            "protocol": kind,
        }
        for key, value in ours.items():
            number = printed(artefact.paper, artefact.printed, dataset, line.printed, key)
            row |= {key: value, f"{key}_printed": None if number is None else number.value}
        rows.append(row | {"device": group[0].summary["measured"]["device"]})
    return rows, [
        Column("method", "method", align="left"),
        Column("dataset", "dataset", align="left"),
        *(
            Column(f"{key}{suffix}", f"{heading}{said}", "{:,.0f}")
            for key, heading in (("parameters", "parameters"), ("epochs", "rounds"), ("time_total", "s"))
            for suffix, said in (("", ""), ("_printed", ", printed"))
        ),
        Column("device", "ours on", align="left"),
    ]


def space_table(
    artefact: Artefact, methods: Mapping[str, Any], sizes: Mapping[str, tuple[int, int]]
) -> Shape:
    """Megabytes a client and the server hold; `sizes` are users and items by dataset."""
    rows: list[dict[str, Any]] = []
    for line in artefact.lines:
        for dataset in artefact.datasets:
            if dataset not in sizes:
                continue
            assert line.run is not None, "space is a run's"
            values, _, _ = resolve(methods, line.run, artefact.paper, dataset)
            client, server = space(line.run, values, *sizes[dataset])
            row: dict[str, Any] = {"method": label_of(artefact, line, methods), "dataset": dataset}
            for key, numbers in (("space_client", client), ("space_server", server)):
                number = printed(artefact.paper, artefact.printed, dataset, line.printed, key)
                row |= {
                    key: megabytes(numbers),
                    f"{key}_printed": None if number is None else number.value,
                }
            rows.append(row)
    return rows, [
        Column("method", "method", align="left"),
        Column("dataset", "dataset", align="left"),
        Column("space_client", "client, MB", "{:.4f}"),
        Column("space_client_printed", "client, MB, printed", "{:.4f}"),
        Column("space_server", "server, MB", "{:.4f}"),
        Column("space_server_printed", "server, MB, printed", "{:.4f}"),
    ]


def _seconds_until_best(result: Result) -> float:
    best = result.summary["rounds"]["best_validation"]
    rounds = result.timing.filter(pl.col("round") <= best)
    return float((rounds["local_seconds"] + rounds["server_seconds"]).sum())
