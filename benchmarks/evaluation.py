r"""Processor seconds that the rounds of runs spend on training and on evaluation.

    OMP_NUM_THREADS=1 python -m benchmarks.evaluation --data results/data/ml-100k --method fedmf fedrap

Each method trains with its own paper's settings on the CPU, and evaluates after each round as `train` does.
The first round compiles kernels and is left out.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from fedrec.config.default_files import file_or_default
from fedrec.config.methods import load_methods, resolve
from fedrec.data.split import read_split
from fedrec.federation.clients import Clients
from fedrec.federation.engines.engine import engine_named
from fedrec.federation.learner import Report
from fedrec.runs.checkpoint import Progress
from fedrec.runs.device import limit_torch_threads, memory_for_clients, raise_malloc_thresholds
from fedrec.runs.registry import make_learner
from fedrec.runs.training import Training


@dataclass(frozen=True)
class Measured(Training):
    """A run that notes the processor seconds of its evaluations, by all threads together."""

    busy: list[tuple[float, float]] = field(default_factory=list)
    """When the evaluation after each round began and ended, in processor seconds of this process."""

    def _evaluate(self, round_: int, report: Report, progress: Progress) -> None:
        began = time.process_time()
        super()._evaluate(round_, report, progress)
        self.busy.append((began, time.process_time()))


def measured(method: str, data: Path, protocol: str, rounds: int) -> tuple[float, float]:
    """The mean processor seconds of a round's training and of its evaluation, without the first round."""
    split, methods = read_split(data / protocol), load_methods(file_or_default(Path("config/methods.yaml")))
    settings, _, _ = resolve(methods, method, None, split.dataset)
    clients = Clients.of_split(split, torch.device("cpu"))
    memory = memory_for_clients(clients.device, None)
    learner = make_learner(method, clients, settings, 0, engine_named("auto", memory.together, memory.alone))
    with TemporaryDirectory() as folder:
        run = Measured(clients, learner, rounds + 1, Path(folder), _identity(method), checkpoint_seconds=1e9)
        run.train()
    between = list(zip(run.busy, run.busy[1:], strict=False))
    training = sum(later[0] - earlier[1] for earlier, later in between)
    evaluation = sum(end - began for began, end in run.busy[1:])
    return training / rounds, evaluation / rounds


def _identity(method: str) -> dict[str, object]:
    """What names a run whose record nobody keeps."""
    return {"method": method}


def main(words: Sequence[str] | None = None) -> None:
    """Print a line for each method: seconds of training, of evaluation, and the latter's share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a dataset's folder, with its splits")
    parser.add_argument("--protocol", default="clean", help="default: %(default)s")
    parser.add_argument("--method", nargs="+", required=True, help="methods of config/methods.yaml")
    parser.add_argument(
        "--rounds", type=int, default=5, help="rounds behind the first (default: %(default)s)"
    )
    parsed = parser.parse_args(words)
    limit_torch_threads()
    raise_malloc_thresholds()
    print("| method | training, CPU seconds a round | evaluation | share |\n| --- | ---: | ---: | ---: |")
    for method in parsed.method:
        training, evaluation = measured(method, parsed.data, parsed.protocol, parsed.rounds)
        share = evaluation / (training + evaluation)
        print(f"| {method} | {training:.2f} | {evaluation:.2f} | {share:.0%} |", flush=True)


if __name__ == "__main__":
    main()
