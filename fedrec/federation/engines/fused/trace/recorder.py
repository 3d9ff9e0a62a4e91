"""The recorders of the operators that torch performs.

They observe torch while a loss runs. `Listener` gives the calls of the second client, `OperatorRecorder` the
nodes of the first client's graph.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from fedrec.federation.engines.fused.ir.nodes import Input, Leaf, Node, Origin, UnsupportedError
from fedrec.federation.engines.fused.trace.aten import OPERATORS, PLACES
from fedrec.federation.engines.fused.trace.calls import Call, Seen, arguments_of, dtype_kind
from fedrec.federation.engines.fused.trace.decompositions import rule_for
from fedrec.federation.engines.fused.trace.sizes import check_known, dims_of, unusual
from fedrec.federation.engines.fused.trace.source_lines import SourceLines
from fedrec.federation.engines.fused.trace.views import expanded


class Watching(TorchDispatchMode):
    """Observes every operator, remembers all tensors, and refuses operators that are not listed."""

    def __init__(self, leaves: Mapping[Leaf, Tensor], lines: SourceLines) -> None:
        super().__init__()
        # A tensor is identified by its address, so all tensors stay in memory.
        self._tensors: dict[int, Tensor] = {id(value): value for value in leaves.values()}
        """All inputs and results so far, by their identity."""
        self._leaves = set(self._tensors)
        """The identities of the inputs."""
        self._lines = lines
        self._depth = 0
        """The number of operators that are being performed by simpler ones."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from loading its compiler, which takes seconds, only to exclude this mode from it."""
        return False

    def __torch_dispatch__(
        self,
        func: OpOverload,
        _types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the operator gives
        origin = None if self._depth else Origin(str(func).rsplit(".", 1)[0], self._lines.now())
        self._depth += 1
        try:
            return self._performed(func, args, kwargs or {}, origin)
        except UnsupportedError as error:
            raise UnsupportedError(f"{error} ({origin})" if origin else str(error)) from error
        finally:
            self._depth -= 1

    def _performed(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], origin: Origin | None
    ) -> Any:  # noqa: ANN401 - see above
        name = str(func).removeprefix("aten.")
        if name == "copy_.default":
            return self._overwritten(args[0], args[1])
        if func._schema.is_mutable:
            return self._changed_in_place(func, args, kwargs)
        if name not in OPERATORS:
            return self._by_simpler_ones(func, args, kwargs)
        arguments = arguments_of(func, args, kwargs)
        result = func(*args, **kwargs)
        self._check_arguments(func, arguments, result)
        self._note(func, arguments, result, origin)
        self._tensors[id(result)] = result
        return result

    def _by_simpler_ones(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - see above
        """The result of an operator, computed by simpler operators."""
        for rule in (rule_for(func), func.decompose):
            if rule is not None:
                with self:
                    result = rule(*args, **kwargs)
                if result is not NotImplemented:
                    return result
        raise UnsupportedError("its loss uses an operator that has no compiled form")

    def _check_arguments(self, func: OpOverload, arguments: Mapping[str, Any], result: Tensor) -> None:
        """Raise `UnsupportedError` for an argument that is not listed, and for a result of another type."""
        operator = OPERATORS[str(func).removeprefix("aten.")]
        for argument in func._schema.arguments:
            value = arguments[argument.name]
            known = argument.name in operator.arguments or argument.name in PLACES
            if not known and (isinstance(value, Tensor) or value != argument.default_value):
                raise UnsupportedError(f"its loss uses the argument {argument.name}, which is not compiled")
        if dtype_kind(result.dtype) not in operator.gives:
            raise UnsupportedError(f"its loss computes numbers of the type {result.dtype}")

    def _changed_in_place(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """Perform an operator that changes its first argument: compute the result, then copy it there."""
        plain = _not_in_place(func)
        if plain is None:
            raise UnsupportedError("its loss uses an operator that has no compiled form")
        with self:
            result = plain(*args, **kwargs)
        if result.dtype != args[0].dtype or result.shape != args[0].shape:
            raise UnsupportedError("its loss changes a tensor in place to one of another type or shape")
        return self._overwritten(args[0], result)

    def _overwritten(self, target: Tensor, source: Tensor) -> Tensor:
        """Copy `source` into `target`; from now on both have the same node."""
        memory = target.untyped_storage().data_ptr()
        shared = any(
            one is not target and one.untyped_storage().data_ptr() == memory for one in self._tensors.values()
        )
        # A view of the target would change as well, but its node would not.
        if shared:
            raise UnsupportedError("its loss changes a tensor in place and also reads a view of it")
        if id(target) in self._leaves or id(target) not in self._tensors:
            raise UnsupportedError("its loss changes one of its inputs in place")
        if id(source) not in self._tensors:
            raise UnsupportedError("its loss uses a tensor that is no parameter")
        if target.dtype != source.dtype:
            raise UnsupportedError(f"its loss copies {source.dtype} into {target.dtype}")
        self._note_copy(target, source)
        target.copy_(source)
        return target

    def _note(
        self, func: OpOverload, arguments: Mapping[str, Any], result: Tensor, origin: Origin | None
    ) -> None:
        """Record a call of a listed operator and its result."""
        raise NotImplementedError

    def _note_copy(self, target: Tensor, source: Tensor) -> None:
        """Record that `target` has the numbers of `source` from now on."""
        raise NotImplementedError


class Listener(Watching):
    """Records the calls of the second client, with their arguments that are not tensors of the graph."""

    def __init__(self, leaves: Mapping[Leaf, Tensor], lines: SourceLines) -> None:
        super().__init__(leaves, lines)
        self.seen: list[Seen] = []
        """The calls in their order."""

    def _note(
        self,
        func: OpOverload,
        arguments: Mapping[str, Any],
        result: Tensor,
        origin: Origin | None,  # noqa: ARG002 - see override
    ) -> None:
        beside = {name: self._number(value) for name, value in arguments.items()}
        self.seen.append(Seen(func, beside, tuple(result.shape)))

    def _note_copy(self, target: Tensor, source: Tensor) -> None:
        """Do nothing: a copy has no numbers to compare."""

    def _number(self, value: object) -> object:
        """A tensor of one number that is not in the graph, as that number; any other value as it is."""
        is_number = isinstance(value, Tensor) and id(value) not in self._tensors and value.numel() == 1
        return float(value) if is_number else value  # type: ignore[arg-type]


class OperatorRecorder(Watching):
    """Turns the operators of the first client, forward and backward, into nodes.

    `seen` are the calls of the second client, and `others` its inputs. A number that differs between both
    clients follows from the sizes.
    """

    def __init__(
        self,
        leaves: Mapping[Leaf, Tensor],
        lines: SourceLines,
        seen: list[Seen],
        others: Mapping[Leaf, Tensor],
    ) -> None:
        super().__init__(leaves, lines)
        self._nodes: dict[int, Node] = {
            id(value): Input(dims_of(tuple(value.shape), tuple(others[leaf].shape)), leaf=leaf)
            for leaf, value in leaves.items()
        }
        """The node of each tensor, by the tensor's identity."""
        for node in self._nodes.values():
            check_known(node.shape)
        self._seen: Iterator[Seen] = iter(seen)
        """The calls of the second client that are still to come."""
        self._origin = Origin("", "")
        """The source of the current operator."""

    def node_of(self, value: Tensor) -> Node:
        """The node of a tensor of the graph."""
        return self._nodes[id(value)]

    def _note(
        self, func: OpOverload, arguments: Mapping[str, Any], result: Tensor, origin: Origin | None
    ) -> None:
        seen = next(self._seen, None)
        if seen is None or seen.func is not func:
            raise unusual()
        # Simpler operators have the origin of the operator that they compute.
        self._origin = origin or self._origin
        call = Call(func, result, arguments, seen, self._known, self._origin)
        # The operator may raise a more precise error than the check of the shape.
        node = OPERATORS[str(func).removeprefix("aten.")].node(call)
        check_known(call.shape)
        self._nodes[id(result)] = node

    def _note_copy(self, target: Tensor, source: Tensor) -> None:
        # Nodes that were made of the target before stay as they are.
        node, copied = self._nodes[id(target)], self._nodes[id(source)]
        self._nodes[id(target)] = expanded(node.shape, copied, self._origin)

    def _known(self, value: Tensor) -> Node | None:
        return self._nodes.get(id(value))


def _not_in_place(func: OpOverload) -> OpOverload | None:
    """The operator with the same arguments that changes none of them; None if there is none."""
    packet, _, overload = str(func).removeprefix("aten.").partition(".")
    plain = getattr(torch.ops.aten, packet.removesuffix("_"), None)
    found = getattr(plain, _OTHER_NAMES.get(f"{packet}.{overload}", overload), None)
    if not packet.endswith("_") or found is None:
        return None
    taken = [[(each.name, str(each.type)) for each in one._schema.arguments] for one in (func, found)]
    return found if taken[0] == taken[1] else None


_OTHER_NAMES = {"pow_.Scalar": "Tensor_Scalar", "pow_.Tensor": "Tensor_Tensor"}
"""The overloads of operators that have another name where nothing is changed in place."""
