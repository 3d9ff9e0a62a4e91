"""The operators that torch performs, as nodes of a graph."""

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
    """Sees every operator, knows the tensors that were made, and refuses operators that are not listed."""

    def __init__(self, leaves: Mapping[Leaf, Tensor], lines: SourceLines) -> None:
        super().__init__()
        # Tensors are known by their identity, so all of them are kept.
        self._tensors: dict[int, Tensor] = {id(value): value for value in leaves.values()}
        self._leaves = set(self._tensors)
        self._lines = lines
        self._depth = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch would load its compiler, which takes seconds, to be kept from compiling this."""
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
        """What an operator gives that torch has a rule for: of simpler ones."""
        for rule in (rule_for(func), func.decompose):
            if rule is not None:
                with self:
                    result = rule(*args, **kwargs)
                if result is not NotImplemented:
                    return result
        raise UnsupportedError("its loss uses an operator that has no compiled form")

    def _check_arguments(self, func: OpOverload, arguments: Mapping[str, Any], result: Tensor) -> None:
        """Raise `UnsupportedError` for an argument without a meaning, and for numbers of other types."""
        operator = OPERATORS[str(func).removeprefix("aten.")]
        for argument in func._schema.arguments:
            value = arguments[argument.name]
            known = argument.name in operator.arguments or argument.name in PLACES
            if not known and (isinstance(value, Tensor) or value != argument.default_value):
                raise UnsupportedError(f"its loss gives an operator its argument {argument.name}")
        if dtype_kind(result.dtype) not in operator.gives:
            raise UnsupportedError(f"its loss computes with numbers of {result.dtype}")

    def _changed_in_place(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """What becomes of a tensor that an operator changes: the result of another one is copied into it."""
        plain = _not_in_place(func)
        if plain is None:
            raise UnsupportedError("its loss uses an operator that has no compiled form")
        with self:
            result = plain(*args, **kwargs)
        if result.dtype != args[0].dtype or result.shape != args[0].shape:
            raise UnsupportedError("its loss changes a tensor in place to one of another type or shape")
        return self._overwritten(args[0], result)

    def _overwritten(self, target: Tensor, source: Tensor) -> Tensor:
        """Let a tensor be what another one is, from now on."""
        memory = target.untyped_storage().data_ptr()
        shared = any(
            one is not target and one.untyped_storage().data_ptr() == memory for one in self._tensors.values()
        )
        # A view of it would change with it, and its node would not know.
        if shared:
            raise UnsupportedError("its loss changes a tensor in place that it also sees in another shape")
        if id(target) in self._leaves or id(target) not in self._tensors:
            raise UnsupportedError("its loss changes in place what it is given")
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
        """Write down a listed operator and what it has made."""
        raise NotImplementedError

    def _note_copy(self, target: Tensor, source: Tensor) -> None:
        """Write down that a tensor is another one from now on."""
        raise NotImplementedError


class Listener(Watching):
    """Writes down operators and what they are given beside tensors of the graph, for the second client."""

    def __init__(self, leaves: Mapping[Leaf, Tensor], lines: SourceLines) -> None:
        super().__init__(leaves, lines)
        self.seen: list[Seen] = []

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
        """A copy has no numbers."""

    def _number(self, value: object) -> object:
        """A tensor of one number that is nothing of the graph, as that number."""
        is_number = isinstance(value, Tensor) and id(value) not in self._tensors and value.numel() == 1
        return float(value) if is_number else value  # type: ignore[arg-type]


class OperatorRecorder(Watching):
    """Turns the operators that torch performs, forward and backward, into nodes.

    `seen` is what a second client's operators were, and `others` its leaves: a number that differs follows
    from the sizes.
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
        for node in self._nodes.values():
            check_known(node.shape)
        self._seen: Iterator[Seen] = iter(seen)
        self._origin = Origin("", "")

    def node_of(self, value: Tensor) -> Node:
        """The node of a tensor of the graph."""
        return self._nodes[id(value)]

    def _note(
        self, func: OpOverload, arguments: Mapping[str, Any], result: Tensor, origin: Origin | None
    ) -> None:
        seen = next(self._seen, None)
        if seen is None or seen.func is not func:
            raise unusual()
        # What an operator is decomposed into comes from where it comes from.
        self._origin = origin or self._origin
        call = Call(func, result, arguments, seen, self._known, self._origin)
        # The operator's own words for what it refuses come first.
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
    """The operator of the same arguments that leaves all of them as they are."""
    packet, _, overload = str(func).removeprefix("aten.").partition(".")
    plain = getattr(torch.ops.aten, packet.removesuffix("_"), None)
    found = getattr(plain, _OTHER_NAMES.get(f"{packet}.{overload}", overload), None)
    if not packet.endswith("_") or found is None:
        return None
    taken = [[(each.name, str(each.type)) for each in one._schema.arguments] for one in (func, found)]
    return found if taken[0] == taken[1] else None


_OTHER_NAMES = {"pow_.Scalar": "Tensor_Scalar", "pow_.Tensor": "Tensor_Tensor"}
"""Overloads that are called otherwise where nothing is changed."""
