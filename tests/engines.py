"""The engines that are held to the plain loop, each in the ways it may be run."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from fedrec.errors import OutOfMemoryError
from fedrec.federation.engines.batched.engine import BatchedEngine
from fedrec.federation.engines.engine import Engine, Outcome, Task
from fedrec.federation.engines.fused.engine import FusedEngine
from fedrec.federation.engines.loop import LoopEngine
from fedrec.federation.model.method import Method
from fedrec.federation.state.sparse_rows import SparseRowsTensor
from fedrec.federation.state.state import DENSE_BYTES, State

GIB = 2**30


class SmallBlocks(Engine):
    """An engine, the batched one if none is named, in as little memory as its largest client needs, or up to
    twice that."""

    def __init__(self, kind: type[BatchedEngine] = BatchedEngine) -> None:
        self.kind = kind

    def run(self, task: Task) -> Outcome:
        memory = 1 << 12
        while True:
            try:
                return self.kind(memory).run(task)
            except OutOfMemoryError:
                memory *= 2


class TwoThreads(Engine):
    """The batched engine with two threads, where every other test has one."""

    def run(self, task: Task) -> Outcome:
        before = torch.get_num_threads()
        torch.set_num_threads(2)
        try:
            return BatchedEngine(GIB).run(task)
        finally:
            torch.set_num_threads(before)


@dataclass(frozen=True)
class HeldEngine:
    """An engine as tests run it; tables that clients keep are held as changed rows above `dense_bytes`."""

    make: Callable[[], Engine]
    dense_bytes: int = DENSE_BYTES

    def refusal(self, method: Method) -> str | None:
        """Why a method is not for it; None where it is."""
        state = State.of_method(method, clients=1, seed=0, device=torch.device("cpu"), dense_bytes=0)
        if self.dense_bytes == 0 and not any(
            isinstance(kept, SparseRowsTensor) for kept in state.client_tensors.values()
        ):
            return "no table is kept as rows"
        return None


LOOP = HeldEngine(LoopEngine)
"""The oracle."""

ENGINES = {
    "fused": HeldEngine(lambda: FusedEngine(GIB)),
    "batched": HeldEngine(lambda: BatchedEngine(GIB)),
    "blocks": HeldEngine(SmallBlocks),
    "rows": HeldEngine(lambda: BatchedEngine(GIB), dense_bytes=0),
    "threads": HeldEngine(TwoThreads),
}
"""What must equal the oracle, by name: a further engine is a further entry. Where any will do it is the first."""
