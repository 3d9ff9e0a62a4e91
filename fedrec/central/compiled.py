"""Epochs as one compiled loop, for models whose losses read only a mini-batch's rows of each table.

The compiler treats such a model as a single client with all samples, and with tables of users and of items.
A row without a sample in a mini-batch takes Adam's steps when it is next read, to the same numbers.
"""

import logging
from typing import Any, cast

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.central.adam import Adam
from fedrec.central.method import CentralMethod
from fedrec.central.steps import EpochSamples, Steps
from fedrec.errors import NoCompilerError
from fedrec.federation.engines.fused.adam import SETTLED, lowest_root
from fedrec.federation.engines.fused.backend.loops import c_name
from fedrec.federation.engines.fused.compiling import (
    Compiled,
    compiled_fit,
    doubles,
    known_tables,
    power_of_two,
)
from fedrec.federation.engines.fused.ir.nodes import UnsupportedError
from fedrec.federation.loss_numbers import numbers_of
from fedrec.federation.model import Batch, Fit, Step, Values, Weights
from fedrec.native.kernel import Argument

logger = logging.getLogger(__name__)


class RowModel(CentralMethod):
    """A method whose loss reads only the rows of the mini-batch's users and items.

    A sample is one user and one item. A loss with `whole_rows` is not compiled, and the run notes it.
    """

    def derived(self, w: Weights) -> dict[str, Tensor]:  # noqa: ARG002 - there are none
        """The numbers derived from whole tables: none."""
        return {}

    def epoch(self) -> Fit:
        """An epoch as the fit of a client with all samples."""

        def loss(w: Weights, batch: Batch) -> Tensor:
            # The batch of the tracer also has users.
            users = cast(Any, batch).users
            return self.loss(cast(Values, w), users, batch.items, batch.labels)

        rates = dict.fromkeys(self.parameters(), self.settings["rate"])
        return Fit((Step(rates, "adam", keep_state=True),), epochs=1, loss=loss)

    @override
    def steps(self, w: Values, optimiser: Adam, device: torch.device) -> Steps:
        fit = self.epoch()
        try:
            made = compiled_fit(self, fit, device, self.settings["batch_size"])
        except (UnsupportedError, NoCompilerError) as error:
            logger.warning("%s: training is not compiled: %s", type(self).__name__.lower(), error)
            slower = super().steps(w, optimiser, device)
            slower.status = str(error)
            return slower
        return CompiledSteps(self, w, optimiser, made, fit)


class CompiledSteps(Steps):
    """Steps by a kernel that trains a whole epoch in one call."""

    status = "compiled"

    def __init__(self, method: RowModel, weights: Values, optimiser: Adam, made: Compiled, fit: Fit) -> None:
        batch_size = method.settings["batch_size"]
        super().__init__(optimiser.steps_of(method, weights), batch_size)
        self._optimiser = optimiser
        self._kernel, self._code, self._fit = made.kernel, made.code, fit
        self._users, self._items = method.users, method.items
        rows = max(self._users, self._items)
        self._scratch_bytes = -(-self._code.scratch.bytes(batch_size, rows) // 64) * 64

    @override
    def epoch(self, samples: EpochSamples) -> float:
        count = len(samples.user)
        steps = -(-count // self._batch_size)
        loss = torch.zeros(1, dtype=torch.float64, device=samples.user.device)
        self._kernel(1, **self._fixed(samples.user.device, steps), **self._of_epoch(samples), losses=loss)
        self._optimiser.advance(steps)
        return float(loss)

    def _of_epoch(self, samples: EpochSamples) -> dict[str, Argument]:
        """The kernel's arguments that describe the samples."""
        count, device = len(samples.user), samples.user.device
        return {
            "sample_start": torch.tensor([0, count], device=device),
            "slots": samples.item.int(),
            "user_slots": samples.user.int(),
            "all_labels": samples.label.contiguous(),
            "order": torch.arange(count, dtype=torch.int32, device=device),
            "sample_count": count,
        }

    def _fixed(self, device: torch.device, steps: int) -> dict[str, Argument]:
        """The kernel's other arguments for an epoch of `steps`."""
        real, optimiser = torch.get_default_dtype(), self._optimiser
        nothing = torch.zeros(1, device=device)
        longest = power_of_two(SETTLED + steps)
        arguments: dict[str, Argument] = {
            "row_start": torch.tensor([0, self._items], device=device),
            "user_rows": self._users,
            "positives": nothing, "positive_start": nothing,
            "all_interactions": nothing, "all_held": nothing,
            "constants": doubles(self._code.constants, device),
            "numbers": doubles(tuple(numbers_of(self._fit.loss)), device),
            "rates": doubles((optimiser.rate, 0.0) * len(optimiser.values), device),
            "steps_before": torch.tensor([min(optimiser.taken, SETTLED)], dtype=real, device=device),
            "totals": nothing.double(), "means": nothing.double(),
            "steps_done": nothing.int(), "stopped": nothing.int(),
            "epochs": 1, "batch": self._batch_size, "fresh": False,
            "scratch_bytes": self._scratch_bytes, "most_rows": 0, "rows_apart": True,
            "stops": False, "early_stop": 0.0, "lowest_root": lowest_root(real),
            "scratch": torch.empty(self._scratch_bytes, dtype=torch.uint8, device=device),
            **known_tables(power_of_two(steps), longest, 1.0, device, real),
        }  # fmt: skip
        for name, value in optimiser.values.items():
            arguments[f"all_{c_name(name)}"] = value.detach()
            for part, moment in zip(("first", "second"), optimiser.moments(name), strict=True):
                arguments[f"all_{part}0_{c_name(name)}"] = moment
        return arguments
