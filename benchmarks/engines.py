"""Rounds of local training: many clients at once against one after another, in one run.

python -m benchmarks.engines --data results/data/ml-100k --out engines.json
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fedrec.config.methods import canonical, load_methods, resolve
from fedrec.data.split import read_split
from fedrec.errors import ConfigurationError
from fedrec.federation.clients import Clients
from fedrec.federation.engines.batched.engine import BatchedEngine
from fedrec.federation.engines.engine import Engine
from fedrec.federation.engines.loop import LoopEngine
from fedrec.federation.federation import Federation
from fedrec.files.atomic import write_text
from fedrec.runs.device import device_named, memory_for_clients
from fedrec.runs.registry import make_learner

_LOOP_CLIENTS = 40


def benchmark_engines(
    make: Callable[[Clients, Engine], Federation], clients: Clients, memory: int, rounds: int
) -> dict[str, Any]:
    """Median seconds of a round with every client at once, and the loop's by a sample of its clients.

    The loop's time is proportional to clients, so `_LOOP_CLIENTS` spread evenly over all stand
    for them; the sample's share of all training samples scales it up.
    """
    batched = make(clients, BatchedEngine(memory))
    at_once = [_seconds(batched, round_, clients.device) for round_ in range(1, rounds + 2)][1:]
    chosen = torch.linspace(0, len(clients) - 1, _LOOP_CLIENTS, device=clients.device).long()
    sample = clients.only(chosen)
    share = float(sample.sizes.sum() / clients.sizes.sum())
    loop = make(sample, LoopEngine())
    one_by_one = [_seconds(loop, round_, clients.device) / share for round_ in range(1, rounds + 2)][1:]
    fast, slow = statistics.median(at_once), statistics.median(one_by_one)
    return {
        "clients": len(clients),
        "samples_per_round": int(clients.sizes.sum()) * (1 + batched.settings["negatives"]),
        "batched_seconds_per_round": fast,
        "loop_seconds_per_round": slow,
        "loop_measured_on_clients": _LOOP_CLIENTS,
        "ratio": slow / fast,
        "device": str(clients.device),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def _seconds(federation: Federation, round_: int, device: torch.device) -> float:
    start = time.perf_counter()
    federation.train_round(round_)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def benchmark(
    *, data: Path, method: str, paper: str | None, device: str, methods_file: Path, rounds: int
) -> dict[str, Any]:
    """Seconds of a round of `method` with every client, at once and one by one, on the clean split."""
    methods = load_methods(methods_file)
    method = canonical(methods, method)
    settings, _, paper = resolve(methods, method, paper, data.name, ["participation=1"])
    place = device_named(device)
    clients = Clients.of_split(read_split(data / "clean"), place)

    def make(those: Clients, engine: Engine) -> Federation:
        learner = make_learner(method, those, settings, 0, engine)
        if not isinstance(learner, Federation):
            raise ConfigurationError(f"{method} is not federated: there are no clients to train at once.")
        return learner

    measured = benchmark_engines(make, clients, memory_for_clients(place, None).together, rounds)
    return {"dataset": data.name, "method": method, "paper": paper, "settings": settings} | measured


def main() -> None:
    """Measure, print and write one report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the dataset's folder, with its clean split")
    parser.add_argument("--method", default="fedmf", help="default: %(default)s")
    parser.add_argument("--paper", help="whose settings (default: the method's own paper)")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument(
        "--methods", type=Path, default=Path("config/methods.yaml"), help="default: %(default)s"
    )
    parser.add_argument("--repeats", type=int, default=5, help="rounds timed (default: %(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="json file to write")
    parsed = parser.parse_args()
    report = benchmark(
        data=parsed.data,
        method=parsed.method,
        paper=parsed.paper,
        device=parsed.device,
        methods_file=parsed.methods,
        rounds=parsed.repeats,
    )
    text = json.dumps(report, indent=2) + "\n"
    write_text(parsed.out, text)
    print(text, end="")


if __name__ == "__main__":
    main()
