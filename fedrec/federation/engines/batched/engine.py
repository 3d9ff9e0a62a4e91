"""The engine that trains many clients at once, in plain torch, on CPU or GPU, block by block."""

import logging
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.errors import OutOfMemoryError
from fedrec.federation.draws import shuffled
from fedrec.federation.engines.batched.block import Block
from fedrec.federation.engines.batched.block_layout import BlockLayout, ClientSlice
from fedrec.federation.engines.batched.memory import blocks
from fedrec.federation.engines.batched.optimiser import BlockOptimiser
from fedrec.federation.engines.batched.replay import Replay, Rewritten, Scaled, Uploaded
from fedrec.federation.engines.batched.schedule import Schedule
from fedrec.federation.engines.batched.tables import BlockWeights
from fedrec.federation.engines.batched.upload_and_store import upload_and_store
from fedrec.federation.engines.engine import Engine, Interpreter, Outcome, Task
from fedrec.federation.model.client import Fit, Half, Rewrite, TableRewrite, Upload
from fedrec.federation.model.tables import sampled

logger = logging.getLogger(__name__)


class BlockRound(Interpreter):
    """Interpreter of a program for a block of clients. It sends and stores nothing."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.replay = Replay(block)
        self.weights = BlockWeights(block, self.replay)
        self._schedules: dict[Half | None, Schedule] = {}

    @override
    def fit(self, fit: Fit) -> None:
        """Train. Clients that stop early train on with the others; then their values are restored."""
        self.copy_uploaded_values()
        block, schedule = self.block, self._schedule(fit.samples)
        optimisers = [BlockOptimiser(self.weights, step, schedule) for step in fit.steps]
        # The optimisers change factors in place.
        factor_before = block.factor
        block.factor = {name: factor.clone() for name, factor in factor_before.items()}
        done = torch.zeros(len(block), dtype=torch.bool, device=block.device)
        finished: dict[str, Tensor] = {}
        total = torch.zeros(len(block), dtype=torch.float64, device=block.device)
        before = None
        for epoch in range(1, fit.epochs + 1):
            epoch_loss = self._epoch(fit, schedule, optimisers)
            block.last_loss = torch.where(done, block.last_loss, epoch_loss / schedule.batches)
            if fit.early_stop is None:
                continue
            total += epoch_loss
            running = total / (epoch * schedule.batches)
            if before is not None:
                stops = ((running - before).abs() < fit.early_stop * (before + 1e-5)) & ~done
                self._save_stopped(stops, finished)
                done |= stops
            before = running
        self._restore_stopped(done, finished)
        for optimiser in optimisers:
            optimiser.store()
        for name, before_fit in factor_before.items():
            factor = block.factor[name]
            if torch.equal(factor, before_fit):
                block.factor[name] = before_fit
            else:
                block.scaled.add(name)
                self.replay.events.append(Scaled(name, factor / before_fit))

    def _epoch(self, fit: Fit, schedule: Schedule, optimisers: list[BlockOptimiser]) -> Tensor:
        """Train one epoch; return the sum of each client's losses."""
        epoch_loss = torch.zeros_like(self.block.last_loss)
        self.weights.derive()
        for batch in schedule.epoch(self._order(schedule)):
            for optimiser in optimisers:
                value = optimiser.step(optimiser.rule.loss or fit.loss, batch)
            epoch_loss[: len(value)] += value
        return epoch_loss

    @override
    def rewrite(self, rewrite: Rewrite) -> None:
        self.copy_uploaded_values()
        block, name, rows = self.block, rewrite.name, rewrite.rows
        if isinstance(rows, TableRewrite):
            tables = block.values[name].unflatten(0, (len(block), -1))
            block.values[name] = rows.of_many(tables, block.task.state.shared).flatten(0, 1)
            return
        self.weights.derive()
        others = {key: value.clone() for key, value in self.weights.others(len(block)).items()}
        self.replay.events.append(Rewritten(name, rows, others))
        self.weights.invalidate(name)
        weights = self.weights.of(len(block), {})
        counts = torch.bincount(block.row_client, minlength=len(block))
        first = counts.cumsum(0) - counts
        column = torch.arange(int(counts.max()), device=block.device)
        inside = column < counts.unsqueeze(1)
        slots = first.unsqueeze(1) + torch.where(inside, column, 0)
        with torch.no_grad():
            block.values[name] = rows(weights, sampled(slots))[inside]

    @override
    def upload(self, upload: Upload) -> None:
        block, name = self.block, upload.name
        factor = block.factor[name] if block.parameter(name).table else None
        self.replay.events.append(Uploaded(name, upload.into, block.values[name], factor, upload.transform))

    def copy_uploaded_values(self) -> None:
        """Replace uploaded values by copies, so that training leaves the uploads unchanged."""
        block = self.block
        for event in self.replay.events:
            if isinstance(event, Uploaded) and event.values is block.values[event.name]:
                block.values[event.name] = event.values.clone()

    def _schedule(self, half: Half | None) -> Schedule:
        """The mini-batches of all samples, or of a half of each client's training interactions."""
        if half not in self._schedules:
            chosen = self.chosen_samples(half)
            self._schedules[half] = Schedule(
                *chosen, self.block.row_end, self.block.task.batch_size, partial(self.block.past_of, half)
            )
        return self._schedules[half]

    def chosen_samples(self, half: Half | None) -> tuple[Tensor, Tensor, Tensor]:
        """All samples, or those of a half: each client's number, the samples' active rows and labels."""
        block = self.block
        size, slot, labels = block.size, block.slot, block.labels
        if half is None:
            return size, slot, labels
        chosen = block.samples_of_half(half)
        return torch.bincount(block.rank[chosen], minlength=len(size)), slot[chosen], labels[chosen]

    def _order(self, schedule: Schedule) -> Tensor:
        """The order of an epoch's samples."""
        block, task = self.block, self.block.task
        order = shuffled(block.global_index, schedule.size, task.seed, task.round_, block.epochs_done)
        block.epochs_done += 1
        return order

    def _save_stopped(self, stops: Tensor, finished: dict[str, Tensor]) -> None:
        """Save the values of clients that stop now; `_restore_stopped` discards what they compute later."""
        if not stops.any():
            return
        for key, value, rows in self.block.trained_values():
            mask = stops[self.block.row_client] if rows else stops
            if key not in finished:
                finished[key] = value.clone()
            finished[key][mask] = value[mask]

    def _restore_stopped(self, done: Tensor, finished: dict[str, Tensor]) -> None:
        """Restore the saved values of the clients that stopped early."""
        for key, value, rows in self.block.trained_values():
            if key in finished:
                mask = done[self.block.row_client] if rows else done
                value[mask] = finished[key][mask]


