r"""Time whole trainings, each in a separate process, from the command to its files.

    python -m benchmarks.processes --data results/data/ml-1m --method pfedclr fedrap --out processes.json

A first process of one round compiles the kernels and Python's modules, as any earlier run would have, and
does not count. The report also has the least time of any process: importing torch.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fedrec.config.names import parse
from fedrec.errors import ResultError
from fedrec.files.atomic import write_text
from fedrec.runs.device import device_name, device_named

_UNWRITTEN = "PYTHONDONTWRITEBYTECODE"
"""Has every process compile all modules again."""


def benchmark_process(arguments: Sequence[str], device: str, repeats: int) -> dict[str, Any]:
    """Seconds of `fedrec train` with some arguments, and of importing torch, in alternation."""
    train = [sys.executable, "-m", "fedrec", "train", *arguments, f"--device={device}"]
    importing = [sys.executable, "-c", "import torch"]
    seconds: dict[str, list[float]] = {"training": [], "torch": []}
    with tempfile.TemporaryDirectory() as folder:
        _timed([*map(_for_one_round, train), f"--out={folder}/first"])
        for number in range(repeats):
            seconds["torch"].append(_timed(importing))
            seconds["training"].append(_timed([*train, f"--out={folder}/{number}"]))
        summary = json.loads(Path(folder, "0", "run.json").read_text(encoding="utf-8"))
    return {
        "method": summary["method"],
        "dataset": summary["dataset"],
        "rounds": summary["settings"]["rounds"],
        "engine": summary["engine"],
        "code": summary["code"],
        "repeats": repeats,
        "seconds": {name: statistics.median(values) for name, values in seconds.items()},
    }


def _for_one_round(word: str) -> str:
    """An argument of a command; the name of a method gets one round."""
    option, _, method = word.partition("=")
    return f"{option}={parse(method).with_changes({'rounds': '1'})}" if option == "--method" else word


def _timed(command: Sequence[str]) -> float:
    """Seconds of a command; raise `ResultError` with its last lines if it fails."""
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=_environment(os.environ), check=False)
    if done.returncode:
        raise ResultError(f"{' '.join(command)}: ended with {done.returncode}. {done.stderr.strip()[-500:]}")
    return time.perf_counter() - began


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in given.items() if name != _UNWRITTEN}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="a dataset's folder, with its splits")
    parser.add_argument("--protocol", default="clean", help="which of its splits (default: %(default)s)")
    parser.add_argument("--method", nargs="+", required=True, help="as for fedrec train")
    parser.add_argument("--paper", help="the paper whose settings to follow (default: each method's own)")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--repeats", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--config", type=Path, default=Path("config"), help="default: %(default)s")
    parser.add_argument("--out", type=Path, required=True, help="json file to write")
    parsed = parser.parse_args(arguments)
    measured = []
    for method in parsed.method:
        told = [f"--data={parsed.data}", f"--method={method}", f"--protocol={parsed.protocol}"]
        told += [f"--methods={parsed.config / 'methods.yaml'}"]
        told += [f"--paper={parsed.paper}"] if parsed.paper else []
        one = benchmark_process(told, parsed.device, parsed.repeats)
        seconds = one["seconds"]
        print(
            f"{one['method']} on {one['dataset']}: {seconds['training']:.1f} s; "
            f"importing torch alone: {seconds['torch']:.1f} s"
        )
        measured.append(one)
    where = {"device": device_name(device_named(parsed.device)), "torch": torch.__version__}
    write_text(parsed.out, json.dumps({**where, "processes": measured}, indent=2) + "\n")


if __name__ == "__main__":
    main()
