"""The reference engine: one client after another, with plain torch.optim and whole tables.

It is slow on purpose. Other engines must train to its numbers. Debug with it: its errors name the client.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import cast

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.errors import FedrecError
from fedrec.federation.draws import halves, shuffled
from fedrec.federation.engines.engine import (
    NOISE_STEPS,
    Engine,
    Interpreter,
    Outcome,
    Task,
    check_clients_finite,
)
from fedrec.federation.model.client import Fit, Half, Rewrite, Step, TableRewrite, Upload
from fedrec.federation.model.history import Past, no_history
from fedrec.federation.model.tables import LazyValues, PlainBatch, PlainTable, Values, sampled
from fedrec.federation.model.weights import Loss, Weights
from fedrec.federation.privacy.noise import gaussian


class LoopClient(Interpreter):
    """One client in one round."""

    def __init__(self, task: Task, index: int) -> None:
        self.task = task
        self.who = task.who[index : index + 1]
        self.global_index = task.clients.global_index(self.who)
        """Index of the client among the clients of all processes; random draws use it."""
        end = int(task.samples.size[: index + 1].sum())
        own = slice(end - int(task.samples.size[index]), end)
        self.items, self.labels = task.samples.item[own], task.samples.label[own]
        self.weights: dict[str, Tensor] = LazyValues(self._downloaded)
        """Its parameters by name; a table is looked up at first use."""
        for name in task.state.visible:
            if not task.state.parameters[name].table:
                self.weights[name] = self._downloaded(name)
        self.derived: dict[str, Tensor] = {}
        self.epochs_done = 0
        self.last_loss = torch.tensor(task.no_loss, device=self.who.device)

    def keep(self) -> None:
        """Store the parameters that stay on the client."""
        for name, kept in self.task.state.client_tensors.items():
            untouched = name not in self.weights and self.task.starts_from_own_copy(name)
            if not untouched and self.task.state.parameters[name].location != "personal":
                kept.put(self.who, self.weights[name].detach().unsqueeze(0))

    @override
    def fit(self, fit: Fit) -> None:
        steps = fit.steps
        trained = {name: self.weights[name].requires_grad_() for step in steps for name in step.rates}
        optimisers = [self._optimiser(step) for step in steps]
        decays = [
            torch.optim.lr_scheduler.ExponentialLR(optimiser, step.batch_decay)
            for optimiser, step in zip(optimisers, steps, strict=True)
        ]
        total, count, before = 0.0, 0, None
        first_epoch = self.epochs_done
        for _ in range(fit.epochs):
            losses = []
            self._derive()
            for number, batch in enumerate(self._batches(fit.samples)):
                for step, optimiser, decay in zip(steps, optimisers, decays, strict=True):
                    optimiser.zero_grad()
                    loss = step.loss or fit.loss
                    value = loss(self._view(), batch)
                    value.backward()
                    self._guard(step, loss, batch, number)
                    optimiser.step()
                    decay.step()
                losses.append(value.detach())
            self.last_loss = torch.stack(losses).mean()
            total, count = total + float(torch.stack(losses).sum()), count + len(losses)
            running = total / count
            if (
                fit.early_stop is not None
                and before is not None
                and abs(running - before) < fit.early_stop * (before + 1e-5)
            ):
                break
            before = running
        # The number of a later epoch, which decides its shuffle, does not depend on an early stop.
        self.epochs_done = first_epoch + fit.epochs
        for step, optimiser in zip(steps, optimisers, strict=True):
            self._store(step, optimiser)
        for name in trained:
            self.weights[name] = self.weights[name].detach()

    @override
    def rewrite(self, rewrite: Rewrite) -> None:
        name, rows = rewrite.name, rewrite.rows
        if isinstance(rows, TableRewrite):
            self.weights[name] = rows.of_one(self.weights[name], self.task.state.shared)
            return
        self._derive()
        items = torch.arange(self.task.clients.items, device=self.who.device)
        with torch.no_grad():
            self.weights[name] = rows(self._view(), sampled(items)).clone()

    @override
    def upload(self, upload: Upload) -> None:
        task, into, value = self.task, upload.into, self.weights[upload.name].detach()
        if task.state.parameters[into].location == "personal":
            # The client's own value of `into` stays as downloaded.
            self.weights.setdefault(into, self.weights[into])
        if upload.transform is not None:
            value = upload.transform.of_one(value)
        change = value.unsqueeze(0) - task.server.reference(into, self.who)
        if task.privacy is not None:
            change = change * task.privacy.shrinkage(change.abs().sum())
            change = change + task.privacy.draw(task.state.parameters, into, self.global_index, task.round_)
        task.server.receive(into, self.who, change)

    def _downloaded(self, name: str) -> Tensor:
        state = self.task.state
        if self.task.starts_from_own_copy(name):
            return state.client_tensors[name].whole(self.who)[0].clone()
        return state.shared.get(name, state.initial[name]).clone()

    def _view(self) -> Weights:
        state = self.task.state
        values = Values(self.weights | self.derived)
        training = self.items[self.labels == 1]
        values["interactions"] = torch.full((1, 1), float(len(training)), device=self.who.device)
        values["own"] = PlainTable(partial(self._own_items, training), training)
        values["history"] = no_history
        values["held"] = state.held[self.who].to(torch.get_default_dtype()).unsqueeze(1)
        for name in state.visible:
            if state.parameters[name].table:
                values[name] = PlainTable(partial(self.weights.__getitem__, name), training)
        return cast(Weights, values)

    def _own_items(self, training: Tensor) -> Tensor:
        """1 for training items, 0 for others."""
        return torch.zeros(self.task.clients.items, 1, device=self.who.device).index_fill_(0, training, 1)

    def _past(self) -> Past:
        """History before the positive of each sample."""
        clients, client = self.task.clients, int(self.who[0])
        own = slice(int(clients.start[client]), int(clients.start[client + 1]))
        turn = clients.turn[own].repeat_interleave(self.task.samples.group)
        return Past(turn, torch.zeros_like(turn), clients.by_time[own])

    def _derive(self) -> None:
        with torch.no_grad():
            self.derived = self.task.method.derived(self._view())

    def _batches(self, half: Half | None) -> list[PlainBatch]:
        task, items, labels, past = self.task, self.items, self.labels, self._past
        if half is not None:
            group = task.samples.group
            rows = torch.tensor([len(items) // group], device=self.who.device)
            parts = halves(self.global_index, rows, task.seed, task.round_)
            chosen = parts[("first", "second").index(half)].repeat_interleave(group)
            items, labels, past = items[chosen], labels[chosen], partial(_chosen, past, chosen)
        size = torch.tensor([len(items)], device=self.who.device)
        order = shuffled(self.global_index, size, task.seed, task.round_, self.epochs_done)
        self.epochs_done += 1
        return [
            PlainBatch(items[chosen], labels[chosen], partial(_chosen, past, chosen))
            for chosen in order.split(task.batch_size)
        ]

    def _optimiser(self, step: Step) -> torch.optim.Optimizer:
        groups = [
            {"params": [self.weights[name]], "lr": rate, "weight_decay": step.weight_decay.get(name, 0.0)}
            for name, rate in step.rates.items()
        ]
        if step.optimiser == "sgd":
            return torch.optim.SGD(groups)
        optimiser = torch.optim.Adam(groups)
        for name in step.rates if step.keep_state else ():
            first, second, steps = (moment[self.who[0]] for moment in self._moments(name))
            optimiser.state[self.weights[name]] = {
                "exp_avg": first.clone(), "exp_avg_sq": second.clone(), "step": steps.cpu().clone(),
            }  # fmt: skip
        return optimiser

    def _store(self, step: Step, optimiser: torch.optim.Optimizer) -> None:
        """Write the moments that outlast the round back into the state."""
        for name in step.rates if step.keep_state and step.optimiser == "adam" else ():
            moments = optimiser.state[self.weights[name]]
            if "exp_avg" not in moments:
                # The parameter had no gradient.
                continue
            first, second, steps = self._moments(name)
            first[self.who[0]], second[self.who[0]] = moments["exp_avg"], moments["exp_avg_sq"]
            steps[self.who[0]] = moments["step"]

    def _moments(self, name: str) -> tuple[Tensor, Tensor, Tensor]:
        return self.task.state.moments(name)

    def _guard(self, step: Step, loss: Loss, batch: PlainBatch, number: int) -> None:
        """Replace gradients of guarded tables by the mean of each sample's clipped gradient, plus noise."""
        for name, mechanism in step.gradient_noise.items():
            table = self.weights[name]
            total = torch.zeros_like(table)
            for sample in batch.samples():
                (own,) = torch.autograd.grad(loss(self._view(), sample), table)
                total += own * min(1.0, mechanism.clip / max(float(own.norm()), 1e-30))
            spread = mechanism.multiplier * mechanism.clip / len(batch.index)
            first = ((self.epochs_done - 1) * NOISE_STEPS + number) * table.numel()
            task = self.task
            noise = gaussian(self.global_index, table.numel(), 1.0, task.seed, task.round_, first)
            table.grad = total / len(batch.index) + spread * noise.reshape(table.shape)


