"""A learner whose divergence is a result.

By default a training that diverges is an error. In a search it is a result: it shows that the settings are
bad. Such a run continues to its last round without training, and ranks every held-out item last. Its earlier
rounds keep their numbers.
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
    """Wrap a learner; after its divergence, skip training and return NaN as every score."""

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
        # Every protocol ranks the target last if scores are NaN.
        return torch.full(items.shape, math.nan, device=items.device)

    @override
    def tensors(self) -> dict[str, Tensor]:
        if self._since is None:
            return self._learner.tensors()
        why = torch.tensor(list(self._why.encode()), dtype=torch.int32)
        return {**self._learner.tensors(), _ROUND: torch.tensor(self._since), _WHY: why}

    @override
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        state = {name: tensor for name, tensor in tensors.items() if name not in (_ROUND, _WHY)}
        self._learner.load(state)
        if _ROUND in tensors:
            self._since = int(tensors[_ROUND])
            self._why = bytes(tensors[_WHY].tolist()).decode()

    @override
    def notes(self, rounds: int) -> dict[str, Any]:
        if self._since is None:
            return self._learner.notes(rounds)
        # The learner's own notes describe a model with finite numbers.
        return {DIVERGED: {"round": self._since, "why": self._why}}

    @override
    def negative_draws(self, round_: int) -> list[tuple[Tensor, Purpose]]:
        return self._learner.negative_draws(round_)
