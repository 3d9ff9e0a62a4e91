"""A run by name: finds split, settings, device and engine, and trains."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from fedrec.data.protocol import protocol_name
from fedrec.data.split import read_split
from fedrec.errors import ConfigurationError, OutOfMemoryError
from fedrec.federation.batched import BatchedEngine
from fedrec.federation.benchmark import benchmark_engines
from fedrec.federation.clients import Clients
from fedrec.federation.engine import Engine
from fedrec.federation.federation import Federation
from fedrec.federation.loop import LoopEngine
from fedrec.federation.watch import Watch, merged_keeps, spelled_keeps
from fedrec.provenance import code_hash
from fedrec.registry import make_learner, modules_of
from fedrec.settings import canonical, load_methods, resolve
from fedrec.training import Run

ENGINE_MODULE = "fedrec.run"


def train(
    *,
    data: Path,
    method: str,
    paper: str | None,
    protocol: str,
    seed: int,
    out: Path,
    changes: Sequence[str] = (),
    engine: str = "auto",
    device: str = "auto",
    methods_file: Path,
    memory_gib: float | None = None,
    checkpoint_seconds: float = 30.0,
    keep: Sequence[str] = (),
) -> dict[str, Any]:
    """Train `method` with the settings of `paper` on the split of `protocol` in `data`; write to `out`.

    `keep` tells what to keep besides (see `fedrec.federation.watch`).
    """
    methods = load_methods(methods_file)
    method = canonical(methods, method)
    settings, sources, paper = resolve(methods, method, paper, data.name, changes)
    split = read_split(data / protocol_name(protocol, paper))
    place = _device(device)
    clients = Clients.of_split(split, place)
    chosen = _engine(engine, place, memory_gib)
    identity = {
        "dataset": split.dataset,
        "method": method,
        "paper": paper,
        "protocol": split.protocol.as_dict(),
        "seed": seed,
        "settings": settings,
        "sources": sources,
        "engine": "loop" if engine == "loop" else "batched",
        "device": place.type,
        "split": split.content_hash(),
        "interactions": split.interactions,
        "code": {"method": code_hash(*modules_of(method)), "engine": code_hash(ENGINE_MODULE)},
    }
    try:
        watch = Watch.of(keep, clients, settings["rounds"]) if keep else None
        learner = make_learner(method, clients, settings, seed, chosen, watch)
        kept = tuple(spelled_keeps(merged_keeps(keep)))
        run = Run(split, clients, learner, settings["rounds"], out, identity, checkpoint_seconds, kept)
        return run.train()
    except torch.OutOfMemoryError as error:
        raise OutOfMemoryError(
            f"{method} on {data.name}: the tables of all clients do not fit into the memory of {place}, or "
            f"another program holds it. Run fewer jobs on it at once, or use --device cpu. ({error})"
        ) from error


def _engine(name: str, device: torch.device, memory_gib: float | None) -> Engine:
    if name == "fused":
        raise ConfigurationError(
            "--engine fused: there is no fused kernel yet. Use --engine batched, or auto."
        )
    return LoopEngine() if name == "loop" else BatchedEngine(_memory(device, memory_gib))


def _device(name: str) -> torch.device:
    """The CPU, or of several GPUs the one with the most free memory: runs spread over them."""
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ConfigurationError("--device cuda: torch finds no GPU here. Use --device cpu, or auto.")
    free = [torch.cuda.mem_get_info(number)[0] for number in range(torch.cuda.device_count())]
    return torch.device("cuda", free.index(max(free)))


def _memory(device: torch.device, gib: float | None) -> int:
    """Bytes for clients in training: what is asked for, or half of what is free."""
    if gib is not None:
        return int(gib * 2**30)
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] // 2
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES") // 2


def benchmark(
    *, data: Path, method: str, paper: str | None, device: str, methods_file: Path, rounds: int
) -> dict[str, Any]:
    """Seconds of a round of `method` with every client, at once and one by one, on the clean split."""
    methods = load_methods(methods_file)
    method = canonical(methods, method)
    settings, _, paper = resolve(methods, method, paper, data.name, ["participation=1"])
    place = _device(device)
    clients = Clients.of_split(read_split(data / "clean"), place)

    def make(those: Clients, engine: Engine) -> Federation:
        learner = make_learner(method, those, settings, 0, engine)
        if not isinstance(learner, Federation):
            raise ConfigurationError(f"{method} is not federated: there are no clients to train at once.")
        return learner

    measured = benchmark_engines(make, clients, _memory(place, None), rounds)
    return {"dataset": data.name, "method": method, "paper": paper, "settings": settings} | measured
