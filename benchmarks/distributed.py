r"""Measure a round of several processes that share the clients of one run: seconds, memory, messages.

    torchrun --standalone --nproc-per-node 2 -m benchmarks.distributed --method fedmf --users 100000 \
        --items 20000 --interactions 10000000 --out distributed.csv

The first process generates the population and splits it. Each process then reads its clients, trains some
rounds with every client and ranks held-out items among their candidates. Memory is that of training only.
Needs the packages that training needs.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import Tensor
from typing_extensions import override

from benchmarks.growth import add_line, clean_protocol
from fedrec.config.methods import canonical, load_methods, resolve
from fedrec.config.population import Population
from fedrec.data.population import population_interactions
from fedrec.data.split import make_split, read_split, write_split
from fedrec.evaluation.scoring import HELD_OUT_PARTS, candidate_ranks
from fedrec.federation.clients import Clients
from fedrec.federation.collectives import Communicator, DistributedCommunicator
from fedrec.federation.engines.engine import engine_named
from fedrec.runs.device import device_name, device_named, memory_for_clients, peak_memory, reset_peak_memory
from fedrec.runs.process_group import ProcessGroup
from fedrec.runs.registry import make_learner

_DATASET = "made"
_DIGITS = 3


class CountedCommunicator(DistributedCommunicator):
    """Processes that count the bytes each of them passes to all-reduce or sends to others."""

    bytes_handed = 0

    @override
    def all_reduce(self, own: Tensor) -> Tensor:
        self.bytes_handed += own.nbytes
        return super().all_reduce(own)

    @override
    def all_gather(self, own: Tensor) -> Tensor:
        self.bytes_handed += own.nbytes
        return super().all_gather(own)

    @override
    def all_to_all(self, parts: Sequence[Tensor], shapes: Sequence[Sequence[int]]) -> list[Tensor]:
        self.bytes_handed += sum(part.nbytes for part in parts)
        return super().all_to_all(parts, shapes)


@dataclass(frozen=True)
class Line:
    """One line of the table: the median round of the first process, the largest memory of any."""

    machine: str
    method: str
    users: int
    items: int
    interactions: int
    processes: int
    seconds: float
    processor_seconds: float
    """Of the first process, where others may compute on the same cores."""
    ranking_seconds: float
    bytes_handed: int
    """By one process in one round."""
    peak_bytes: int


def measure(
    folder: Path,
    communicator: Communicator,
    *,
    method: str,
    changes: list[str],
    device: str,
    rounds: int,
    config: Path,
) -> Line:
    """Read the clients of this process from a split, train some rounds with every client, and rank."""
    methods = load_methods(config / "methods.yaml")
    method = canonical(methods, method)
    asked = ["participation=1", f"rounds={rounds}", *changes]
    settings, _, _ = resolve(methods, method, None, _DATASET, asked)
    place = device_named(device, communicator.rank if communicator.size > 1 else None)
    split = read_split(folder)
    clients, interactions = Clients.of_split(split, place, communicator), len(split.user)
    del split
    reset_peak_memory(place)
    memory = memory_for_clients(place, None)
    engine = engine_named("auto", memory.together, memory.alone)
    counted = (
        CountedCommunicator(communicator.device)
        if isinstance(communicator, DistributedCommunicator)
        else communicator
    )
    learner = make_learner(method, clients, settings, 1, engine, communicator=counted)
    seconds, busy = [], []
    for round_ in range(1, rounds + 1):
        before = time.process_time()
        report = learner.train_round(round_)
        busy.append(time.process_time() - before)
        seconds.append(report.local_seconds + report.server_seconds)
    started = time.perf_counter()
    for part in HELD_OUT_PARTS:
        candidate_ranks(learner, clients, part)
    ranking = time.perf_counter() - started
    return Line(
        machine=device_name(place),
        method=method,
        users=clients.total_clients,
        items=clients.items,
        interactions=interactions,
        processes=communicator.size,
        seconds=round(statistics.median(seconds), _DIGITS),
        processor_seconds=round(statistics.median(busy), _DIGITS),
        ranking_seconds=round(ranking, _DIGITS),
        bytes_handed=counted.bytes_handed // rounds if isinstance(counted, CountedCommunicator) else 0,
        peak_bytes=max(communicator.all_gather_object(peak_memory(place))),
    )


def main() -> None:
    """Measure one size, print it and add it to the table."""
    parsed = _parser().parse_args()
    membership = ProcessGroup.of_environment()
    device = device_named(parsed.device, membership.local_rank)
    with (
        membership.communicator(device) as communicator,
        tempfile.TemporaryDirectory(prefix="fedrec-") as own,
    ):
        if communicator.is_root:
            _write_population(parsed, Path(own))
        line = measure(
            Path(communicator.broadcast(own)),
            communicator,
            method=parsed.method,
            changes=parsed.set,
            device=parsed.device,
            rounds=parsed.rounds,
            config=parsed.config,
        )
        if communicator.is_root:
            print(*(f"{name}: {value}" for name, value in asdict(line).items()), sep="\n")
            if parsed.out is not None:
                add_line(parsed.out, asdict(line))


def _write_population(parsed: argparse.Namespace, folder: Path) -> None:
    population = Population(parsed.seed, parsed.users, parsed.items, parsed.interactions)
    interactions = population_interactions(population, _DATASET)
    write_split(make_split(interactions, clean_protocol(parsed.config / "protocols.yaml")), folder)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--method", default="fedmf", help="default: %(default)s")
    parser.add_argument("--users", type=int, required=True)
    parser.add_argument("--items", type=int, required=True)
    parser.add_argument("--interactions", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="change a setting of the method"
    )
    parser.add_argument("--config", type=Path, default=Path("config"), help="default: %(default)s")
    parser.add_argument("--out", type=Path, help="csv file to add the line to")
    return parser


if __name__ == "__main__":
    main()
