"""A learner whose divergence is a result: from the round on in which it diverges, it knows nothing.

A training that leaves the finite numbers is an error, for it says nothing about its method. In a search for
settings it says all there is to know about them. Such a run goes on to its last round without training, and
ranks every held-out item last; rounds before stay what they were.
"""

import math
import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.errors import DivergenceError
from fedrec.federation.learner import Learner, Report
from fedrec.plan.runs import DIVERGED
from fedrec.random.purpose import Purpose

_ROUND, _WHY = f"{DIVERGED}/round", f"{DIVERGED}/why"


class DivergenceTolerant(Learner):
    """Another learner, until it diverges."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self.logits = learner.logits
        self._since: int | None = None
        self._why = ""

    @override
    def train_round(self, round_: int) -> Report:
        if self._since is None:
            try:
                return self._learner.train_round(round_)
            except DivergenceError as error:
                self._since, self._why = round_, str(error)
                print(f"{error} From this round on, every held-out item is ranked last.", file=sys.stderr)
        return Report(math.nan, 0, 0, 0, 0.0, 0.0)

    @override
    def scores(self, who: Tensor, items: Tensor) -> Tensor:
        if self._since is None:
            return self._learner.scores(who, items)
        # No protocol ranks a target anything but last where scores are no numbers.
        return torch.full(items.shape, math.nan, device=items.device)

    @override
    def tensors(self) -> dict[str, Tensor]:
        if self._since is None:
            return self._learner.tensors()
        why = torch.tensor(list(self._why.encode()), dtype=torch.int32)
        return {**self._learner.tensors(), _ROUND: torch.tensor(self._since), _WHY: why}

    @override
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        own = {name: tensor for name, tensor in tensors.items() if name not in (_ROUND, _WHY)}
        self._learner.load(own)
        if _ROUND in tensors:
            self._since = int(tensors[_ROUND])
            self._why = bytes(tensors[_WHY].tolist()).decode()

    @override
    def notes(self, rounds: int) -> dict[str, Any]:
        if self._since is None:
            return self._learner.notes(rounds)
        # What else there would be to note is about a model of finite numbers.
        return {DIVERGED: {"round": self._since, "why": self._why}}

    @override
    def negative_draws(self, round_: int) -> list[tuple[Tensor, Purpose]]:
        return self._learner.negative_draws(round_)
