"""Figures of what trained models hold: heat maps of weights and tables, abundance, others' tables."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from fedrec.config.papers import Artefact
from fedrec.errors import ResultError
from fedrec.federation.observe.recorder import extras
from fedrec.federation.observe.spectrum import information_abundance
from fedrec.reporting.canvas import COLOURS, TABLES, caption, panels, places
from fedrec.reporting.plotted import label_of
from fedrec.reporting.results import Result, spread
from fedrec.reporting.tables import Row
from fedrec.runs.inside import WAYS, Inside, merging_weights, own_table
from fedrec.runs.inside import inference as scored_with

Found = Mapping[tuple[int, str, str], Sequence[Result]]
Drawn = tuple[Figure, list[Row], str]
_THRESHOLDS = (0.1, 0.01)


def heatmaps(artefact: Artefact, found: Found, methods: Mapping[str, Any]) -> Drawn:
    """Weights of aggregation, weights of merging, or entries of tables."""
    kinds = {"aggregation": _aggregation, "merging": _merging, "tables": _entries}
    return kinds[artefact.options["show"]](artefact, found, methods)


def _aggregation(artefact: Artefact, found: Found, methods: Mapping[str, Any]) -> Drawn:
    """A row per line and protocol, a column per round: the weight of each client (column) for each (row)."""
    users, rounds = artefact.options["of"], artefact.options["rounds"]
    figure, axes = panels(len(found), len(rounds), 2.0, 2.0)
    rows: list[Row] = []
    for across, ((place, dataset, kind), results) in zip(axes, found.items(), strict=True):
        label = label_of(artefact, artefact.lines[place], methods)
        weights = _kept_weights(Inside(results[0].folder), users)
        shown = {round_: weights[round_ - 1] for round_ in rounds if round_ <= len(weights)}
        scale = _logarithmic(list(shown.values()))
        for panel, round_ in zip(across, rounds, strict=True):
            if round_ not in shown:
                panel.set_axis_off()
                continue
            _heat(panel, shown[round_], "viridis", scale)
            panel.set_title(f"round {round_}")
            panel.set_xticks(range(len(users)), users, rotation=90)
            panel.set_yticks(range(len(users)), users)
            rows += [
                {
                    "line": label, "dataset": dataset, "protocol": kind, "round": round_,
                    "for_user": one, "of_user": other, "weight": shown[round_][i, j],
                }
                for i, one in enumerate(users)
                for j, other in enumerate(users)
            ]  # fmt: skip
        figure.colorbar(ScalarMappable(scale, "viridis"), ax=across.tolist(), shrink=0.7, label="weight")
        across[0].set_ylabel(f"{label}\n{kind}\naggregate for")
    axes[-1][0].set_xlabel("upload of")
    said = (
        "The weight of the upload of one user (column) in the aggregate made for another (row), on a "
        "logarithmic scale whose lowest colour also stands for 0; grey where one of them took no part."
    )
    return figure, rows, caption(artefact, _first(found), said)


def _logarithmic(values: Sequence[NDArray[np.float64]]) -> LogNorm:
    """A scale from the least weight above 0, but no less than a millionth of the largest."""
    every = np.concatenate([one.ravel() for one in values])
    positive = every[every > 0]
    high = float(positive.max()) if len(positive) else 1.0
    low = float(positive.min()) if len(positive) else high
    # Where all are alike a scale needs two ends all the same.
    return LogNorm(min(max(low, high * 1e-6), high / 10), high, clip=True)


def _kept_weights(inside: Inside, users: Sequence[int]) -> NDArray[np.float64]:
    """The weights among some users that a run kept: rounds x users x users."""
    kept = extras(inside.tensors)
    names = [key for key in kept if key.startswith("weights/")]
    known = kept["users/weights"].tolist() if names else []
    if not names or any(user not in known for user in users):
        listed = ",".join(map(str, users))
        raise ResultError(f"{inside.folder}: weights were not kept. Train it with --record weights={listed}.")
    order = [known.index(user) for user in users]
    chosen: NDArray[np.float64] = kept[names[0]].double().numpy()[:, order][:, :, order]
    return chosen


def _merging(artefact: Artefact, found: Found, methods: Mapping[str, Any]) -> Drawn:
    """A panel per protocol: rho of each user (row) for each item (column)."""
    users, items = artefact.options["of"], artefact.options["items"]
    figure, axes = panels(len(found), 1, 5.5, 2.1)
    rows: list[Row] = []
    every = {
        key: merging_weights(Inside(results[0].folder), users, items).double().numpy()
        for key, results in found.items()
    }
    top = max(float(rho.max()) for rho in every.values()) or 1.0
    for (panel,), (key, rho) in zip(axes, every.items(), strict=True):
        image = _heat(panel, rho, "viridis", Normalize(0.0, top))
        panel.set_aspect("auto")
        panel.set_yticks(range(len(users)), users)
        panel.set_xlabel("item")
        panel.set_ylabel("user")
        panel.set_title(key[2])
        figure.colorbar(image, ax=panel, label="share of the aggregate", pad=0.01)
        rows += [
            {
                "line": label_of(artefact, artefact.lines[key[0]], methods), "dataset": key[1],
                "protocol": key[2],
                "user": user, "item": item, "rho": rho[i, item],
            }
            for i, user in enumerate(users)
            for item in range(items)
        ]  # fmt: skip
    said = "How much of the server's row of an item each user takes over: 0 keeps its own, 1 replaces it."
    return figure, rows, caption(artefact, _first(found), said)


def _entries(artefact: Artefact, found: Found, methods: Mapping[str, Any]) -> Drawn:
    """A row per line, a column per table: its entries for the first items."""
    users, items = artefact.options["of"], artefact.options["items"]
    columns = [
        (table, user)
        for table in artefact.options["tables"]
        for user in (users if table != "shared" else users[:1])
    ]
    opened = {key: Inside(results[0].folder) for key, results in found.items()}
    whole = {key: [inside.table(*column).double() for column in columns] for key, inside in opened.items()}
    figure, axes = panels(len(found), len(columns), 1.8, 1.8)
    rows: list[Row] = []
    for across, (key, tables) in zip(axes, whole.items(), strict=True):
        label = label_of(artefact, artefact.lines[key[0]], methods)
        images = {}
        for place, (panel, (table, user), entries) in enumerate(zip(across, columns, tables, strict=True)):
            alike = [
                whole[other][at][:items]
                for other in whole
                for at, one in enumerate(columns)
                if one[0] == table
            ]
            top = max(float(one.abs().max()) for one in alike)
            cut = entries[:items].numpy()
            images[table] = _heat(panel, cut, "RdBu_r", Normalize(-top, top)), panel
            shares = {
                f"share_above_{limit:g}": float((entries.abs() > limit).double().mean())
                for limit in _THRESHOLDS
            }
            heading = "shared" if table == "shared" else f"{table}, user {user}"
            if panel in axes[0]:
                panel.set_title(heading)
            if table == "shared":
                above = ", ".join(
                    f"{100 * share:.1f} % > {limit:g}"
                    for limit, share in zip(_THRESHOLDS, shares.values(), strict=True)
                )
                panel.set_xlabel(above)
            panel.set_xticks([])
            panel.set_yticks([] if place else [0, items - 1])
            rows += [
                {
                    "line": label, "dataset": key[1], "protocol": key[2], "table": table,
                    "user": "" if table == "shared" else user, "item": item, "dimension": dimension,
                    "value": value, **shares,
                }
                for item, values in enumerate(cut.tolist())
                for dimension, value in enumerate(values)
            ]  # fmt: skip
        for image, panel in images.values():
            figure.colorbar(image, ax=panel, shrink=0.8, pad=0.02)
        across[0].set_ylabel(f"{label}, {key[2]}\nitem")
    said = (
        f"Entries of the first {items} items (rows) in all dimensions (columns); a table has one scale. "
        "Below the shared tables, and in the csv: the shares of all entries of the table whose size is above "
        "0.1 and 0.01."
    )
    return figure, rows, caption(artefact, _first(found), said)


def abundance(artefact: Artefact, found: Found, methods: Mapping[str, Any]) -> Drawn:
    """A panel per protocol: information abundance of each user's tables, users by training rows."""
    figure, axes = panels(1, len(found), 3.2, 2.4)
    for panel in axes[0][1:]:
        panel.sharey(axes[0][0])
    rows: list[Row] = []
    for panel, (key, results) in zip(axes[0], found.items(), strict=True):
        inside = Inside(results[0].folder)
        count = inside.clients.rows.numpy()
        order = np.argsort(count, kind="stable")
        for colour, (name, values) in zip(COLOURS, _measures(artefact, inside).items(), strict=False):
            # Who took no part in the last round has nothing to show.
            there = np.flatnonzero(np.isfinite(values[order]))
            shown = values[order][there]
            panel.scatter(there, shown, s=2, color=colour, alpha=0.35, linewidths=0, rasterized=True)
            panel.plot(there, _running(shown), color=colour, linewidth=1.3, label=name)
            rows += [
                {
                    "line": label_of(artefact, artefact.lines[key[0]], methods), "dataset": key[1],
                    "protocol": key[2],
                    "place": place, "user": int(inside.clients.user[who]), "training_rows": int(count[who]),
                    "series": name, "abundance": values[who],
                }
                for place, who in enumerate(order)
            ]  # fmt: skip
        panel.set_title(key[2])
        panel.set_xlabel("users, by training rows")
    axes[0][0].set_ylabel("information abundance")
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False)
    said = "The sum of a table's singular values over the largest: of each user (dots), and a running median."
    return (
        figure,
        rows,
        caption(artefact, _first(found), said, "Users stand in the order of their training rows."),
    )


