"""The device a run trains on, and how much of its memory clients may fill."""

import os

import torch

from fedrec.errors import ConfigurationError


def device_named(name: str) -> torch.device:
    """The CPU, or of several GPUs the one with the most free memory: runs spread over them."""
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ConfigurationError("--device cuda: torch finds no GPU here. Use --device cpu, or auto.")
    free = [torch.cuda.mem_get_info(number)[0] for number in range(torch.cuda.device_count())]
    return torch.device("cuda", free.index(max(free)))


def memory_for_clients(device: torch.device, gib: float | None) -> int:
    """Bytes for clients in training: what is asked for, or half of what is free."""
    if gib is not None:
        return int(gib * 2**30)
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] // 2
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES") // 2
