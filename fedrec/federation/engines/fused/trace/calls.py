"""One call of an operator of torch, with its arguments by name.

The module reads the call for the first client and its counterpart for the second. It gives each argument as a
node of the graph, or as a plain value that is the same for all clients.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from fedrec.federation.engines.fused.ir.nodes import Node, Origin, Pointwise, UnsupportedError
from fedrec.federation.engines.fused.ir.ops import Op
from fedrec.federation.engines.fused.trace.sizes import dims_of, number_node, same_value, unusual


def dtype_kind(dtype: torch.dtype) -> str:
    """The kind of numbers of a type: `real`, `bool`, or `count` for integers; empty for other types."""
    known = {torch.get_default_dtype(): "real", torch.bool: "bool", torch.int64: "count"}
    return known.get(dtype, "")


def arguments_of(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments of an operator by name, with defaults for those that the call omits."""
    listed = func._schema.arguments
    given = {argument.name: value for argument, value in zip(listed, args, strict=False)}
    return {argument.name: argument.default_value for argument in listed} | given | dict(kwargs)


@dataclass(frozen=True)
class Seen:
    """A call of an operator as the second client makes it."""

    func: OpOverload
    """The operator."""
    arguments: Mapping[str, Any]
    """Its arguments by name. A tensor of one number that is not in the graph is that number."""
    shape: tuple[int, ...]
    """The shape of its result."""


class Call:
    """A call of an operator, from which its node is made."""

    def __init__(
        self,
        func: OpOverload,
        result: Tensor,
        arguments: Mapping[str, Any],
        seen: Seen,
        node_of: Callable[[Tensor], Node | None],
        origin: Origin,
    ) -> None:
        self.func = func
        """The operator."""
        self.shape = dims_of(tuple(result.shape), seen.shape)
        """The shape of the result, with symbols."""
        self.origin = origin
        """The source of the call."""
        self.kind = dtype_kind(result.dtype)
        """The kind of numbers of the result (see `dtype_kind`)."""
        self._arguments = arguments
        """The arguments of the first client, by name."""
        self._seen = seen
        """The same call of the second client."""
        self._node_of = node_of
        """Gives the node of a tensor; None if the tensor is not in the graph."""

    @property
    def name(self) -> str:
        """The operator, without its overload."""
        return str(self.func).rsplit(".", 1)[0]

    def node(self, name: str) -> Node:
        """An argument as a node: a tensor, or a number, which may depend on the samples or rows."""
        value = self._arguments[name]
        if isinstance(value, Tensor):
            known = self._node_of(value)
            if known is not None:
                return known
            check_is_number(value)
            other = float(self._seen.arguments[name])
            return number_node(tuple(value.shape), float(value), other, self.origin)
        return number_node((), float(value), float(self._seen.arguments[name]), self.origin)

    def pointwise(self, op: Op, *inputs: Node) -> Node:
        """A node of the call's shape that computes an operator element by element."""
        return Pointwise(self.shape, inputs, op, origin=self.origin)

    def nodes(self, name: str) -> list[Node]:
        """An argument that is a list of tensors of the graph."""
        known = [self._node_of(value) for value in self._arguments[name]]
        if None in known:
            raise UnsupportedError("its loss uses a tensor that is no parameter")
        return [node for node in known if node is not None]

    def kind_of(self, name: str) -> str:
        """The kind of numbers of a tensor (see `dtype_kind`)."""
        return dtype_kind(self._arguments[name].dtype)

    def takes(self, name: str) -> bool:
        """Whether the operator has an argument of that name."""
        return name in self._arguments

    def given(self, name: str) -> bool:
        """Whether an argument is not None."""
        return self._arguments[name] is not None

    def plain(self, name: str) -> Any:  # noqa: ANN401 - whatever the operator takes
        """An argument that is no tensor, such as an axis; raise `UnsupportedError` if the clients differ."""
        value = self._arguments[name]
        if isinstance(value, Tensor) or not same_value(value, self._seen.arguments[name]):
            raise unusual()
        return value

    def either(self, name: str) -> tuple[Any, Any]:
        """An argument of the first and of the second client."""
        return self._arguments[name], self._seen.arguments[name]


def check_is_number(value: Tensor) -> None:
    """Raise `UnsupportedError` for a tensor that is not in the graph and has more than one number."""
    if value.numel() != 1:
        raise UnsupportedError("its loss uses a tensor that is no parameter")
