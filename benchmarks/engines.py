r"""Rounds of training by every engine, in one run: seconds, ratios, and how far the results are apart.

    python -m benchmarks.engines --data results/data/ml-100k --method fedmf --out engines.json
    python -m benchmarks.engines --shape ml-1m --method fedmf pfedclr --device cuda --out engines.json

The data is a split, or made up in the shape of a dataset. The loop is timed on some clients, and stands for
all by their share of the samples; on these clients results are compared, too.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fedrec.config.methods import canonical, load_methods, resolve
from fedrec.config.population import Population
from fedrec.config.protocol import Protocol
from fedrec.config.yaml_text import values_of
from fedrec.data.population import population_interactions
from fedrec.data.split import Split, make_split, read_split
from fedrec.errors import ConfigurationError
from fedrec.evaluation.scoring import HELD_OUT_PARTS, candidate_ranks, catalogue_ranks
from fedrec.federation.clients import Clients
from fedrec.federation.engines.engine import Engine, engine_named
from fedrec.federation.federation import Federation
from fedrec.files.atomic import write_text
from fedrec.runs.device import device_name, device_named, memory_for_clients
from fedrec.runs.registry import make_learner

SHAPES = {
    "ml-100k": (943, 1682, 100_000),
    "ml-1m": (6040, 3706, 1_000_209),
    "hetrec2011": (2113, 10_109, 855_598),
}
"""Users, items and interactions of datasets, to make up others of their shape."""
_LOOP_CLIENTS = 40


def benchmark_method(
    make: Callable[[Clients, Engine], Federation], clients: Clients, engines: list[str], rounds: int
) -> dict[str, Any]:
    """Median seconds of a round with every client, by engine; and of its evaluation, after the last round."""
    memory = memory_for_clients(clients.device, None)
    chosen = torch.linspace(0, len(clients) - 1, min(_LOOP_CLIENTS, len(clients)), device=clients.device)
    some = clients.only(torch.unique(chosen.long()))
    share = float(some.sizes.sum() / clients.sizes.sum())
    measured: dict[str, Any] = {"clients": len(clients), "interactions": int(clients.sizes.sum())}
    reached: dict[str, dict[str, torch.Tensor]] = {}
    for name in engines:
        alone = name == "loop"
        federation = make(some if alone else clients, engine_named(name, memory.together, memory.alone))
        repeats = 1 if alone else rounds
        seconds = [
            _seconds(partial(federation.train_round, at), clients.device) for at in range(1, repeats + 2)
        ]
        measured[f"{name}_first_round"] = seconds[0]
        measured[name] = statistics.median(seconds[1:]) / (share if alone else 1)
        if not alone:
            measured[f"{name}_evaluation"] = min(
                _seconds(partial(_evaluate, federation, clients), clients.device) for _ in range(3)
            )
            measured[f"{name}_notes"] = federation.engine.notes()
        compared = make(some, engine_named(name, memory.together, memory.alone))
        compared.train_round(1)
        reached[name] = {key: value.double().cpu() for key, value in compared.tensors().items()}
    if "loop" in reached:
        for name in engines:
            measured[f"{name}_differs"] = _distance(reached["loop"], reached[name])
    return measured


def _distance(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> float:
    """The largest difference of two states, in shares of the largest number of each tensor."""
    return max(
        float((value - second[key]).abs().max() / value.abs().max().clamp(min=1e-12))
        for key, value in first.items()
        if value.numel()
    )


def _evaluate(federation: Federation, clients: Clients) -> None:
    for part in HELD_OUT_PARTS:
        candidate_ranks(federation, clients, part)
    catalogue_ranks(federation, clients)


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    start = _now(device)
    work()
    return _now(device) - start


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def made_up(shape: str, config: Path) -> Split:
    """The clean split of a population of some dataset's shape."""
    users, items, interactions = SHAPES[shape]
    population = Population(users=users, items=items, interactions=interactions, seed=0)
    protocols = values_of((config / "protocols.yaml").read_text(encoding="utf-8"))
    protocol = Protocol(name="clean", **protocols["clean"])
    return make_split(population_interactions(population, shape), protocol)


def main() -> None:
    """Measure, print and write one report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="a dataset's folder, with its clean split")
    parser.add_argument("--shape", choices=SHAPES, help="or the shape of a dataset, which is made up")
    parser.add_argument("--method", nargs="+", default=["fedmf"], help="default: fedmf")
    parser.add_argument("--paper", help="whose settings (default: the method's own paper)")
    parser.add_argument("--engine", nargs="+", default=["fused", "batched", "loop"], help="default: all")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="SETTING=VALUE")
    parser.add_argument("--config", type=Path, default=Path("config"), help="default: %(default)s")
    parser.add_argument("--repeats", type=int, default=5, help="rounds timed (default: %(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="json file to write")
    parsed = parser.parse_args()
    if (parsed.data is None) == (parsed.shape is None):
        raise ConfigurationError("give either --data or --shape.")
    place = device_named(parsed.device)
    split = read_split(parsed.data / "clean") if parsed.data else made_up(parsed.shape, parsed.config)
    clients = Clients.of_split(split, place)
    methods = load_methods(parsed.config / "methods.yaml")
    reports = []
    for name in parsed.method:
        method = canonical(methods, name)
        settings, _, paper = resolve(
            methods, method, parsed.paper, "ml-100k", ["participation=1", *parsed.changes]
        )

        def make(
            those: Clients,
            engine: Engine,
            method: str = method,
            settings: Any = settings,  # noqa: ANN401 - a method's own settings
        ) -> Federation:
            learner = make_learner(method, those, settings, 0, engine)
            if not isinstance(learner, Federation):
                raise ConfigurationError(f"{method} is not federated: no client trains.")
            return learner

        report = {
            "data": parsed.shape or parsed.data.name, "method": method, "paper": paper,
            "device": device_name(place), "threads": torch.get_num_threads(), "torch": torch.__version__,
            **benchmark_method(make, clients, parsed.engine, parsed.repeats),
        }  # fmt: skip
        print(json.dumps(report), flush=True)
        reports.append(report)
    write_text(parsed.out, json.dumps(reports, indent=2) + "\n")


if __name__ == "__main__":
    main()
