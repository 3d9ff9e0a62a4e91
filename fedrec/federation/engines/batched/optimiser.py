"""One gradient step of a block of clients, equal to that of torch.optim for each client."""

import torch
from torch import Tensor
from torch.optim.adam import adam

from fedrec.errors import FederationError
from fedrec.federation.engines.batched.block import Block
from fedrec.federation.engines.batched.schedule import BlockBatch, Schedule
from fedrec.federation.engines.batched.tables import BlockWeights
from fedrec.federation.engines.engine import NOISE_STEPS
from fedrec.federation.model.client import Step
from fedrec.federation.model.tables import GatheredRows
from fedrec.federation.model.weights import Loss
from fedrec.federation.privacy.noise import gaussian

_BETAS = (0.9, 0.999)
_EPSILON = 1e-8


class BlockOptimiser:
    """One step of a method for a block: gradients of the first clients, then an update of each group.

    Clients of different groups have taken different numbers of steps, on which Adam and decaying rates
    depend. One call of torch still updates all groups.
    """

    def __init__(self, weights: BlockWeights, step: Step, schedule: Schedule) -> None:
        block = weights.block
        self.block: Block = block
        self.weights = weights
        self.rule = step
        self.groups = schedule.groups
        self.parts = {name: schedule.parts_of(table=block.parameter(name).table) for name in step.rates}
        self.values = {name: block.values[name].split(parts) for name, parts in self.parts.items()}
        self.adaptive = list(step.rates) if step.optimiser == "adam" else []
        self.moments = {name: self._first_moments(name) for name in self.adaptive}
        self.group_counts = {
            # torch's fused kernels accept step counts only in single precision.
            name: [torch.zeros((), dtype=torch.float32, device=block.device) for _ in self.parts[name]]
            for name in self.adaptive
        }
        self.group_steps = [0] * len(self.groups)

    def step(self, loss: Loss, batch: BlockBatch) -> Tensor:
        """Apply the step to one mini-batch of the first clients; return their losses."""
        clients = len(batch.index)
        rule = self.rule
        leaves = {name: self._leaf(name, clients, batch) for name in rule.rates}
        shown = {
            name: GatheredRows(batch.index, leaf) if name in rule.gradient_noise else leaf
            for name, leaf in leaves.items()
        }
        losses = loss(self.weights.of(clients, shown), batch)
        gradients = torch.autograd.grad(losses.sum(), list(leaves.values()), allow_unused=True)
        unused = {name for name, gradient in zip(leaves, gradients, strict=True) if gradient is None}
        active = sum(group.clients.stop <= clients for group in self.groups)
        with torch.no_grad():
            for name, plain in zip(leaves, gradients, strict=True):
                if name in unused:
                    # As in torch.optim, a parameter without a gradient takes no step and no weight decay.
                    continue
                gradient = self._guard(name, plain, batch) if name in rule.gradient_noise else plain
                # torch's fused kernel ignores the strides of a gradient.
                self._update(name, gradient.contiguous(), active)
        for number in range(active):
            self.group_steps[number] += 1
        return losses.detach()

    def store(self) -> None:
        """Write the moments that outlast the round back into the state."""
        block = self.block
        for name in self.adaptive if self.rule.keep_state else ():
            shape = block.parameter(name).shape
            kept = block.task.state.moments(name)
            for store, part in zip(kept, ("first", "second", "steps"), strict=True):
                value = block.moments[name, part]
                store[block.who] = value.reshape(-1, *shape) if part != "steps" else value

    def _first_moments(self, name: str) -> list[tuple[Tensor, ...]]:
        """Both moments of each group: zero, or as kept from the client's last round."""
        block, value = self.block, self.block.values[name]
        if not self.rule.keep_state:
            return [torch.zeros_like(value).split(self.parts[name]) for _ in range(2)]
        first, second, steps = (moment[block.who] for moment in block.task.state.moments(name))
        block.moments |= {
            (name, "first"): first.reshape(value.shape),
            (name, "second"): second.reshape(value.shape),
            (name, "steps"): steps,
        }
        return []

    def _leaf(self, name: str, clients: int, batch: BlockBatch) -> Tensor:
        value = self.block.values[name][: self.block.length(name, clients)].detach()
        if name in self.rule.gradient_noise:
            value = torch.nn.functional.embedding(batch.index, value)
        return value.requires_grad_()

    def _guard(self, name: str, gradients: Tensor, batch: BlockBatch) -> Tensor:
        """The mean of the clipped gradients of each client's samples, plus noise on every row."""
        block, mechanism = self.block, self.rule.gradient_noise[name]
        clients, samples = len(gradients), batch.weight.count_nonzero(1)
        if batch.number >= NOISE_STEPS:
            raise FederationError(
                f"an epoch has more than {NOISE_STEPS} mini-batches; noise on gradients supports no more. "
                "Raise batch_size."
            )
        each = gradients * samples[:, None, None]
        each = each * (mechanism.clip / each.norm(dim=-1, keepdim=True).clamp(min=1e-30)).clamp(max=1.0)
        total = torch.zeros_like(block.values[name][: block.length(name, clients)])
        total.index_add_(0, batch.index.reshape(-1), (each / samples[:, None, None]).flatten(0, 1))
        spread = mechanism.multiplier * mechanism.clip / samples
        count = block.parameter(name).count
        first = ((block.epochs_done - 1) * NOISE_STEPS + batch.number) * count
        task = block.task
        noise = gaussian(block.global_index[:clients], count, 1.0, task.seed, task.round_, first)
        return total + (spread.to(noise.dtype).unsqueeze(1) * noise).reshape(total.shape)

    def _update(self, name: str, gradient: Tensor, active: int) -> None:
        """Update a parameter of the first `active` groups."""
        rate, decay = self.rule.rates[name], self.rule.weight_decay.get(name, 0.0)
        gradients = gradient.split(self.parts[name][:active])
        if self.rule.keep_state and self.rule.optimiser == "adam":
            self._move_by_client(name, gradient, active)
        elif self.rule.batch_decay == 1:
            self._move(name, slice(0, active), gradients, rate, decay)
        else:
            for number, own in enumerate(gradients):
                self._move(name, slice(number, number + 1), (own,), self._rate(name, number), decay)
        if decay and self.rule.optimiser == "sgd" and self.block.parameter(name).table:
            for number, group in enumerate(self.groups[:active]):
                self.block.factor[name][group.clients] *= 1 - self._rate(name, number) * decay

    def _rate(self, name: str, group: int) -> float:
        return float(self.rule.rates[name] * self.rule.batch_decay ** self.group_steps[group])

    def _move(
        self, name: str, parts: slice, gradients: tuple[Tensor, ...], rate: float, decay: float
    ) -> None:
        values = list(self.values[name][parts])
        if self.rule.optimiser == "sgd":
            for value, gradient in zip(values, gradients, strict=True):
                value.add_(gradient.add(value, alpha=decay) if decay else gradient, alpha=-rate)
            return
        first, second = (list(moment[parts]) for moment in self.moments[name])
        adam(
            values, list(gradients), first, second, [], self.group_counts[name][parts],
            fused=True, amsgrad=False, maximize=False, beta1=_BETAS[0], beta2=_BETAS[1],
            eps=_EPSILON, lr=rate, weight_decay=decay,
        )  # fmt: skip

    def _move_by_client(self, name: str, gradient: Tensor, active: int) -> None:
        """Apply Adam if each client has its own number of steps."""
        block, clients = self.block, self.groups[active - 1].clients.stop
        rows = len(gradient)
        value, first, second = (
            tensor[:rows]
            for tensor in (block.values[name], block.moments[name, "first"], block.moments[name, "second"])
        )
        steps = block.moments[name, "steps"]
        steps[:clients] += 1
        rate = torch.cat(
            [
                torch.full((part.clients.stop - part.clients.start,), self._rate(name, number))
                for number, part in enumerate(self.groups[:active])
            ]
        ).to(value)

        def spread(by_client: Tensor) -> Tensor:
            by_row = by_client[block.row_client[:rows]] if block.parameter(name).table else by_client
            return by_row.reshape(-1, *(1 for _ in value.shape[1:]))

        decay = self.rule.weight_decay.get(name, 0.0)
        gradient = gradient.add(value, alpha=decay) if decay else gradient
        first.lerp_(gradient, 1 - _BETAS[0])
        second.mul_(_BETAS[1]).addcmul_(gradient, gradient, value=1 - _BETAS[1])
        done = steps[:clients].double()
        size = rate / (1 - _BETAS[0] ** done).to(value.dtype)
        scale = (1 - _BETAS[1] ** done).sqrt().to(value.dtype)
        root = second.sqrt().div_(spread(scale)).add_(_EPSILON)
        value.sub_((spread(size) * first).div_(root))
