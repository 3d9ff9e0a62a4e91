"""The closed list of torch's operators that are compiled, with the arguments that each reads.

The module reads one call of an operator and gives its node. The recorder refuses an operator or argument that
is not listed, and a result of another type than the operator's.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from fedrec.federation.engines.fused.ir.nodes import Constant, Node, Pointwise, UnsupportedError
from fedrec.federation.engines.fused.ir.ops import SUMS, Op
from fedrec.federation.engines.fused.trace import reductions, views
from fedrec.federation.engines.fused.trace.calls import Call

PLACES = ("dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking", "implicit")
"""Arguments for the type and memory of the result; the recorder checks the type on the result itself."""
_ANY = ("real", "bool", "count")
"""Every kind of `dtype_kind`."""


@dataclass(frozen=True)
class Operator:
    """An operator of torch that is compiled."""

    node: Callable[[Call], Node]
    """Makes the node of a call."""
    arguments: tuple[str, ...]
    """The arguments that `node` reads. All others must have their default values."""
    gives: tuple[str, ...] = ("real",)
    """The kinds of numbers that the result may have (see `dtype_kind`)."""


def elementwise(op: Op, *names: str, gives: str = "real") -> Operator:
    """An operator that computes an element from the same element of the arguments `names`, in this order."""

    def made(call: Call) -> Node:
        return call.pointwise(op, *map(call.node, names))

    return Operator(made, names, tuple(gives.split()))


_POWERS = {2.0: Op.SQUARE, 1.0: Op.COPY, 0.5: Op.SQRT, -1.0: Op.RECIPROCAL, -0.5: Op.RSQRT}
"""The operators of powers with a known exponent."""


def _power(call: Call) -> Node:
    base, exponent = call.node("self"), call.node("exponent")
    known = exponent.value if isinstance(exponent, Constant) else None
    if known in _POWERS:
        return call.pointwise(_POWERS[known], base)
    return call.pointwise(Op.POW, base, exponent)


def _scaled(first: str, second: str, plain: Op, scaled: Op) -> Callable[[Call], Node]:
    """A sum or difference, with a factor `alpha` of the second part."""

    def made(call: Call) -> Node:
        inputs, alpha = (call.node(first), call.node(second)), call.node("alpha")
        _check_rounding(*inputs)
        if isinstance(alpha, Constant) and alpha.value == 1:
            return call.pointwise(plain, *inputs)
        return call.pointwise(scaled, *inputs, alpha)

    return made


_LARGE = 2.0**20
"""The smallest number whose addition and subtraction counts as rounding."""


def _check_rounding(first: Node, second: Node) -> None:
    """Raise `UnsupportedError` if a loss adds and subtracts one large number, which rounds the other terms.

    C compilers add in any order, and so would omit both.
    """
    for total, number in ((first, second), (second, first)):
        value = number.value if isinstance(number, Constant) else 0.0
        others = total.inputs if isinstance(total, Pointwise) and total.op in SUMS else ()
        if abs(value) >= _LARGE and any(
            isinstance(other, Constant) and abs(other.value) == abs(value) for other in others
        ):
            raise UnsupportedError("its loss adds and subtracts a large number, to round: use torch.round")


_ROUNDED = {None: Op.DIV, "trunc": Op.DIV_TRUNC, "floor": Op.DIV_FLOOR}
"""The operators of a quotient, by its `rounding_mode`."""


def _divided(call: Call) -> Node:
    """A quotient, rounded if the call has a `rounding_mode`."""
    inputs = call.node("self"), call.node("other")
    return call.pointwise(_ROUNDED[call.plain("rounding_mode")], *inputs)


def _clamped(low: Op, high: Op) -> Callable[[Call], Node]:
    """A value between two bounds; a call may give only one of them."""

    def made(call: Call) -> Node:
        value = call.node("self")
        for name, op in (("min", low), ("max", high)):
            if call.given(name):
                value = call.pointwise(op, value, call.node(name))
        return value

    return made


def _entropy(call: Call) -> Node:
    if call.plain("reduction"):
        raise UnsupportedError("its loss reduces the entropy of samples inside torch: use batch.mean")
    return call.pointwise(Op.BCE_WITH_LOGITS, call.node("self"), call.node("target"))


def _all(value: float) -> Callable[[Call], Node]:
    return lambda call: Constant(call.shape, value=value, origin=call.origin)


def _filled(name: str) -> Callable[[Call], Node]:
    """One number everywhere."""

    def made(call: Call) -> Node:
        number = call.node(name)
        if isinstance(number, Constant):
            return Constant(call.shape, value=number.value, origin=call.origin)
        return views.expanded(call.shape, number, call.origin)

    return made


_OF_ONE = {
    "neg": Op.NEG, "exp": Op.EXP, "log": Op.LOG, "log1p": Op.LOG1P, "abs": Op.ABS, "sqrt": Op.SQRT,
    "sigmoid": Op.SIGMOID, "relu": Op.RELU, "sign": Op.SIGN, "sgn": Op.SIGN, "tanh": Op.TANH,
    "reciprocal": Op.RECIPROCAL, "rsqrt": Op.RSQRT, "sin": Op.SIN, "cos": Op.COS, "erf": Op.ERF,
    "expm1": Op.EXPM1, "log2": Op.LOG2, "log10": Op.LOG10, "atan": Op.ATAN, "tan": Op.TAN, "asin": Op.ASIN,
    "acos": Op.ACOS, "exp2": Op.EXP2, "erfc": Op.ERFC, "sinh": Op.SINH, "cosh": Op.COSH, "floor": Op.FLOOR,
    "ceil": Op.CEIL, "trunc": Op.TRUNC, "round": Op.ROUND,
}  # fmt: skip
"""Elementwise operators of one input, by torch's name."""
_OF_TWO = {"minimum": Op.MINIMUM, "maximum": Op.MAXIMUM}
"""Elementwise operators of two inputs, by torch's name."""
_COMPARED = {"ge": Op.GE, "le": Op.LE, "gt": Op.GT, "lt": Op.LT, "eq": Op.EQ, "ne": Op.NE}
"""Comparisons, by torch's name."""
_LOGIC = {"and": Op.AND, "or": Op.OR, "xor": Op.XOR}
"""Logical operators, by the end of torch's name."""


