r"""Measure a round as users, items and interactions grow: seconds by part, and peak memory.

    python -m benchmarks.growth --method fedmf --users 100000 --items 20000 --interactions 10000000 \
        --out growth.csv

Each call generates a population, splits it, trains one round with every client and adds a line to the table.
Use one process for each size, since the peak memory of a process includes all its earlier work. Needs the
packages that training needs.
"""

import argparse
import csv
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from typing_extensions import override

from fedrec.config.methods import canonical, load_methods, resolve
from fedrec.config.population import Population
from fedrec.config.protocol import Protocol
from fedrec.config.yaml_text import values_of
from fedrec.data.population import population_interactions
from fedrec.data.split import make_split
from fedrec.evaluation.scoring import HELD_OUT_PARTS, candidate_ranks, catalogue_ranks
from fedrec.federation.clients import Clients, Samples
from fedrec.federation.engines.engine import engine_named
from fedrec.random.purpose import Purpose
from fedrec.runs.device import device_name, device_named, memory_for_clients, peak_memory
from fedrec.runs.registry import make_learner

_DATASET = "growth"
_PROTOCOL = "clean"
_DIGITS = 6
"""Of seconds: small sizes, too, take more than none."""


class Watch:
    """Seconds by the name of a part, on a device that may still compute when a call returns."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Add the time of a block to a part."""
        start = self._now()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + self._now() - start

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


class WatchedClients(Clients):
    """Clients that time their sampling."""

    watch: ClassVar[Watch]

    @override
    def samples(
        self,
        who: torch.Tensor,
        per_positive: int,
        seed: int,
        round_: int,
        purpose: Purpose = Purpose.NEGATIVES,
    ) -> Samples:
        with self.watch.part("draws"):
            return super().samples(who, per_positive, seed, round_, purpose)


@dataclass(frozen=True)
class Growth:
    """One line of the table. Seconds are those of this machine; `catalogue` is for `ranked_users` only."""

    machine: str
    method: str
    users: int
    items: int
    interactions: int
    ranked_users: int
    make: float
    split: float
    load: float
    draws: float
    training: float
    server: float
    candidates: float
    catalogue: float
    peak_host_bytes: int
    peak_device_bytes: int


def measure(
    population: Population, *, method: str, changes: list[str], device: str, ranked_users: int, config: Path
) -> Growth:
    """Make a population, split it, train one round with every client, and rank held-out items."""
    methods = load_methods(config / "methods.yaml")
    method = canonical(methods, method)
    settings, _, _ = resolve(methods, method, None, _DATASET, ["participation=1", "rounds=1", *changes])
    target_device = device_named(device)
    watch = WatchedClients.watch = Watch(target_device)
    with watch.part("make"):
        interactions = population_interactions(population, _DATASET)
    with watch.part("split"):
        split = make_split(interactions, clean_protocol(config / "protocols.yaml"))
    del interactions
    with watch.part("load"):
        clients = WatchedClients.of_split(split, target_device)
    made = len(split.user)
    del split
    memory = memory_for_clients(target_device, None)
    engine = engine_named("auto", memory.together, memory.alone)
    learner = make_learner(method, clients, settings, population.seed, engine)
    report = learner.train_round(1)
    with watch.part("candidates"):
        for part in HELD_OUT_PARTS:
            candidate_ranks(learner, clients, part)
    ranked = min(ranked_users, len(clients))
    with watch.part("catalogue"):
        catalogue_ranks(learner, clients, slice(ranked))
    return Growth(
        machine=device_name(target_device),
        method=method,
        users=len(clients),
        items=clients.items,
        interactions=made,
        ranked_users=ranked,
        **{name: round(watch.seconds[name], _DIGITS) for name in ("make", "split", "load", "draws")},
        training=round(report.local_seconds - watch.seconds["draws"], _DIGITS),
        server=round(report.server_seconds, _DIGITS),
        **{name: round(watch.seconds[name], _DIGITS) for name in ("candidates", "catalogue")},
        peak_host_bytes=peak_memory(torch.device("cpu")),
        peak_device_bytes=peak_memory(target_device) if target_device.type == "cuda" else 0,
    )


def clean_protocol(file: Path) -> Protocol:
    """The clean protocol, read without the schemas, which a machine for training may lack."""
    return Protocol(name=_PROTOCOL, **values_of(file.read_text(encoding="utf-8"))[_PROTOCOL])


def add_line(file: Path, values: Mapping[str, Any]) -> None:
    """Add a line to a table, and create the table if there is none."""
    begun = file.is_file()
    with file.open("a", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(values), lineterminator="\n")
        if not begun:
            writer.writeheader()
        writer.writerow(values)


def main() -> None:
    """Measure one size, print it and add it to the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--method", default="fedmf", help="default: %(default)s")
    parser.add_argument("--users", type=int, required=True)
    parser.add_argument("--items", type=int, required=True)
    parser.add_argument("--interactions", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="change a setting of the method"
    )
    parser.add_argument(
        "--ranked-users",
        type=int,
        default=1000,
        help="users, the first ones, whose items are ranked in the whole catalogue (default: %(default)s)",
    )
    parser.add_argument("--config", type=Path, default=Path("config"), help="default: %(default)s")
    parser.add_argument("--out", type=Path, help="csv file to add the line to")
    parsed = parser.parse_args()
    line = measure(
        Population(parsed.seed, parsed.users, parsed.items, parsed.interactions),
        method=parsed.method,
        changes=parsed.set,
        device=parsed.device,
        ranked_users=parsed.ranked_users,
        config=parsed.config,
    )
    for name, value in asdict(line).items():
        print(f"{name:18} {value:>20,}" if isinstance(value, int | float) else f"{name:18} {value:>20}")
    if parsed.out is not None:
        add_line(parsed.out, asdict(line))


if __name__ == "__main__":
    main()
