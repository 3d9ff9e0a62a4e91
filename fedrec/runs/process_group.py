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
"""How long another process is waited for that has not ended, as far as can be seen."""


@dataclass(frozen=True)
class ProcessGroup:
    """The number and the place of the processes that torchrun started for a run."""

    size: int = 1
    """How many processes train the run."""
    local_rank: int | None = None
    """The number of this process among those of its machine; None where it is the only one."""
    local_size: int = 1
    """How many there are on its machine."""

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """As the variables of torchrun say; without them, a process by itself."""
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
