"""The numbers of a figure as long rows: what is drawn, and what its csv holds.

Every row has dataset, protocol, method (its spelling), label, axis (what x is), x, part, metric, mean, sd and
seeds; layouts add what they need.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from fedrec.config.methods import canonical, resolve, title
from fedrec.config.names import parse
from fedrec.config.papers import BOTH, Artefact, Line
from fedrec.errors import ResultError
from fedrec.evaluation.metrics import activity_groups
from fedrec.files.parquet import read_table
from fedrec.reporting.results import Result, spread
from fedrec.reporting.space import megabytes, space
from fedrec.reporting.tables import Row
from fedrec.runs.registry import make_method

Found: TypeAlias = Mapping[tuple[int, str, str], Sequence[Result]]
"""Results by the place of the line, the dataset and the kind of protocol: one per seed."""

GROUPS = 5
CURRICULA = ("tanh", "fixed", "sin", "square", "frac")
SCHEDULES = ("paper", "code")
_STRENGTH, _ROUNDS = 0.1, 100
EXTRA_SPACE = "extra_space_client"
"""What stands for a metric in the rows of a sweep's `space_over`."""


def plotted(artefact: Artefact, found: Found, methods: Mapping[str, Any], data: Path | None) -> list[Row]:
    """The rows of a figure; `data` is the folder of the splits, which some layouts look into."""
    if artefact.layout == "curricula":
        return list(_curricula(methods))
    rows = {
        "convergence": _curves,
        "sweep": _swept,
        "bars": _reported,
        "groups": _grouped,
        "bubbles": _bubbles,
    }[artefact.layout]
    return [
        head | dict(row)
        for place, line in enumerate(artefact.lines)
        if line.run is not None
        for dataset in artefact.datasets
        for kind in kinds_of(artefact)
        if (results := found.get((place, dataset, kind)))
        for head in [_head(artefact, line, dataset, kind, methods)]
        for row in rows(artefact, line, results, methods, data)
    ]


def kinds_of(artefact: Artefact) -> Sequence[str]:
    """The kinds of protocol it is shown under."""
    kinds: Sequence[str] = artefact.options.get("protocols", BOTH)
    return kinds


def part_of(artefact: Artefact) -> str:
    """Whether it shows validation or test."""
    part: str = artefact.options.get("part", "test")
    return part


def method_of(artefact: Artefact, line: Line) -> str:
    """The spelling of a line's method, without the setting that is on the axis."""
    assert line.run is not None, "a line of a figure is a run"
    composition = parse(line.run)
    kept = tuple(change for change in composition.changes if change[0] != artefact.options.get("setting"))
    return str(replace(composition, changes=kept))


def label_of(artefact: Artefact, line: Line, methods: Mapping[str, Any]) -> str:
    """What a line is called."""
    return line.label or title(methods, method_of(artefact, line))


def _head(
    artefact: Artefact, line: Line, dataset: str, kind: str, methods: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "dataset": dataset,
        "protocol": kind,
        "method": canonical(methods, method_of(artefact, line)),
        "label": label_of(artefact, line, methods),
    }


def _tail(metric: str, values: Sequence[float], results: Sequence[Result]) -> dict[str, Any]:
    over_seeds = spread(values)
    seeds = " ".join(str(one.run.seed) for one in results)
    return {"metric": metric, "mean": over_seeds.mean, "sd": over_seeds.sd, "seeds": seeds}


def _curves(
    artefact: Artefact,
    _line: Line,
    results: Sequence[Result],
    _methods: Mapping[str, Any],
    _data: Path | None,
) -> Iterator[Row]:
    part = part_of(artefact)
    for metric in artefact.metrics:
        rounds = results[0].curve["round"].to_list()
        curves = [one.curve[f"{part}_{metric}"].to_list() for one in results]
        for round_, *values in zip(rounds, *curves, strict=True):
            yield {"axis": "round", "x": int(round_), "part": part} | _tail(metric, values, results)


def _swept(
    artefact: Artefact, line: Line, results: Sequence[Result], methods: Mapping[str, Any], data: Path | None
) -> Iterator[Row]:
    """With `part: validation`, the best validation value; else test at the reported round."""
    part = part_of(artefact)
    axis = _on_axis(artefact, line, results[0].run.dataset, methods)
    for metric in artefact.metrics:
        rules = ["best_validation" if part == "validation" else one.at for one in results]
        values = [
            one.summary["metrics"][rule][part][metric] for one, rule in zip(results, rules, strict=True)
        ]
        rounds = [one.summary["rounds"][rule] for one, rule in zip(results, rules, strict=True)]
        yield axis | {"part": part, **_tail(metric, values, results), "round": spread(rounds).mean}
    if "space_over" in artefact.options:
        yield axis | _extra_space(artefact, results, methods, data)


