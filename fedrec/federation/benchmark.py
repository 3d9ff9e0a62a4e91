"""Rounds of local training: many clients at once against one after another, in one run."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from fedrec.federation.batched import BatchedEngine
from fedrec.federation.clients import Clients
from fedrec.federation.engine import Engine
from fedrec.federation.federation import Federation
from fedrec.federation.loop import LoopEngine

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
    share = float(sample.rows.sum() / clients.rows.sum())
    loop = make(sample, LoopEngine())
    one_by_one = [_seconds(loop, round_, clients.device) / share for round_ in range(1, rounds + 2)][1:]
    fast, slow = statistics.median(at_once), statistics.median(one_by_one)
    return {
        "clients": len(clients),
        "samples_per_round": int(clients.rows.sum()) * (1 + batched.settings["negatives"]),
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
