"""Time the preparation of a dataset, as a ratio to only reading its file in the same run.

python -m benchmarks.prepare ml-1m --out prepare.json
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import polars as pl

from fedrec.config.catalogue import Dataset, TableFormat, load_catalogue
from fedrec.config.protocol import Protocol
from fedrec.config.protocol_file import load_protocols, protocol_named
from fedrec.data.prepare import prepare
from fedrec.data.temporal import split_by
from fedrec.errors import ConfigurationError
from fedrec.files.atomic import write_text

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def benchmark_prepare(dataset: Dataset, raw: Path, protocol: Protocol, repeats: int) -> dict[str, Any]:
    """Median seconds of reading the file, of parse and filter, and of split with candidates.

    The runs alternate, so that a slow moment of the machine affects all of them.
    """
    file = dataset.interactions
    if file is None:
        raise ConfigurationError(f"{dataset.name} is made, not read: there is nothing to compare with.")
    seconds: dict[str, list[float]] = {"read": [], "prepare": [], "split": []}
    for _ in range(repeats):
        seconds["read"].append(_timed(_merely_read, raw / file.path, file.format)[0])
        taken, prepared = _timed(prepare, dataset, raw)
        seconds["prepare"].append(taken)
        seconds["split"].append(_timed(split_by, prepared.interactions, protocol)[0])
    median = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "dataset": dataset.name,
        "protocol": protocol.name,
        "repeats": repeats,
        "cores": os.cpu_count(),
        "polars": pl.__version__,
        "rows": len(prepared.interactions),
        "seconds": median,
        "ratio": (median["prepare"] + median["split"]) / median["read"],
    }


def _merely_read(path: Path, format_: TableFormat) -> pl.DataFrame:
    return pl.read_csv(path, separator=format_.separator[0], has_header=format_.header)


def _timed(
    work: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> tuple[float, Result]:
    start = time.perf_counter()
    result = work(*args, **kwargs)
    return time.perf_counter() - start, result


def main() -> None:
    """Measure, print and write one report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument(
        "--catalogue", type=Path, default=Path("config/datasets.yaml"), help="default: %(default)s"
    )
    parser.add_argument(
        "--protocols", type=Path, default=Path("config/protocols.yaml"), help="default: %(default)s"
    )
    parser.add_argument("--protocol", default="clean", help="default: %(default)s")
    parser.add_argument("--raw", type=Path, default=Path("results/raw"), help="default: %(default)s")
    parser.add_argument("--repeats", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--out", type=Path, required=True, help="json file to write")
    parsed = parser.parse_args()
    dataset = load_catalogue(parsed.catalogue)[parsed.dataset]
    protocol = protocol_named(load_protocols(parsed.protocols), parsed.protocol)
    text = json.dumps(benchmark_prepare(dataset, parsed.raw, protocol, parsed.repeats), indent=2) + "\n"
    write_text(parsed.out, text)
    print(text, end="")


if __name__ == "__main__":
    main()