def _measures(artefact: Artefact, inside: Inside) -> dict[str, NDArray[np.float64]]:
    if artefact.options["show"] == "tables":
        return {
            TABLES[name]: inside.measured(name, information_abundance) for name in artefact.options["tables"]
        }
    kept, name = extras(inside.tensors), own_table(inside.federation.method)
    if f"abundance/{name}/after" not in kept:
        raise ResultError(f"{inside.folder}: abundance was not kept. Train it with --record abundance.")
    moments = ("before", "after")
    return {f"{moment} local training": kept[f"abundance/{name}/{moment}"].numpy() for moment in moments}


def _running(values: NDArray[np.float64], share: int = 20) -> NDArray[np.float64]:
    """The median of each value's neighbours, a `share`-th of all."""
    half = max(1, len(values) // share // 2)
    return np.array([np.median(values[max(0, at - half) : at + half + 1]) for at in range(len(values))])


def inference(artefact: Artefact, found: Found, methods: Mapping[str, Any]) -> Drawn:
    """A row per protocol, a column per metric: bars for each way to score users, by dataset."""
    kinds = list(dict.fromkeys(kind for _, kind in places(artefact, found)))
    figure, axes = panels(len(kinds), len(artefact.metrics), 2.9, 2.0)
    rows: list[Row] = []
    for across, kind in zip(axes, kinds, strict=True):
        there = [(place, dataset) for place, dataset, other in found if other == kind]
        measured = {
            key: [
                {way: scored_with(Inside(result.folder), way) for way in WAYS} for result in found[*key, kind]
            ]
            for key in there
        }
        for panel, metric in zip(across, artefact.metrics, strict=True):
            for number, way in enumerate(WAYS):
                values = [spread(one[way][metric] for one in measured[key]) for key in there]
                panel.bar(
                    np.arange(len(there)) + 0.27 * (number - 1), [one.mean for one in values], 0.25,
                    yerr=[one.sd or 0.0 for one in values] if any(one.sd for one in values) else None,
                    color=COLOURS[number], label=way, error_kw={"linewidth": 0.8},
                )  # fmt: skip
                rows += [
                    {
                        "line": label_of(artefact, artefact.lines[place], methods), "dataset": dataset,
                        "protocol": kind, "metric": metric, "table": way, "mean": one.mean,
                        "sd": one.sd, "seeds": one.count,
                    }
                    for (place, dataset), one in zip(there, values, strict=True)
                ]  # fmt: skip
            panel.set_xticks(range(len(there)), [dataset for _, dataset in there])
            panel.set_ylabel(f"{metric.upper()}, {kind}")
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, names, title="item table", loc="outside lower center", ncols=3, frameon=False)
    results = [one for each in found.values() for one in each]
    said = (
        "Test metrics of the same models where users are scored with their own item table, the server's, and "
        "that of another user drawn at random."
    )
    return figure, rows, caption(artefact, results, said)


def _heat(panel: Axes, values: NDArray[np.float64], colours: str, scale: Normalize) -> AxesImage:
    panel.set_facecolor("#BBBBBB")
    image = panel.imshow(values, cmap=colours, norm=scale, interpolation="nearest")
    for side in panel.spines.values():
        side.set_visible(False)
    return image


def _first(found: Found) -> list[Result]:
    """The runs these figures look into: of the first seed."""
    return [results[0] for results in found.values()]
