"""The engine that trains each client by one compiled kernel, which is generated from the method's loss.

The module reads a block of clients and a program of fits, and changes the block's parameters. The batched
engine does the rest of a round: it chooses the rows in memory, uploads and stores. It also trains the fits
that cannot be compiled, and this module records the reason.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.errors import FederationError, NoCompilerError
from fedrec.federation.draw_kernels import Sizes
from fedrec.federation.draws import orders
from fedrec.federation.engines.batched.block import Block
from fedrec.federation.engines.batched.engine import BatchedEngine, BlockRound
from fedrec.federation.engines.batched.memory import fitting_blocks
from fedrec.federation.engines.batched.replay import Scaled
from fedrec.federation.engines.engine import Engine, Task
from fedrec.federation.engines.fused.adam import lowest_root
from fedrec.federation.engines.fused.backend.loops import c_name
from fedrec.federation.engines.fused.compiling import (
    Compiled,
    compiled_fit,
    doubles,
    known_tables,
    name_of,
    power_of_two,
    shrinking,
)
from fedrec.federation.engines.fused.ir.nodes import UnsupportedError
from fedrec.federation.engines.fused.kernel.fit_parts import with_moved
from fedrec.federation.loss_key import LossKeys
from fedrec.federation.loss_numbers import numbers_of
from fedrec.federation.model.client import Fit, Half, Step
from fedrec.federation.model.method import Method
from fedrec.native.kernel import Argument

logger = logging.getLogger(__name__)

_MOST_FITS = 64
"""The most compiled fits in memory: a loss with other literals in every round is compiled in every round."""


class Compiler:
    """Compiles each fit of a run once, and records the reason if that fails."""

    def __init__(self) -> None:
        self._compiled: dict[Any, Compiled | str] = {}
        """The compiled fit, or the reason why there is none, by fit, device, precision and mini-batch."""
        self._keys = LossKeys()
        """The keys of losses: two losses with one key have the same code."""
        self.soon = self.failed = False
        """`soon`: whether to compile faster, to slower kernels. `failed`: whether a compiler was missing or
        failed."""
        self.status: dict[str, str] = {}
        """By the names of the parameters that a fit trains: `compiled`, or the reason why it is not."""

    def of(self, method: Method, fit: Fit, device: torch.device, batch: int) -> Compiled | None:
        """The compiled fit; None if the batched engine must train it."""
        beside = (device.type, torch.get_default_dtype(), batch)
        for numbers in (False, True):
            key = (self._fit_key(fit, numbers=numbers), *beside)
            if key in self._compiled:
                break
        else:
            made = self._made(method, fit, device, batch)
            lifted = isinstance(made, Compiled) and made.code.lifted
            key = (self._fit_key(fit, numbers=not lifted), *beside)
            if len(self._compiled) >= _MOST_FITS:
                del self._compiled[next(iter(self._compiled))]
            self._compiled[key] = made
        found = self._compiled[key]
        return None if isinstance(found, str) else found

    def _made(self, method: Method, fit: Fit, device: torch.device, batch: int) -> Compiled | str:
        label = " then ".join(", ".join(step.rates) for step in fit.steps)
        try:
            made = compiled_fit(method, fit, device, batch, soon=self.soon)
        except UnsupportedError as error:
            return self._left(method, label, str(error))
        except NoCompilerError as error:
            self.failed = True
            return self._left(method, label, str(error))
        self.status[label] = "compiled"
        return made

    def _left(self, method: Method, label: str, reason: str) -> str:
        """Record and return the reason why the batched engine trains a fit; log it once."""
        if label not in self.status and not self.soon:
            logger.warning(
                "%s: training of %s is not compiled: %s",
                name_of(method),
                label,
                reason.partition("; install one")[0],
            )
        self.status[label] = reason
        return reason

    def _fit_key(self, fit: Fit, *, numbers: bool) -> Any:  # noqa: ANN401 - nested tuples
        return tuple(
            (
                tuple(step.rates),
                step.optimiser,
                tuple(name for name, decay in step.weight_decay.items() if decay),
                step.batch_decay == 1,
                bool(step.gradient_noise),
                step.keep_state,
                self._keys.of(step.loss or fit.loss, numbers=numbers),
            )
            for step in fit.steps
        )


class FusedRound(BlockRound):
    """A round of a block of clients whose fits run as kernels where they compile."""

    def __init__(self, block: Block, compiler: Compiler) -> None:
        super().__init__(block)
        self._compiler = compiler
        """The compiler of the run."""
        self._sampled: dict[Half, _Sampled] = {}
        """The chosen samples of each half, once they are known."""

    @override
    def fit(self, fit: Fit) -> None:
        block = self.block
        made = self._compiler.of(block.task.method, fit, block.device, block.task.batch_size)
        if made is None or not self._counts_agree(with_moved(fit, made.code.moved)):
            super().fit(fit)
            return
        if "whole" in made.code.parts and not block.task.needs.whole_tables:
            raise FederationError(
                "a loss of the program reads a whole table, but read none when fedrec first traced it. "
                "Whether a loss reads whole tables must not depend on a number that changes between rounds."
            )
        self.copy_uploaded_values()
        sampled = self._samples(fit.samples)
        # A GPU shuffles while the CPU prepares the other arguments.
        order = self._orders(sampled, fit.epochs)
        launch = Launch(self, made, fit, sampled)
        together = not made.code.derived
        for part in [order] if together else order.split(1):
            if not together:
                self.weights.derive()
            launch.train(part)
        launch.finish()

    def _counts_agree(self, fit: Fit) -> bool:
        """Whether all parameters with kept moments have done equally many steps: a kernel has one counter."""
        kept = [
            self.block.task.state.moments(name)[2][self.block.who]
            for step in fit.steps
            if step.optimiser == "adam" and step.keep_state
            for name in step.rates
        ]
        return all(torch.equal(kept[0], count) for count in kept[1:])

    def _samples(self, half: Half | None) -> "_Sampled":
        block = self.block
        if half is None:
            return _Sampled(block.size, block.layout.start, block.own_slot, block.labels)
        if half not in self._sampled:
            size, slot, labels = self.chosen_samples(half)
            starts = torch.nn.functional.pad(size.cumsum(0), (1, 0))
            clients = torch.arange(len(size), device=block.device)
            owner = torch.repeat_interleave(clients, size, output_size=len(slot))
            own = (slot - block.row_start[owner]).int()
            self._sampled[half] = _Sampled(size, starts, own, labels)
        return self._sampled[half]

    def _orders(self, sampled: "_Sampled", epochs: int) -> Tensor:
        """The order of samples in each epoch: (epochs, samples)."""
        block, task = self.block, self.block.task
        first = block.epochs_done
        block.epochs_done += epochs
        known = Sizes(sampled.starts[:-1], len(sampled.slots), block.layout.most)
        return orders(block.global_index, sampled.size, task.seed, task.round_, first, epochs, known=known)


@dataclass(frozen=True)
class _Sampled:
    """The samples of a block's clients, one client after the other."""

    size: Tensor
    """The number of samples of each client, `(clients,)`."""
    starts: Tensor
    """The first sample of each client, and the end of the last one, `(clients + 1,)`."""
    slots: Tensor
    """The row of each sample, counted from the client's first row, `(samples,)`."""
    labels: Tensor
    """The label of each sample, `(samples,)`."""