def _extra_space(
    artefact: Artefact, results: Sequence[Result], methods: Mapping[str, Any], data: Path | None
) -> dict[str, Any]:
    """How much more a client holds than with the method of `space_over`, by counting parameters."""
    over, first = artefact.options["space_over"], results[0]
    plain, _, _ = resolve(methods, over, artefact.paper, first.run.dataset)
    sizes = _sizes(first, data)
    client, _ = space(first.run.method, first.summary["settings"], *sizes)
    base, _ = space(over, plain, *sizes)
    extra = [megabytes(client - base)] * len(results)
    return _tail(EXTRA_SPACE, extra, results) | {"unit": "MB", "over": title(methods, over)}


def _on_axis(artefact: Artefact, line: Line, dataset: str, methods: Mapping[str, Any]) -> dict[str, Any]:
    """The value of the setting; where it is the run's own, who says so: paper, code, checked or ours."""
    assert line.run is not None, "a sweep varies runs"
    setting = artefact.options["setting"]
    here, _, _ = resolve(methods, line.run, artefact.paper, dataset)
    there, sources, _ = resolve(methods, method_of(artefact, line), artefact.paper, dataset)
    own = sources[setting] if here[setting] == there[setting] else "no"
    return {"axis": setting, "x": line.value, "own": own}


def _reported(
    artefact: Artefact,
    _line: Line,
    results: Sequence[Result],
    _methods: Mapping[str, Any],
    _data: Path | None,
) -> Iterator[Row]:
    for metric in artefact.metrics:
        values = [one.metric(metric) for one in results]
        yield {"axis": "dataset", "x": results[0].run.dataset, "part": "test"} | _tail(
            metric, values, results
        )


def _grouped(
    artefact: Artefact, line: Line, results: Sequence[Result], methods: Mapping[str, Any], data: Path | None
) -> Iterator[Row]:
    """Users in groups of equal size by how many training rows they have."""
    axis = _on_axis(artefact, line, results[0].run.dataset, methods)
    users, counts = _training_rows(_split(results[0], data)[0])
    group = activity_groups(counts, GROUPS)
    for number in range(GROUPS):
        here = group == number
        about = {
            "group": number + 1, "users": int(here.sum()),
            "least_rows": int(counts[here].min()), "most_rows": int(counts[here].max()),
        }  # fmt: skip
        for metric in artefact.metrics:
            values = [one.metric_of(metric, users=users[here].tolist()) for one in results]
            yield axis | {"part": "test", **_tail(metric, values, results), **about}


def _bubbles(
    _artefact: Artefact,
    _line: Line,
    results: Sequence[Result],
    _methods: Mapping[str, Any],
    data: Path | None,
) -> Iterator[Row]:
    client, server = space(results[0].run.method, results[0].summary["settings"], *_sizes(results[0], data))
    seconds = [one.summary["measured"]["seconds_per_round"] for one in results]
    yield _tail("space_client", [megabytes(client)] * len(results), results) | {"unit": "MB"}
    yield _tail("space_server", [megabytes(server)] * len(results), results) | {"unit": "MB"}
    yield _tail("seconds_per_round", seconds, results) | {"unit": "s"}


def _curricula(methods: Mapping[str, Any]) -> Iterator[Row]:
    """The strength of each round as FedRAP itself computes it."""
    settings, _, _ = resolve(methods, "fedrap", "fedrap", "")
    for schedule in SCHEDULES:
        for curriculum in CURRICULA:
            changed = {"schedule": schedule, "curriculum": curriculum, "apart": _STRENGTH}
            method = make_method("fedrap", settings | changed, items=1)
            name = "fedrap" if curriculum == CURRICULA[0] else f"fedrap[curriculum={curriculum}]"
            for round_ in range(1, _ROUNDS + 1):
                yield {
                    "schedule": schedule, "method": name, "label": curriculum, "axis": "round", "x": round_,
                    "metric": "strength", "mean": method.strengths(round_)[0],  # type: ignore[union-attr]
                }  # fmt: skip


def _split(result: Result, data: Path | None) -> tuple[Any, dict[str, Any]]:
    """The rows of the split a run was trained on, and what its file says about it."""
    if data is None:
        raise ResultError("this figure looks into the splits: give the folder they are in, results/data.")
    path = data / result.run.dataset / result.summary["protocol"]["name"] / "split.parquet"
    if not path.is_file():
        raise ResultError(f"{path}: no such split. Build it with: snakemake --cores 2 '{path}'")
    rows, about = read_table(path)
    if about["split"] != result.summary["split"]:
        raise ResultError(
            f"{result.folder} was trained on split {result.summary['split'][:8]}, but {path} is "
            f"{about['split'][:8]}. Train it again; snakemake does that by itself."
        )
    return rows, about


def _sizes(result: Result, data: Path | None) -> tuple[int, int]:
    """Clients and items of a run."""
    _, about = _split(result, data)
    return about["users"] - len(about["dropped_users"]), about["items"]


def _training_rows(rows: Any) -> tuple[np.ndarray, np.ndarray]:  # noqa: ANN401 - a table of pyarrow
    """The users of a split, and the number of training rows of each."""
    users = rows["user"].to_numpy()
    train = np.asarray([part == "train" for part in rows["part"].to_pylist()])
    present = np.unique(users)
    return present, np.bincount(users[train], minlength=int(present[-1]) + 1)[present].astype(np.int64)
