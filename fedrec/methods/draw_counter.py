"""draw-counter: an item's score falls each time the user samples it as a training negative.

A reference without a model: it measures how far the protocol alone reveals the held-out item.
"""

import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.federation.clients import Clients
from fedrec.federation.learner import Learner, Report
from fedrec.federation.model.citation import Citation
from fedrec.federation.pairs import PairTable
from fedrec.methods._math.all_counts import AllCounts
from fedrec.random.purpose import Purpose

_DENSE_PAIRS = 1 << 27
"""Most pairs of client and item for a dense table (1 GiB); more are counted in a sparse one."""


class DrawCounter(Learner):
    """Counts each user's draws of training negatives."""

    logits = False
    paper: Citation | None = None
    cost = ""

    def __init__(self, clients: Clients, settings: Mapping[str, Any], seed: int) -> None:
        clients.check_pools(settings["negatives"])
        self.clients = clients
        self.settings = settings
        self.seed = seed
        table = AllCounts if len(clients) * clients.items <= _DENSE_PAIRS else PairTable
        self.drawn: AllCounts | PairTable = table(len(clients), clients.items, clients.device)

    def train_round(self, round_: int) -> Report:
        """Sample the negatives of the round as any method would, and count them."""
        start = time.perf_counter()
        everyone = self.clients.everyone
        samples = self.clients.samples(everyone, self.settings["negatives"], self.seed, round_)
        user = torch.repeat_interleave(everyone, samples.size)
        negative = samples.label == 0
        self.drawn.count(user[negative], samples.item[negative])
        return Report(0.0, len(everyone), 0, 0, time.perf_counter() - start, 0.0)

    @override
    def scores(self, who: Tensor, items: Tensor) -> Tensor:
        return -self.drawn.get(who.unsqueeze(1), items).to(torch.get_default_dtype())

    @override
    def tensors(self) -> dict[str, Tensor]:
        return {f"kept/drawn{suffix}": value for suffix, value in self.drawn.tensors().items()}

    @override
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self.drawn.load({name.removeprefix("kept/drawn"): value for name, value in tensors.items()})

    @override
    def negative_draws(self, round_: int) -> list[tuple[Tensor, Purpose]]:
        return [(self.clients.everyone, Purpose.NEGATIVES)]


METHOD = DrawCounter