class BatchedEngine(Engine):
    """Trains clients in blocks that fit into `memory` bytes; a single client may take `alone` bytes."""

    name = "batched"

    def __init__(self, memory: int, alone: int = 0) -> None:
        self.memory = memory
        self.alone = alone
        self._everyone: tuple[Any, list[ClientSlice]] | None = None
        """Cache of the blocks of all clients, with its key."""
        self._only: tuple[ClientSlice, BlockLayout] | None = None
        """Cache of the layout, if one block has all clients."""

    @override
    def run(self, task: Task) -> Outcome:
        loss = torch.empty(len(task.who), device=task.who.device)
        waiting = list(self._slices(task))
        while waiting:
            client_slice = waiting.pop(0)
            try:
                layout = self._layout(task, client_slice)
                block = Block(task, layout)
                round_ = self.make_round(block)
                round_.run(task.program)
            except torch.OutOfMemoryError as error:
                # Nothing was sent or stored yet, so the same clients can train again in two halves.
                if len(client_slice.clients) == 1:
                    who = int(task.clients.user[task.who[int(client_slice.clients[0])]])
                    raise OutOfMemoryError(
                        f"round {task.round_}: client {who} alone does not fit into the memory of the "
                        f"device. Lower batch_size or d. ({error})"
                    ) from error
                logger.warning(
                    "round %s: %s clients do not fit into memory together; fedrec trains them in two halves",
                    task.round_,
                    len(client_slice.clients),
                )
                self.memory //= 2
                waiting[:0] = client_slice.halves()
                continue
            if waiting:
                block.check(block.last_loss.mean())
            upload_and_store(block, round_.replay)
            loss.index_copy_(0, layout.chosen, block.last_loss)
        return Outcome(loss, lambda: block.check(loss.mean()))

    def _layout(self, task: Task, client_slice: ClientSlice) -> BlockLayout:
        """The layout of a block, cached over rounds if the block has all clients."""
        if self._only is not None and self._only[0] is client_slice:
            return self._only[1]
        layout = BlockLayout(task, client_slice)
        all_slices = [] if self._everyone is None else self._everyone[1]
        if len(all_slices) == 1 and all_slices[0] is client_slice:
            self._only = (client_slice, layout)
        return layout

    def _slices(self, task: Task) -> list[ClientSlice]:
        """The clients of each block, cached over rounds if all clients train."""
        if task.who is not task.clients.everyone:
            return self._new_slices(task)
        key = (task.who, task.samples.group, task.batch_size, task.needs, self.memory, self.alone)
        if self._everyone is None or not all(map(_is_same, self._everyone[0], key)):
            self._everyone, self._only = (key, self._new_slices(task)), None
        return self._everyone[1]

    def _new_slices(self, task: Task) -> list[ClientSlice]:
        sizes = task.samples.size.cpu()
        # A stable sort: equal numbers of samples keep the order of clients.
        order = torch.argsort(sizes, descending=True, stable=True)
        return [
            ClientSlice(clients, sizes[clients]) for clients in self.split_into_blocks(task, sizes, order)
        ]

    def split_into_blocks(self, task: Task, sizes: Tensor, order: Tensor) -> Iterator[Tensor]:
        """The clients of each block, given their numbers of samples and their order, most samples first."""
        return blocks(task, sizes, order, self.memory, self.alone)

    def make_round(self, block: Block) -> BlockRound:
        """The interpreter of a program for one block."""
        return BlockRound(block)


def _is_same(known: object, asked: object) -> bool:
    return known is asked or (not isinstance(known, Tensor) and known == asked)


def make(memory: int, alone: int) -> Engine:
    """The engine for clients that may take `memory` bytes together; one that needs more may take `alone`."""
    return BatchedEngine(memory, alone)
