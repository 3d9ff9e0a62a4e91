r"""Time rounds of training by every engine, in one run: seconds, ratios, and differences of the results.

    python -m benchmarks.engines --data results/data/ml-100k --method fedmf --out engines.json
    python -m benchmarks.engines --shape ml-1m --method fedmf pfedclr --device cuda --out engines.json

The data is a split, or generated in the shape of a dataset. The loop is timed on some clients, and scaled to
all by their share of the samples. Results are compared on the same clients.
"""

import argparse
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedrec.config.methods import Methods, canonical, load_methods, resolve
from fedrec.config.population import Population
from fedrec.config.protocol import Protocol
from fedrec.config.yaml_text import values_of
from fedrec.data.population import population_interactions
from fedrec.data.split import Split, make_split, read_split
from fedrec.errors import ConfigurationError
from fedrec.evaluation.scoring import HELD_OUT_PARTS, candidate_ranks, catalogue_ranks
from fedrec.federation.clients import Clients
from fedrec.federation.engines.engine import engine_named
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


@dataclass(frozen=True)
class Maker:
    """Makes federations of one method, with the same settings and seed."""

    method: str
    settings: Mapping[str, Any]

    def federation(self, clients: Clients, engine: str) -> Federation:
        """A federation before its first round."""
        memory = memory_for_clients(clients.device, None)
        named = engine_named(engine, memory.together, memory.alone)
        learner = make_learner(self.method, clients, self.settings, 0, named)
        assert isinstance(learner, Federation)
        return learner


def benchmark_method(maker: Maker, clients: Clients, engines: Sequence[str], rounds: int) -> dict[str, Any]:
    """Seconds of a round with every client by engine, and its difference from the loop after one round."""
    chosen = torch.linspace(0, len(clients) - 1, min(_LOOP_CLIENTS, len(clients)), device=clients.device)
    some = clients.subset(torch.unique(chosen.long()))
    measured: dict[str, Any] = {"clients": len(clients), "interactions": int(clients.sizes.sum())}
    for name in engines:
        measured |= (
            _timed_loop(maker, some, clients) if name == "loop" else _timed(maker, name, clients, rounds)
        )
    if "loop" in engines:
        expected = _parameters_after_a_round(maker, "loop", some)
        for name in engines:
            if name != "loop":
                measured[f"{name}_differs"] = _distance(
                    expected, _parameters_after_a_round(maker, name, some)
                )
    return measured


def _timed(maker: Maker, engine: str, clients: Clients, rounds: int) -> dict[str, Any]:
    """The median of `rounds` after the first one, which compiles, and of an evaluation after the last.

    Processor seconds are those of all threads of this program together.
    """
    federation = maker.federation(clients, engine)
    first, *others = [_round_seconds(federation, at) for at in range(1, rounds + 2)]
    return {
        f"{engine}_first_round": first[0],
        engine: statistics.median(seconds for seconds, _ in others),
        f"{engine}_processor": statistics.median(seconds for _, seconds in others),
        f"{engine}_evaluation": min(_evaluation_seconds(federation, clients) for _ in range(3)),
        f"{engine}_notes": federation.engine.notes(),
    }


def _timed_loop(maker: Maker, some: Clients, clients: Clients) -> dict[str, Any]:
    """The second round of some clients, scaled to all by their share of the samples."""
    federation = maker.federation(some, "loop")
    (first, _), (second, processor) = (_round_seconds(federation, at) for at in (1, 2))
    share = float(some.sizes.sum() / clients.sizes.sum())
    return {
        "loop_first_round": first / share, "loop": second / share, "loop_processor": processor / share,
    }  # fmt: skip


def _parameters_after_a_round(maker: Maker, engine: str, clients: Clients) -> dict[str, torch.Tensor]:
    """All parameters after one round."""
    federation = maker.federation(clients, engine)
    federation.train_round(1)
    return {key: value.double().cpu() for key, value in federation.tensors().items()}


def _distance(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> float:
    """The largest difference of two states, relative to the largest number of each tensor."""
    return max(
        float((value - second[key]).abs().max() / value.abs().max().clamp(min=1e-12))
        for key, value in first.items()
        if value.numel()
    )


def _round_seconds(federation: Federation, round_: int) -> tuple[float, float]:
    """Wall-clock and processor seconds of a round."""
    start, busy = _now(federation.clients.device), time.process_time()
    federation.train_round(round_)
    return _now(federation.clients.device) - start, time.process_time() - busy


def _evaluation_seconds(federation: Federation, clients: Clients) -> float:
    start = _now(clients.device)
    for part in HELD_OUT_PARTS:
        candidate_ranks(federation, clients, part)
    catalogue_ranks(federation, clients)
    return _now(clients.device) - start


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def made_up(shape: str, config: Path) -> Split:
    """The clean split of a generated population in the shape of a dataset."""
    users, items, interactions = SHAPES[shape]
    population = Population(users=users, items=items, interactions=interactions, seed=0)
    protocols = values_of((config / "protocols.yaml").read_text(encoding="utf-8"))
    protocol = Protocol(name="clean", **protocols["clean"])
    return make_split(population_interactions(population, shape), protocol)


def maker_of(methods: Methods, name: str, paper: str | None, changes: Sequence[str]) -> tuple[Maker, str]:
    """The maker of federations in which every client takes part, and the paper that the method follows.

    Raise `ConfigurationError` for a method that has no clients.
    """
    method = canonical(methods, name)
    if "participation" not in resolve(methods, method, paper, "ml-100k")[0]:
        raise ConfigurationError(f"{method} is not federated: no client trains.")
    settings, _, paper = resolve(methods, method, paper, "ml-100k", ["participation=1", *changes])
    return Maker(method, settings), paper


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write a list of reports, one for each method."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = parser.add_mutually_exclusive_group(required=True)
    data.add_argument("--data", type=Path, help="a dataset's folder, with its clean split")
    data.add_argument("--shape", choices=SHAPES, help="or the shape of a dataset, which is made up")
    parser.add_argument("--method", nargs="+", default=["fedmf"], help="default: fedmf")
    parser.add_argument("--paper", help="whose settings (default: the method's own paper)")
    parser.add_argument("--engine", nargs="+", default=["fused", "batched", "loop"], help="default: all")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="SETTING=VALUE")
    parser.add_argument("--config", type=Path, default=Path("config"), help="default: %(default)s")
    parser.add_argument("--methods", type=Path, help="default: methods.yaml of the configuration")
    parser.add_argument("--repeats", type=int, default=5, help="rounds timed (default: %(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="json file to write")
    parsed = parser.parse_args(arguments)
    device = device_named(parsed.device)
    split = read_split(parsed.data / "clean") if parsed.data else made_up(parsed.shape, parsed.config)
    clients = Clients.of_split(split, device)
    methods = load_methods(parsed.methods or parsed.config / "methods.yaml")
    reports = []
    for name in parsed.method:
        maker, paper = maker_of(methods, name, parsed.paper, parsed.changes)
        report = {
            "data": parsed.shape or parsed.data.name, "method": maker.method, "paper": paper,
            "device": device_name(device), "threads": torch.get_num_threads(), "torch": torch.__version__,
            **benchmark_method(maker, clients, parsed.engine, parsed.repeats),
        }  # fmt: skip
        print(json.dumps(report), flush=True)
        reports.append(report)
    write_text(parsed.out, json.dumps(reports, indent=2) + "\n")


if __name__ == "__main__":
    main()