def _elementwise() -> Iterator[tuple[str, Operator]]:
    """The elementwise operators, by name and overload."""
    for name, op in _OF_ONE.items():
        yield f"{name}.default", elementwise(op, "self")
    for name, op in _OF_TWO.items():
        yield f"{name}.default", elementwise(op, "self", "other", gives="real bool")
    for name, op in _COMPARED.items():
        for overload in ("Scalar", "Tensor"):
            yield f"{name}.{overload}", elementwise(op, "self", "other", gives="bool")
    for name, op in _LOGIC.items():
        yield f"logical_{name}.default", elementwise(op, "self", "other", gives="bool")
        yield f"bitwise_{name}.Tensor", elementwise(op, "self", "other", gives="bool")
    yield "logical_not.default", elementwise(Op.NOT, "self", gives="bool")
    yield "bitwise_not.default", elementwise(Op.NOT, "self", gives="bool")
    for overload in ("Tensor", "Scalar"):
        yield f"mul.{overload}", elementwise(Op.MUL, "self", "other", gives="real bool")
        yield f"div.{overload}", elementwise(Op.DIV, "self", "other")
        yield f"div.{overload}_mode", Operator(_divided, ("self", "other", "rounding_mode"))
        added = _scaled("self", "other", Op.ADD, Op.ADD_SCALED)
        yield f"add.{overload}", Operator(added, ("self", "other", "alpha"))
        taken = _scaled("self", "other", Op.SUB, Op.SUB_SCALED)
        yield f"sub.{overload}", Operator(taken, ("self", "other", "alpha"))
        taken_from = _scaled("self", "other", Op.RSUB, Op.RSUB_SCALED)
        yield f"rsub.{overload}", Operator(taken_from, ("self", "other", "alpha"))
        yield f"fmod.{overload}", elementwise(Op.FMOD, "self", "other")
        yield f"remainder.{overload}", elementwise(Op.REMAINDER, "self", "other")
        yield f"masked_fill.{overload}", elementwise(Op.MASKED_FILL, "self", "mask", "value")
    yield "remainder.Scalar_Tensor", elementwise(Op.REMAINDER, "self", "other")
    yield "where.self", elementwise(Op.WHERE, "condition", "self", "other", gives="real bool")
    yield "isnan.default", elementwise(Op.IS_NAN, "self", gives="bool")
    yield "floor_divide.default", elementwise(Op.DIV_FLOOR, "self", "other")
    for overload in ("Tensor_Scalar", "Tensor_Tensor", "Scalar"):
        yield f"pow.{overload}", Operator(_power, ("self", "exponent"))
    bounds = ("self", "min", "max")
    yield "clamp.default", Operator(_clamped(Op.AT_LEAST, Op.AT_MOST), bounds)
    yield "clamp.Tensor", Operator(_clamped(Op.MAXIMUM, Op.MINIMUM), bounds)
    yield "clamp_min.default", elementwise(Op.AT_LEAST, "self", "min")
    yield "clamp_max.default", elementwise(Op.AT_MOST, "self", "max")
    yield "clamp_min.Tensor", elementwise(Op.MAXIMUM, "self", "min")
    yield "clamp_max.Tensor", elementwise(Op.MINIMUM, "self", "max")
    yield "sigmoid_backward.default", elementwise(Op.SIGMOID_BACKWARD, "grad_output", "output")
    passed = elementwise(Op.THRESHOLD_BACKWARD, "grad_output", "self", "threshold")
    yield "threshold_backward.default", passed
    asked = ("self", "target", "reduction")
    yield "binary_cross_entropy_with_logits.default", Operator(_entropy, asked)


