"""Heat maps of trained models: aggregation weights, merging weights, entries of item tables."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.image import AxesImage
from numpy.typing import NDArray
from torch import Tensor

from fedrec.config.protocol import short_name
from fedrec.errors import ResultError
from fedrec.federation.observe.recorder import extras
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import ArtefactRuns
from fedrec.reporting.figures.caption import inside_caption
from fedrec.reporting.figures.chart import Drawn, build_inside
from fedrec.reporting.figures.panels import panel_grid
from fedrec.reporting.tables.table import Row
from fedrec.runs.model_inspection import ModelInspection, merging_weights
from fedrec.runs.provenance_columns import folders_of

LAYOUT = Layout("figure", needs=("runs", "states", "splits", "models"))
_THRESHOLDS = (0.1, 0.01)


def build(target: Target, project: Project) -> None:
    """Draw the heat maps of an artefact."""
    build_inside(target, project, draw)


def draw(subject: ArtefactRuns) -> Drawn:
    """Weights of aggregation, weights of merging, or entries of tables."""
    shows = {"aggregation": _aggregation, "merging": _merging, "tables": _entries}
    return shows[subject.artefact.options["show"]](subject)


def _aggregation(subject: ArtefactRuns) -> Drawn:
    """Draw the weights of clients: a row of panels per line and protocol, a column per round."""
    artefact = subject.artefact
    users, rounds = artefact.options["of"], artefact.options["rounds"]
    figure, axes = panel_grid(len(subject.groups), len(rounds), 2.0, 2.0)
    rows: list[Row] = []
    for across, ((index, dataset, protocol), group) in zip(axes, subject.groups.items(), strict=True):
        label = subject.label(artefact.lines[index])
        weights = _recorded_weights(ModelInspection(group[0]), users)
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
                    "line": label, "dataset": dataset, "protocol": protocol, "round": round_,
                    "for_user": user, "of_user": other, "weight": shown[round_][i, j],
                }
                for i, user in enumerate(users)
                for j, other in enumerate(users)
            ]  # fmt: skip
        figure.colorbar(ScalarMappable(scale, "viridis"), ax=across.tolist(), shrink=0.7, label="weight")
        across[0].set_ylabel(f"{label}\n{short_name(protocol)}\naggregate for")
    axes[-1][0].set_xlabel("upload of")
    sentence = (
        "The weight of one user's upload (column) in the aggregate for another user (row), on a "
        "logarithmic scale whose lowest colour includes 0; grey if one of them took no part."
    )
    return figure, rows, inside_caption(artefact, subject.first_seed, sentence)


def _logarithmic(values: Sequence[NDArray[np.float64]]) -> LogNorm:
    """A logarithmic scale from the smallest weight above 0, but at least a millionth of the largest."""
    every = np.concatenate([weights.ravel() for weights in values])
    positive = every[every > 0]
    high = float(positive.max()) if len(positive) else 1.0
    low = float(positive.min()) if len(positive) else high
    # A scale needs two different ends even if all weights are equal.
    return LogNorm(min(max(low, high * 1e-6), high / 10), high, clip=True)


def _recorded_weights(inside: ModelInspection, users: Sequence[int]) -> NDArray[np.float64]:
    """The recorded weights among some users: `(rounds, users, users)`."""
    records = extras(inside.run.tensors)
    names = [key for key in records if key.startswith("weights/")]
    known = records["users/weights"].tolist() if names else []
    if not names or any(user not in known for user in users):
        listed = ",".join(map(str, users))
        raise ResultError(
            f"{inside.run.folder}: weights were not recorded. Train it with --record weights={listed}."
        )
    order = [known.index(user) for user in users]
    chosen: NDArray[np.float64] = records[names[0]].double().numpy()[:, order][:, :, order]
    return chosen


def _merging(subject: ArtefactRuns) -> Drawn:
    """Draw a panel per protocol: rho of each user (row) for each item (column)."""
    artefact = subject.artefact
    users, items = artefact.options["of"], artefact.options["items"]
    figure, axes = panel_grid(len(subject.groups), 1, 5.5, 2.1)
    rows: list[Row] = []
    every = {
        key: merging_weights(ModelInspection(group[0]), users, items).double().numpy()
        for key, group in subject.groups.items()
    }
    top = max(float(rho.max()) for rho in every.values()) or 1.0
    for (panel,), (key, rho) in zip(axes, every.items(), strict=True):
        image = _heat(panel, rho, "viridis", Normalize(0.0, top))
        panel.set_aspect("auto")
        panel.set_yticks(range(len(users)), users)
        panel.set_xlabel("item")
        panel.set_ylabel("user")
        panel.set_title(short_name(key[2]))
        figure.colorbar(image, ax=panel, label="share of the aggregate", pad=0.01)
        rows += [
            {
                "line": subject.label(artefact.lines[key[0]]), "dataset": key[1],
                "protocol": key[2],
                "user": user, "item": item, "rho": rho[i, item],
            }
            for i, user in enumerate(users)
            for item in range(items)
        ]  # fmt: skip
    sentence = (
        "The weight of the server's item vector in each user's merge: 0 keeps the user's own, 1 replaces it."
    )
    return figure, rows, inside_caption(artefact, subject.first_seed, sentence)


def _entries(subject: ArtefactRuns) -> Drawn:
    """Draw the entries of tables for the first items: a row of panels per line, a column per table."""
    artefact = subject.artefact
    users, items = artefact.options["of"], artefact.options["items"]
    columns = [
        (table, user)
        for table in artefact.options["tables"]
        for user in (users if table != "shared" else users[:1])
    ]
    opened = {key: ModelInspection(group[0]) for key, group in subject.groups.items()}
    whole = {key: [inside.table(*column).double() for column in columns] for key, inside in opened.items()}
    scales = _scales_of_tables(columns, list(whole.values()), items)
    figure, axes = panel_grid(len(subject.groups), len(columns), 1.8, 1.8)
    rows: list[Row] = []
    for across, (key, tables) in zip(axes, whole.items(), strict=True):
        label = subject.label(artefact.lines[key[0]])
        run: Row = {
            "line": label,
            "dataset": key[1],
            "protocol": key[2],
            "runs": folders_of(subject.groups[key][:1]),
        }
        images = {}
        for panel, (table, user), entries in zip(across, columns, tables, strict=True):
            shares = _shares_above(entries)
            images[table] = _heat(panel, entries[:items].numpy(), "RdBu_r", scales[table]), panel
            if panel in axes[0]:
                panel.set_title("shared" if table == "shared" else f"{table}, user {user}")
            if table == "shared":
                panel.set_xlabel(_shares_label(shares))
            panel.set_xticks([])
            panel.set_yticks([0, items - 1] if panel is across[0] else [])
            rows += _entry_rows(run, table, user, entries[:items], shares)
        for image, panel in images.values():
            figure.colorbar(image, ax=panel, shrink=0.8, pad=0.02)
        across[0].set_ylabel(f"{label}, {short_name(key[2])}\nitem")
    sentence = (
        f"Entries of the first {items} items (rows) in all dimensions (columns); a table has one scale. "
        "Below the shared tables, and in the csv: the shares of all entries of the table whose size is above "
        "0.1 and 0.01."
    )
    return figure, rows, inside_caption(artefact, subject.first_seed, sentence)


def _scales_of_tables(
    columns: Sequence[tuple[str, int]], runs: Sequence[Sequence[Tensor]], items: int
) -> dict[str, Normalize]:
    """One scale per table, symmetric around 0, over the first items of all users and runs."""
    tops: dict[str, float] = {}
    for tables in runs:
        for (table, _), entries in zip(columns, tables, strict=True):
            tops[table] = max(tops.get(table, 0.0), float(entries[:items].abs().max()))
    return {table: Normalize(-top, top) for table, top in tops.items()}


def _shares_above(entries: Tensor) -> dict[float, float]:
    """The share of all entries whose size is above each threshold."""
    return {limit: float((entries.abs() > limit).double().mean()) for limit in _THRESHOLDS}


def _shares_label(shares: Mapping[float, float]) -> str:
    return ", ".join(f"{100 * share:.1f} % > {limit:g}" for limit, share in shares.items())


def _entry_rows(run: Row, table: str, user: int, entries: Tensor, shares: Mapping[float, float]) -> list[Row]:
    """A row of the csv per entry of a table."""
    return [
        {
            **run, "table": table, "user": "" if table == "shared" else user, "item": item,
            "dimension": dimension, "value": value,
            **{f"share_above_{limit:g}": share for limit, share in shares.items()},
        }
        for item, values in enumerate(entries.tolist())
        for dimension, value in enumerate(values)
    ]  # fmt: skip


def _heat(panel: Axes, values: NDArray[np.float64], colours: str, scale: Normalize) -> AxesImage:
    panel.set_facecolor("#BBBBBB")
    # A grid would cover the cells.
    panel.grid(visible=False)
    image = panel.imshow(values, cmap=colours, norm=scale, interpolation="nearest")
    for side in panel.spines.values():
        side.set_visible(False)
    return image