def _chosen(past: Callable[[], Past], chosen: Tensor) -> Past:
    return past().of(chosen)


class LoopEngine(Engine):
    """Trains the clients of a task one after another."""

    name = "loop"

    @override
    def run(self, task: Task) -> Outcome:
        losses, slowest = [], 0.0
        for index in range(len(task.who)):
            start = time.perf_counter()
            client = LoopClient(task, index)
            before = {name: client.weights[name].clone().unsqueeze(0) for name in task.recorded_tables}
            try:
                client.run(task.program)
            except (RuntimeError, IndexError, KeyError) as error:
                user = int(task.clients.user[client.who[0]])
                raise FedrecError(f"round {task.round_}, client {user}: {error}") from error
            if task.recorder is not None and before:
                after = {name: client.weights[name].detach().unsqueeze(0) for name in before}
                task.recorder.record_training(client.who, before, after)
            client.keep()
            values = {name: value.unsqueeze(0) for name, value in client.weights.items()}
            check_clients_finite(task, client.who, client.last_loss.unsqueeze(0), values)
            losses.append(client.last_loss)
            slowest = max(slowest, time.perf_counter() - start)
        loss = torch.stack(losses)
        return Outcome(loss, lambda: float(loss.mean()), slowest)


def make(memory: int, alone: int) -> Engine:  # noqa: ARG001 - one client fits, or nothing helps
    """The engine. It trains one client at a time, and ignores limits of memory."""
    return LoopEngine()