def _reshaped() -> Iterator[tuple[str, Operator]]:
    """The operators that move elements without computing."""
    for name in ("clone", "alias", "detach", "lift_fresh", "lift_fresh_copy"):
        yield f"{name}.default", Operator(views.same, ("self",), _ANY)
    yield "_to_copy.default", Operator(views.cast, ("self",), _ANY)
    yield "expand.default", Operator(views.expand, ("self", "size"), _ANY)
    yield "unsqueeze.default", Operator(views.unsqueeze, ("self", "dim"), _ANY)
    yield "squeeze.dim", Operator(views.squeeze, ("self", "dim"), _ANY)
    yield "squeeze.dims", Operator(views.squeeze, ("self", "dim"), _ANY)
    yield "t.default", Operator(views.matrix_transpose, ("self",), _ANY)
    yield "transpose.int", Operator(views.transpose, ("self", "dim0", "dim1"), _ANY)
    yield "permute.default", Operator(views.permute, ("self", "dims"), _ANY)
    for name in ("view", "_unsafe_view"):
        yield f"{name}.default", Operator(views.view, ("self", "size"), _ANY)
    cut = ("dim", "start", "end", "step")
    yield "slice.Tensor", Operator(views.slice_, ("self", *cut), _ANY)
    yield "slice_scatter.default", Operator(views.slice_scatter, ("self", "src", *cut))
    yield "slice_backward.default", Operator(views.slice_backward, ("grad_output", "input_sizes", *cut))
    yield "select.int", Operator(views.select, ("self", "dim", "index"), _ANY)
    yield "select_scatter.default", Operator(views.select_scatter, ("self", "src", "dim", "index"))
    picked = ("grad_output", "input_sizes", "dim", "index")
    yield "select_backward.default", Operator(views.select_backward, picked)
    where = ("offset", "dim1", "dim2")
    yield "diagonal.default", Operator(views.diagonal, ("self", *where), _ANY)
    yield "diagonal_scatter.default", Operator(views.diagonal_scatter, ("self", "src", *where))
    yield "cat.default", Operator(views.cat, ("tensors", "dim"), ("real", "bool"))


def _made() -> Iterator[tuple[str, Operator]]:
    """The operators that make a tensor of one number."""
    for names, value in (
        (("zeros", "zeros_like", "new_zeros"), 0.0),
        (("ones", "ones_like", "new_ones"), 1.0),
    ):
        for name in names:
            yield f"{name}.default", Operator(_all(value), ("self", "size"), ("real", "bool"))
    for name, filler in (("full", "fill_value"), ("full_like", "fill_value"), ("new_full", "fill_value")):
        yield f"{name}.default", Operator(_filled(filler), ("self", "size", filler), ("real", "bool"))
    yield "scalar_tensor.default", Operator(_filled("s"), ("s",), ("real", "bool"))


def _reduced() -> Iterator[tuple[str, Operator]]:
    """The operators that reduce axes, and products of matrices."""
    along = ("self", "dim", "keepdim")
    yield "sum.default", Operator(reductions.how_many, ("self",), ("real", "count"))
    yield "sum.dim_IntList", Operator(reductions.how_many, along, ("real", "count"))
    yield "mean.default", Operator(reductions.mean, ("self",))
    yield "mean.dim", Operator(reductions.mean, along)
    yield "amax.default", Operator(reductions.largest, along)
    yield "amin.default", Operator(reductions.smallest, along)
    yield "max.default", Operator(reductions.largest, ("self",))
    yield "min.default", Operator(reductions.smallest, ("self",))
    yield "linalg_vector_norm.default", Operator(reductions.norm, (*along, "ord"))
    yield "mm.default", Operator(reductions.matrix_product("self", "mat2", (0, 2), (2, 1)), ("self", "mat2"))
    yield (
        "bmm.default",
        Operator(reductions.matrix_product("self", "mat2", (0, 1, 3), (0, 3, 2)), ("self", "mat2")),
    )
    yield "dot.default", Operator(reductions.matrix_product("self", "tensor", (0,), (0,)), ("self", "tensor"))


OPERATORS: Mapping[str, Operator] = dict((*_elementwise(), *_reshaped(), *_made(), *_reduced()))
"""The compiled operators, by name and overload."""