class Launch:
    """A compiled fit on a block of clients: it gives arguments to the kernel and stores the results."""

    def __init__(self, round_: FusedRound, made: Compiled, fit: Fit, sampled: _Sampled) -> None:
        self.block = round_.block
        self.round = round_
        self.code, self.kernel, self.sampled = made.code, made.kernel, sampled
        """The compiled fit, and the samples that it trains on."""
        self.fit = with_moved(fit, made.code.moved)
        """The fit, with only the parameters that its steps change."""
        block = self.block
        clients, device = len(block), block.device
        self.factor_before = dict(block.factor)
        """The factor of each table's rows not held, before the fit."""
        self.losses = block.last_loss.double()
        """The mean loss of each client in its last epoch, `(clients,)`."""
        self.totals, self.means = torch.zeros((2, clients), dtype=torch.float64, device=device)
        """For early stopping, the sum of losses so far and the last mean of each client, `(clients,)`."""
        self.done, self.stopped = torch.zeros((2, clients), dtype=torch.int32, device=device)
        """The mini-batches done by each client, and whether it has stopped early, `(clients,)`."""
        self.launched = False
        """Whether the kernel has run for this fit before."""
        self.most_rows = block.most_rows
        """The largest number of rows of a client."""
        self.workers = self.kernel.workers(clients)
        """The number of clients that train at the same time, each with its own scratch memory."""
        self.keeps = any(step.optimiser == "adam" and step.keep_state for step in self.fit.steps)
        """Whether a step keeps its moments from round to round."""
        self.apart = bool(self.code.derived) or self.keeps or device.type == "cuda"
        """Whether each client has its own memory for moments of rows; otherwise each worker has."""
        for step in fit.steps if self.keeps else ():
            for name in step.rates if step.keep_state else ():
                # A parameter that the loss does not use has stored moments, too. They stay as they are.
                block.task.state.moments(name)
        self.moments = self._moments()
        """The arguments with the moments of Adam."""
        self.schedule = self._schedule()
        """The arguments that the kernel reads by mini-batch."""

    def train(self, order: Tensor) -> None:
        """Train one epoch for each row of `order`, `(epochs, samples)`."""
        block, code, sampled = self.block, self.code, self.sampled
        scratch_bytes = code.scratch.bytes(block.task.batch_size, self.most_rows)
        scratch_bytes = -(-scratch_bytes // 64) * 64
        arguments: dict[str, Argument] = {
            "sample_start": sampled.starts, "row_start": block.row_start, "slots": sampled.slots,
            "order": order.contiguous(), "all_labels": sampled.labels,
            "constants": doubles(code.constants, block.device),
            "rates": doubles(tuple(self._rates()), block.device),
            "numbers": doubles(tuple(self._numbers()), block.device),
            "losses": self.losses, "totals": self.totals, "means": self.means,
            "steps_done": self.done, "stopped": self.stopped,
            "epochs": len(order), "sample_count": order.shape[1], "batch": block.task.batch_size,
            "fresh": not (self.launched or self.keeps), "scratch_bytes": scratch_bytes,
            "most_rows": self.most_rows, "rows_apart": self.apart,
            "stops": self.fit.early_stop is not None, "early_stop": self.fit.early_stop or 0.0,
            "lowest_root": lowest_root(torch.get_default_dtype()),
            "scratch": torch.empty(self.workers * scratch_bytes, dtype=torch.uint8, device=block.device),
            **self.schedule, **self.moments, **self._values(), **self._client_numbers(),
        }  # fmt: skip
        self.kernel(len(block), **arguments)
        self.launched = True
        self._scale()

    def finish(self) -> None:
        """Store the kernel's results: losses, moments that outlast the round, factors of rows not held."""
        block = self.block
        block.last_loss = self.losses.to(block.last_loss.dtype)
        if self.keeps:
            self._store_moments()
        for name, factor in block.factor.items():
            if factor is not self.factor_before[name]:
                block.scaled.add(name)
                self.round.replay.events.append(Scaled(name, factor / self.factor_before[name]))

    def _values(self) -> dict[str, Argument]:
        block, code = self.block, self.code
        for name in (*code.tables, *code.vectors):
            block.values[name] = block.values[name].contiguous()
        values: dict[str, Argument] = {
            f"all_{c_name(name)}": block.values[name] for name in (*code.tables, *code.vectors)
        }
        for name, width in code.derived.items():
            each = block.derived[name].reshape(-1, width)
            values[f"all_derived_{c_name(name)}"] = each.expand(len(block), width).contiguous()
        return values

    def _client_numbers(self) -> dict[str, Argument]:
        """The arguments with numbers of each client that are no parameters."""
        block, parts = self.block, self.code.parts
        nothing = _nothing(block.device)
        numbers: dict[str, Argument] = dict.fromkeys(("all_interactions", "all_held"), nothing)
        asked = parts & {"interactions", "held"}
        others = self.round.weights.others(len(block)) if asked else {}
        numbers |= {f"all_{part}": others[part].reshape(-1).contiguous() for part in asked}
        if "training_sum" in parts:
            positive = block.labels == 1
            counts = torch.bincount(block.rank[positive], minlength=len(block))
            zero = torch.zeros(1, dtype=torch.int64, device=block.device)
            numbers["positives"] = block.own_slot[positive]
            numbers["positive_start"] = torch.cat((zero, counts.cumsum(0)))
        else:
            numbers |= {"positives": nothing, "positive_start": nothing}
        return numbers

    def _numbers(self) -> list[float]:
        return [number for step in self.fit.steps for number in numbers_of(step.loss or self.fit.loss)]

    def _rates(self) -> list[float]:
        return [
            value
            for step in self.fit.steps
            for name, rate in step.rates.items()
            for value in (rate, step.weight_decay.get(name, 0.0))
        ]

    def _schedule(self) -> dict[str, Tensor]:
        """The arguments that a kernel reads by mini-batch: factors of rates and Adam's corrections."""
        block = self.block
        batches = -(-block.layout.most // block.task.batch_size)
        self.most_steps = self.fit.epochs * batches
        before = self._steps_before()
        longest = self.most_steps + (int(before.max()) if self.keeps else 0)
        # All steps of a fit shrink their rates by one factor, or not at all.
        decay = min(step.batch_decay for step in self.fit.steps)
        bounds = power_of_two(self.most_steps), power_of_two(longest)
        tables = known_tables(*bounds, decay, block.device, torch.get_default_dtype())
        return {"steps_before": before, **tables}

    def _steps_before(self) -> Tensor:
        block = self.block
        if not self.keeps:
            return _nothing(block.device)
        adaptive = (step for step in self.fit.steps if step.optimiser == "adam" and step.keep_state)
        kept = next(name for step in adaptive for name in step.rates)
        return block.task.state.moments(kept)[2][block.who]

    def _moments(self) -> dict[str, Tensor]:
        block = self.block
        moments: dict[str, Tensor] = {}
        for number, name in self.code.adam:
            value = block.values[name]
            kept = self.fit.steps[number].keep_state
            for place, part in enumerate(("first", "second")):
                if kept:
                    made = block.task.state.moments(name)[place][block.who].reshape(value.shape).contiguous()
                elif self.keeps:
                    made = torch.zeros_like(value)
                elif block.parameter(name).table and not self.apart:
                    made = value.new_empty(self.workers * self.most_rows, value.shape[1])
                else:
                    made = torch.empty_like(value)
                moments[f"all_{part}{number}_{c_name(name)}"] = made
        return moments

    def _store_moments(self) -> None:
        block = self.block
        for number, name in self.code.adam:
            if not self.fit.steps[number].keep_state:
                continue
            shape = block.parameter(name).shape
            first, second, steps = block.task.state.moments(name)
            for kept, part in ((first, "first"), (second, "second")):
                made = self.moments[f"all_{part}{number}_{c_name(name)}"]
                kept[block.who] = made.reshape(-1, *shape)
            steps[block.who] += self.done.to(steps.dtype)

    def _scale(self) -> None:
        """Multiply the factor of each table's rows not held by the weight decay of the steps done."""
        block, done = self.block, None
        for name in block.factor:
            decays = [(step, decay) for step in self.fit.steps if (decay := _decay_of(step, name))]
            if decays:
                factor, done = self.factor_before[name], self.done.long() if done is None else done
                for step, decay in decays:
                    factor = factor * _left(self.most_steps, decay, step.batch_decay, block.device)[done]
                block.factor[name] = factor


def _decay_of(step: Step, name: str) -> float:
    """The share by which a step shrinks the rows of a table that are not held; 0 for Adam."""
    if step.optimiser != "sgd" or name not in step.rates:
        return 0.0
    return step.rates[name] * step.weight_decay.get(name, 0.0)


@lru_cache(maxsize=16)
def _left(steps: int, decay: float, batch_decay: float, device: torch.device) -> Tensor:
    """The factor of a number after each mini-batch of weight decay, `(steps + 1,)`; the first entry is 1."""
    each = 1 - decay * shrinking(steps, batch_decay)
    each[0] = 1.0
    return each.cumprod(0).to(device, non_blocking=True)


@cache
def _nothing(device: torch.device) -> Tensor:
    """The argument for a parameter of a kernel that the kernel does not read."""
    return torch.zeros(1, device=device)


class FusedEngine(BatchedEngine):
    """The batched engine with compiled fits."""

    name = "fused"

    def __init__(self, memory: int, alone: int = 0) -> None:
        super().__init__(memory, alone)
        self.compiler = Compiler()

    @property
    @override
    def lacks_compiler(self) -> bool:
        return self.compiler.failed

    @override
    def split_into_blocks(self, task: Task, sizes: Tensor, order: Tensor) -> Iterator[Tensor]:
        # The time of a client does not depend on the other clients of its block.
        return fitting_blocks(task, sizes, order, [len(order)], self.memory, self.alone)

    @override
    def make_round(self, block: Block) -> BlockRound:
        self.compiler.soon = self.quick_compile
        return FusedRound(block, self.compiler)

    @override
    def notes(self) -> dict[str, Any]:
        return {"training": dict(sorted(self.compiler.status.items()))}


def make(memory: int, alone: int) -> Engine:
    """The engine, for clients that may take `memory` bytes together, and one that needs more `alone`."""
    return FusedEngine(memory, alone)
