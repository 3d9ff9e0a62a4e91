"""The process group of a run: this process alone, or the ranks that `torchrun` started."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Self

import torch
from torch import distributed

from fedrec.errors import ConfigurationError
from fedrec.federation.collectives import SINGLE, Communicator, DistributedCommunicator, peer_errors

_PATIENCE = timedelta(hours=1)
"""Timeout for waiting for another process of the group."""


@dataclass(frozen=True)
class ProcessGroup:
    """The size of the process group that torchrun started for a run, and this process's rank."""

    size: int = 1
    """The number of processes that train the run."""
    local_rank: int | None = None
    """The rank of this process on its machine; None if it is the only process."""
    local_size: int = 1
    """The number of processes on this machine."""

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Read the environment variables of torchrun; without them, a group of one process."""
        size = int(environment.get("WORLD_SIZE", "1"))
        if size == 1:
            return cls()
        try:
            return cls(size, int(environment["LOCAL_RANK"]), int(environment["LOCAL_WORLD_SIZE"]))
        except KeyError as missing:
            raise ConfigurationError(
                f"WORLD_SIZE={size} is set, but {missing.args[0]} is not. Start several processes with "
                "torchrun, or unset WORLD_SIZE."
            ) from None

    @contextmanager
    def communicator(self, device: torch.device) -> Iterator[Communicator]:
        """Connect the processes of the run: by NCCL if each has a GPU, else by Gloo."""
        if self.size == 1:
            yield SINGLE
            return
        own_gpu = device.type == "cuda" and self.local_size <= torch.cuda.device_count()
        if device.type == "cuda":
            torch.cuda.set_device(device)
        with peer_errors():
            distributed.init_process_group("cpu:gloo,cuda:nccl" if own_gpu else "gloo", timeout=_PATIENCE)
        yield DistributedCommunicator(device if own_gpu else torch.device("cpu"))
        # Where training fails it ends with the process: nobody is there to answer a goodbye.
        distributed.destroy_process_group()
