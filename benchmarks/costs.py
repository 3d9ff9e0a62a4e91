"""Compare stored runs of a GPU with their estimates by `gpu_costs`.

    python -m benchmarks.costs

For every run it divides the measured seconds of its rounds by the estimated ones, without the time to start.
Runs that shared a GPU took longer than one alone. So all ratios are divided by their median: a method at 1 is
in proportion to the others. Runs of a single round are left out.
"""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedrec.config.catalogue import load_catalogue
from fedrec.config.configuration import read_configuration
from fedrec.config.methods import load_methods
from fedrec.config.names import parse
from fedrec.plan.cost import gpu_seconds_of
from fedrec.plan.runs import RunId
from fedrec.runs.store import RunStore

_ON_CPU = "cpu"
"""How the name of a machine begins on which no GPU trained."""


def ratios_of(runs: Iterable[tuple[RunId, Mapping[str, Any]]], config: Path) -> dict[str, list[float]]:
    """The ratios of runs, given by their names and run.json, by method with its plug-in."""
    methods, catalogue = load_methods(config / "methods.yaml"), load_catalogue(config / "datasets.yaml")
    costs = read_configuration([config / "config.yaml"]).content["gpu_costs"]
    found: dict[str, list[float]] = {}
    for run, summary in runs:
        if summary["measured"]["device"].startswith(_ON_CPU) or summary["rounds"]["last"] == 1:
            continue
        estimated = gpu_seconds_of(run, methods, catalogue, costs) - costs["start"]
        found.setdefault(parse(run.method).name, []).append(summary["measured"]["seconds"] / estimated)
    middle = np.median([ratio for ratios in found.values() for ratio in ratios])
    return {name: [float(ratio / middle) for ratio in ratios] for name, ratios in sorted(found.items())}


def main(words: Sequence[str] | None = None) -> None:
    """Print a line for each method: the number of runs, and the 10th, 50th and 90th percentile of ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--store", type=Path, default=Path("results/reference"), help="packed runs (default: %(default)s)"
    )
    parser.add_argument(
        "--config",
        type=Path,
        default=Path("config"),
        help="folder of the configuration (default: %(default)s)",
    )
    parsed = parser.parse_args(words)
    stored = ((run.id, run.summary) for run in RunStore(parsed.store).every_run())
    ratios_by_method = ratios_of(stored, parsed.config)
    every = [ratio for ratios in ratios_by_method.values() for ratio in ratios]
    for name, ratios in [*ratios_by_method.items(), ("all", every)]:
        low, median, high = np.quantile(ratios, (0.1, 0.5, 0.9))
        print(f"{name:18} {len(ratios):4} runs  {low:5.2f} {median:5.2f} {high:5.2f}")


if __name__ == "__main__":
    main()
