"""The engine that is obviously right: one client after another, plain torch.optim.

Slow on purpose. It is the oracle the other engines are held to, and the one to debug with:
an error names the client it happened on.
"""

import time

import torch
from torch import Tensor

from fedrec.errors import FedrecError
from fedrec.federation.draws import shuffled
from fedrec.federation.engine import Outcome, Task, check_finite
from fedrec.federation.method import Loss, Noise, Step


class Parameters(dict[str, Tensor]):
    """A client's parameters, as `w["Q"]` and as `w.Q`."""

    def __getattr__(self, name: str) -> Tensor:
        return self[name]


class PlainBatch:
    """A mini-batch of one client."""

    def __init__(self, items: Tensor, labels: Tensor) -> None:
        self.items = items
        self.labels = labels

    def mean(self, values: Tensor) -> Tensor:
        """The mean over the batch."""
        return values.mean()


class LoopClient:
    """One client in one round."""

    def __init__(self, task: Task, place: int) -> None:
        self.task = task
        self.who = task.who[place : place + 1]
        end = int(task.samples.size[: place + 1].sum())
        own = slice(end - int(task.samples.size[place]), end)
        samples = task.samples
        self.items, self.labels = samples.item[own], samples.label[own]
        state = task.state
        self.weights = Parameters({name: value.clone() for name, value in state.shared.items()})
        # A copy kept for scoring is overwritten by the download; private values are its own.
        private = [name for name in state.kept if name not in state.shared]
        self.weights.update({name: state.kept[name][self.who[0]].clone() for name in private})
        self.epochs_done = 0
        self.last_loss = torch.tensor(float("nan"))

    def fit(self, *steps: Step, epochs: int, loss: Loss, early_stop: float | None = None) -> None:
        """See `method.Client.fit`."""
        trained = {name: self.weights[name].requires_grad_() for step in steps for name in step.rates}
        optimisers = [self._optimiser(step) for step in steps]
        decays = [
            torch.optim.lr_scheduler.ExponentialLR(optimiser, step.batch_decay)
            for optimiser, step in zip(optimisers, steps, strict=True)
        ]
        total, count, before = 0.0, 0, None
        for _ in range(epochs):
            losses = []
            for batch in self._batches():
                for optimiser, decay in zip(optimisers, decays, strict=True):
                    optimiser.zero_grad()
                    value = loss(self.weights, batch)
                    value.backward()
                    optimiser.step()
                    decay.step()
                losses.append(value.detach())
            self.last_loss = torch.stack(losses).mean()
            total, count = total + float(torch.stack(losses).sum()), count + len(losses)
            running = total / count
            if (
                early_stop is not None
                and before is not None
                and abs(running - before) < early_stop * (before + 1e-5)
            ):
                break
            before = running
        for name in trained:
            self.weights[name] = self.weights[name].detach()

    def upload(self, *names: str, noise: Noise | None = None) -> None:
        """See `method.Client.upload`."""
        for name in names:
            self.task.server.refuse_private(name)
            change = (self.weights[name].detach() - self.task.state.shared[name]).unsqueeze(0)
            if noise is not None:
                change = change + noise(name, self.who, self.task.state.parameters[name].shape)
            self.task.server.receive(name, self.who, change)

    def keep(self) -> None:
        """Store what stays on the client."""
        for name, values in self.task.state.kept.items():
            values[self.who[0]] = self.weights[name].detach()

    def _batches(self) -> list[PlainBatch]:
        task = self.task
        size = torch.tensor([len(self.items)], device=self.who.device)
        order = shuffled(self.who, size, task.seed, task.round_, self.epochs_done)
        self.epochs_done += 1
        return [
            PlainBatch(self.items[chosen], self.labels[chosen]) for chosen in order.split(task.batch_size)
        ]

    def _optimiser(self, step: Step) -> torch.optim.Optimizer:
        groups = [
            {"params": [self.weights[name]], "lr": rate, "weight_decay": step.weight_decay.get(name, 0.0)}
            for name, rate in step.rates.items()
        ]
        return torch.optim.Adam(groups) if step.optimiser == "adam" else torch.optim.SGD(groups)


class LoopEngine:
    """Trains the clients of a task one after another."""

    def run(self, task: Task) -> Outcome:
        """See `engine.Engine.run`."""
        losses, slowest = [], 0.0
        for place in range(len(task.who)):
            start = time.perf_counter()
            client = LoopClient(task, place)
            try:
                task.method.local_round(client)
            except (RuntimeError, IndexError, KeyError) as error:
                user = int(task.clients.user[client.who[0]])
                raise FedrecError(f"round {task.round_}, client {user}: {error}") from error
            client.keep()
            values = {name: value.unsqueeze(0) for name, value in client.weights.items()}
            check_finite(task, client.who, client.last_loss.unsqueeze(0), values)
            losses.append(client.last_loss)
            slowest = max(slowest, time.perf_counter() - start)
        return Outcome(torch.stack(losses), slowest)
