"""The trace of a step's loss: it runs the loss and its gradients on a made-up client and writes down a graph.

The module reads a method, a loss and the trained parameters, and gives a `LossGraph`. Each operator that
torch performs, forward and backward, becomes a node. The loss runs for two made-up clients with different
sizes and values. A number that differs between them follows from the sizes; an equal one holds for all
clients.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fedrec.federation.engines.fused.ir.nodes import Leaf, LossGraph, UnsupportedError
from fedrec.federation.engines.fused.trace.recorder import Listener, OperatorRecorder
from fedrec.federation.engines.fused.trace.sizes import FIRST, SECOND
from fedrec.federation.engines.fused.trace.source_lines import SourceLines
from fedrec.federation.engines.fused.trace.symbolic_inputs import (
    Model,
    TracedBatch,
    check_sizes,
    leaves_of,
    view_of,
)
from fedrec.federation.loss_numbers import with_numbers
from fedrec.federation.model.weights import Loss, Weights


def trace_loss(
    method: Model, loss: Loss, trained: Sequence[str], numbers: Sequence[float] | None = None
) -> LossGraph:
    """The graph of a loss and its gradients by the parameters `trained`.

    `numbers` are the numbers that the loss closes over (see `numbers_of`): they become inputs of the graph.
    Without `numbers` they are constants. A parameter without a gradient is left out, since `torch.optim` does
    not change it. Raise `UnsupportedError` if the loss cannot be compiled.
    """
    leaves = dict(leaves_of(method, FIRST, (0.1, 0.9)))
    check_sizes(leaves)
    unknown = sorted(set(trained) - {leaf.name for leaf in leaves if leaf.part in _TRAINED})
    if unknown:
        raise UnsupportedError(f"clients have no parameter {', '.join(unknown)} to train")
    others = dict(leaves_of(method, SECOND, _OTHER_VALUES))
    vector = _means_may_be_vectors(method, loss, trained, numbers or ())
    listening = _Run(method, loss, trained, [number * 1.25 + 0.5 for number in numbers or ()], others, vector)
    listener = Listener(listening.given, listening.lines)
    listening.under(listener)
    run = _Run(method, loss, trained, numbers or (), leaves, vector)
    recorder = OperatorRecorder(run.given, run.lines, listener.seen, listening.given)
    value, gradients = run.under(recorder)
    return LossGraph(
        recorder.node_of(value),
        {leaf: recorder.node_of(each) for leaf, each in gradients.items()},
        frozenset(name for name, part in method.parameters().items() if part.by == "user"),
    )


def _means_may_be_vectors(
    method: Model, loss: Loss, trained: Sequence[str], numbers: Sequence[float]
) -> bool:
    """Whether a loss and its gradients stay the same if means are vectors of one number.

    A mean is one number, shape `()`. Kernels of stored results have it in shape `(1,)`, and their text stays.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        leaves = dict(leaves_of(method, SECOND, _OTHER_VALUES))
        found = [
            _Run(method, loss, trained, numbers, leaves, vector).under(nullcontext())
            for vector in (False, True)
        ]
    except UnsupportedError:
        return False
    finally:
        torch.set_default_dtype(before)
    (value, gradients), (other, others) = found
    pairs = [(value, other), *((gradients[leaf], others[leaf]) for leaf in gradients if leaf in others)]
    return gradients.keys() == others.keys() and all(
        torch.allclose(one, another, rtol=1e-9, atol=0, equal_nan=True) for one, another in pairs
    )


class _Run:
    """One run of a loss and its gradients on the inputs of a made-up client."""

    def __init__(
        self,
        method: Model,
        loss: Loss,
        trained: Sequence[str],
        numbers: Sequence[float],
        leaves: Mapping[Leaf, Tensor],
        mean_is_vector: bool,
    ) -> None:
        self._mean_is_vector = mean_is_vector
        held = {Leaf("number", str(place)): torch.tensor(value) for place, value in enumerate(numbers)}
        self._method = method
        self._wanted = [leaf for leaf in leaves if leaf.name in trained and leaf.part in _TRAINED]
        """The inputs by which gradients are computed."""
        # Plain autograd, as in the other engines: its derivatives lose little to rounding.
        self.given = {
            leaf: value.detach().requires_grad_(leaf in self._wanted)
            for leaf, value in {**leaves, **held}.items()
        }
        self.lines = SourceLines(loss)
        """The lines of the loss."""
        self._loss = with_numbers(loss, [self.given[leaf] for leaf in held])

    def under(self, mode: AbstractContextManager[object]) -> tuple[Tensor, dict[Leaf, Tensor]]:
        """Compute the loss and its gradients while a mode of torch observes every operator."""
        wanted = [self.given[leaf] for leaf in self._wanted]
        view = cast(Weights, view_of(self._method.parameters(), self.given))
        batch = TracedBatch(self.given, mean_is_vector=self._mean_is_vector)
        try:
            with _NothingLeavesTorch(), _no_hashes(), mode:
                each = self._loss(view, batch)
                if each.numel() != 1:
                    raise UnsupportedError("its loss gives more than one number for a client")
                value = each.sum()
                found = torch.autograd.grad(value, wanted, allow_unused=True)
                used = {leaf.name for leaf, each in zip(self._wanted, found, strict=True) if each is not None}
                gradients = {
                    leaf: torch.zeros_like(self.given[leaf]) if each is None else each
                    for leaf, each in zip(self._wanted, found, strict=True)
                    if leaf.name in used
                }
        except (RuntimeError, TypeError, KeyError, IndexError, AttributeError, ValueError) as error:
            first = (str(error).strip().splitlines() or ["torch gives no reason"])[0]
            line = self.lines.of_error()
            raise UnsupportedError(f"its loss cannot be traced: {first} ({line})") from error
        return value, gradients


@contextmanager
def _no_hashes() -> Iterator[None]:
    """Refuse to look up a tensor in a set or dictionary, which would not find a number traced as a tensor."""
    plain = Tensor.__hash__

    def refuse(_tensor: Tensor) -> int:
        raise UnsupportedError("its loss looks up a tensor or a number in a set or a dictionary")

    Tensor.__hash__ = refuse  # type: ignore[method-assign]
    try:
        yield
    finally:
        Tensor.__hash__ = plain  # type: ignore[method-assign]


class _NothingLeavesTorch(TorchFunctionMode):
    """Refuses every function of torch that shows a tensor's values, since they are a made-up client's."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        _types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the function gives
        if func in _SHOWN:
            raise UnsupportedError(f"its loss reads the values of a tensor ({func.__name__})")
        return func(*args, **(kwargs or {}))


_SHOWN = frozenset({
    Tensor.numpy, Tensor.tolist, Tensor.__array__, Tensor.__dlpack__, Tensor.data_ptr, Tensor.untyped_storage,
    Tensor.storage, Tensor.__reduce_ex__, Tensor.__repr__, Tensor.__format__,
})  # fmt: skip
"""The functions that show the values of a tensor."""
_OTHER_VALUES = (0.2, 0.7)
"""The bounds of the second client's numbers."""
_TRAINED = ("value", "rows", "whole", "training_sum")
"""The parts of a parameter that have a gradient."""
