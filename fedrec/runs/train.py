"""A run by name: finds split, settings, device and engine, and trains."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fedrec.config.methods import canonical, load_methods, resolve
from fedrec.config.protocol import full_name
from fedrec.config.records import merged_records, spelled_records
from fedrec.data.split import Split, read_split
from fedrec.errors import OutOfMemoryError
from fedrec.federation.clients import Clients
from fedrec.federation.engines.engine import engine_named
from fedrec.federation.observe.recorder import Recorder
from fedrec.plan.fingerprint import check_code, run_fingerprint
from fedrec.plan.runs import papers_alike
from fedrec.runs.device import device_named, memory_for_clients
from fedrec.runs.registry import make_learner
from fedrec.runs.training import Training


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
    record: Sequence[str] = (),
) -> dict[str, Any]:
    """Train `method` with the settings of `paper` on the split of `protocol` in `data`; write to `out`.

    `record` tells what to record besides (see `fedrec.federation.observe.recorder`).
    """
    methods = load_methods(methods_file)
    method = canonical(methods, method)
    settings, sources, paper = resolve(methods, method, paper, data.name, changes)
    check_code(method, [setting for setting, source in sources.items() if source == "user"])
    split = read_split(data / full_name(protocol, paper))
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
        "code": run_fingerprint(method, chosen.name),
    }
    # Where the splits lie, and whose settings these are too, decides no number and does not identify the run.
    remarks = {
        "also_settings_of": _sharing(methods, method, paper, split, changes),
        "data": os.path.relpath(data, out),
    }
    try:
        recorder = Recorder.of(record, clients, settings["rounds"]) if record else None
        learner = make_learner(method, clients, settings, seed, chosen, recorder)
        records = tuple(spelled_records(merged_records(record)))
        rounds = settings["rounds"]
        return Training(clients, learner, rounds, out, identity, checkpoint_seconds, records, remarks).train()
    except torch.OutOfMemoryError as error:
        raise OutOfMemoryError(
            f"{method} on {data.name}: the tables of all clients do not fit into the memory of {place}, or "
            f"another program holds it. Run fewer jobs on it at once, or use --device cpu. ({error})"
        ) from error


def _sharing(
    methods: Mapping[str, Any], method: str, paper: str, split: Split, changes: Sequence[str]
) -> list[str]:
    """The other papers whose run this is too: same settings, under a protocol that is nobody's own."""
    if split.protocol.paper is not None:
        return []
    alike = papers_alike(methods, method, paper, split.dataset, changes)
    return [other for other in alike if other != paper]
