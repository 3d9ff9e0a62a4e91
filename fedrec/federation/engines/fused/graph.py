"""The loss of a step and its gradients as a graph, traced for one client.

The method's own loss is run on made-up tensors while the operators that torch performs, forward and backward,
are written down: each becomes a node.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from fedrec.federation.engines.fused.made_up import Model, TracedBatch, check_sizes, leaves_of, view_of
from fedrec.federation.engines.fused.nodes import ROWS, SAMPLES, Leaf, LossGraph, UnsupportedError
from fedrec.federation.engines.fused.operators import OperatorRecorder, Watching
from fedrec.federation.loss_numbers import with_numbers
from fedrec.federation.model.weights import Loss, Weights


def traced(
    method: Model, loss: Loss, trained: Sequence[str], numbers: Sequence[float] | None = None
) -> LossGraph:
    """The graph of a loss; raise `UnsupportedError` where there is none.

    With `numbers` (see `numbers_of`), what the loss closes over may be others in other calls.
    """
    leaves = dict(leaves_of(method, SAMPLES, ROWS))
    check_sizes(leaves)
    run = _Run(method, loss, trained, numbers or (), leaves)
    recorder = OperatorRecorder(run.given)
    value, gradients = run.under(recorder)
    _check_numbers(method, loss, trained, numbers or ())
    return LossGraph(
        recorder.node_of(value),
        {leaf: recorder.node_of(each) for leaf, each in gradients.items()},
        frozenset(name for name, part in method.parameters().items() if part.by == "user"),
    )


class _Run:
    """A loss and its gradients, computed once of made-up leaves."""

    def __init__(
        self,
        method: Model,
        loss: Loss,
        trained: Sequence[str],
        numbers: Sequence[float],
        leaves: Mapping[Leaf, Tensor],
    ) -> None:
        held = {Leaf("number", str(place)): torch.tensor(value) for place, value in enumerate(numbers)}
        self._method = method
        self._wanted = [leaf for leaf in leaves if leaf.name in trained and leaf.part in _TRAINED]
        # Plain autograd, as engines have it: its derivatives are written so that little is lost to rounding.
        self.given = {
            leaf: value.detach().requires_grad_(leaf in self._wanted)
            for leaf, value in {**leaves, **held}.items()
        }
        self._loss = with_numbers(loss, [self.given[leaf] for leaf in held])

    def under(self, mode: TorchDispatchMode) -> tuple[Tensor, dict[Leaf, Tensor]]:
        """The loss and its gradients, computed while `mode` looks on."""
        wanted = [self.given[leaf] for leaf in self._wanted]
        view, batch = cast(Weights, view_of(self._method.parameters(), self.given)), TracedBatch(self.given)
        try:
            with mode:
                value = self._loss(view, batch).sum()
                gradients = torch.autograd.grad(value, wanted, allow_unused=True, materialize_grads=True)
        except (RuntimeError, TypeError, KeyError, IndexError, AttributeError, ValueError) as error:
            first = str(error).strip().splitlines()[0]
            raise UnsupportedError(f"its loss cannot be traced: {first}") from error
        return value, dict(zip(self._wanted, gradients, strict=True))


def _check_numbers(method: Model, loss: Loss, trained: Sequence[str], numbers: Sequence[float]) -> None:
    """Raise `UnsupportedError` where a number of a loss follows from how many samples or rows there are.

    Such a number would be the made-up client's for all. Multiples of a size are known for what they are.
    """
    told = []
    for samples, rows in _OTHER_SIZES:
        run = _Run(method, loss, trained, numbers, dict(leaves_of(method, samples, rows)))
        listener = _Listener(run.given.values())
        run.under(listener)
        told.append(listener.numbers)
    first, second = told
    shares = [one / other for one, other in zip(*_OTHER_SIZES, strict=True)]
    same = len(first) == len(second) and all(
        one == other or any(math.isclose(one, share * other) for share in shares)
        for one, other in zip(first, second, strict=True)
    )
    if not same:
        raise UnsupportedError("its loss goes by the number of samples in an unusual way")


class _Listener(Watching):
    """Writes down the numbers that operators are given beside tensors of the graph."""

    def __init__(self, leaves: Iterable[Tensor]) -> None:
        super().__init__()
        self.numbers: list[float] = []
        # Tensors are known by their identity, so all of them are kept.
        self._tensors = list(leaves)
        self._known = set(map(id, self._tensors))

    def __torch_dispatch__(
        self,
        func: OpOverload,
        _types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the operator gives
        self.numbers += [float(each) for each in args if self._is_number(each)]
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self._tensors.append(result)
            self._known.add(id(result))
        return result

    def _is_number(self, argument: object) -> bool:
        """Whether an argument is a number, or a tensor of one that is nothing of the graph."""
        if isinstance(argument, Tensor):
            return argument.numel() == 1 and id(argument) not in self._known
        return isinstance(argument, int | float)


_TRAINED = ("value", "rows", "whole", "training_sum")
"""Parts of a parameter that a gradient may be asked for."""
_OTHER_SIZES = ((23, 29), (31, 37))
"""Samples and rows of two clients, by which it is seen what follows from how many there are."""
