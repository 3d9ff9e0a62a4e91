"""A run by name: finds split, settings, device and engine, and trains."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from fedrec.config.methods import canonical, load_methods, resolve
from fedrec.config.modules import modules_of
from fedrec.config.protocol import protocol_name
from fedrec.config.records import merged_records, spelled_records
from fedrec.data.split import read_split
from fedrec.errors import OutOfMemoryError
from fedrec.federation.clients import Clients
from fedrec.federation.engines.engine import ENGINES, engine_named
from fedrec.federation.observe.recorder import Recorder
from fedrec.plan.fingerprint import code_hash
from fedrec.runs.device import device_named, memory_for_clients
from fedrec.runs.registry import make_learner
from fedrec.runs.training import Run

ENGINE_MODULE = "fedrec.runs.train"


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

    `keep` tells what to keep besides (see `fedrec.federation.observe.recorder`).
    """
    methods = load_methods(methods_file)
    method = canonical(methods, method)
    settings, sources, paper = resolve(methods, method, paper, data.name, changes)
    split = read_split(data / protocol_name(protocol, paper))
    place = device_named(device)
    clients = Clients.of_split(split, place)
    chosen = engine_named(engine, memory_for_clients(place, memory_gib))
    identity = {
        "dataset": split.dataset,
        "method": method,
        "paper": paper,
        "protocol": split.protocol.as_dict(),
        "seed": seed,
        "settings": settings,
        "sources": sources,
        "engine": chosen.name,
        "device": place.type,
        "split": split.content_hash(),
        "interactions": split.interactions,
        "code": {
            "method": code_hash(*modules_of(method)),
            "engine": code_hash(ENGINE_MODULE, ENGINES[chosen.name]),
        },
    }
    try:
        recorder = Recorder.of(keep, clients, settings["rounds"]) if keep else None
        learner = make_learner(method, clients, settings, seed, chosen, recorder)
        kept = tuple(spelled_records(merged_records(keep)))
        run = Run(split, clients, learner, settings["rounds"], out, identity, checkpoint_seconds, kept)
        return run.train()
    except torch.OutOfMemoryError as error:
        raise OutOfMemoryError(
            f"{method} on {data.name}: the tables of all clients do not fit into the memory of {place}, or "
            f"another program holds it. Run fewer jobs on it at once, or use --device cpu. ({error})"
        ) from error
