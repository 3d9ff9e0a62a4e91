"""The operators of torch that are compiled: a closed list, with what every argument means.

An operator or argument that is not listed is refused, as is a number of another type than the operator's.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from fedrec.federation.engines.fused import axes, sums
from fedrec.federation.engines.fused.calls import Call
from fedrec.federation.engines.fused.nodes import Constant, Node, Pointwise, UnsupportedError

PLACES = ("dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking", "implicit")
"""Arguments that say where and how numbers lie in memory; their type is checked on the result."""
_ANY = ("real", "bool", "count")


@dataclass(frozen=True)
class Operator:
    """How a node is made of an operator, the arguments that this goes by, and the types it may give."""

    node: Callable[[Call], Node]
    arguments: tuple[str, ...]
    gives: tuple[str, ...] = ("real",)


def formula(text: str, *names: str, gives: str = "real") -> Operator:
    """An operator that goes element by element, by a formula of C of the arguments `names`."""

    def made(call: Call) -> Node:
        return Pointwise(call.shape, tuple(map(call.node, names)), text)

    return Operator(made, names, tuple(gives.split()))


_POWERS = {2.0: "square({0})", 1.0: "{0}", 0.5: "SQRT({0})", -1.0: "(1 / {0})", -0.5: "(1 / SQRT({0}))"}


def _power(call: Call) -> Node:
    base, exponent = call.node("self"), call.node("exponent")
    known = exponent.value if isinstance(exponent, Constant) else None
    if known in _POWERS:
        return Pointwise(call.shape, (base,), _POWERS[known])
    return Pointwise(call.shape, (base, exponent), "POW({0}, {1})")


def _scaled(first: str, second: str, plain: str, scaled: str) -> Callable[[Call], Node]:
    """A sum or difference, with a factor `alpha` of the second part."""

    def made(call: Call) -> Node:
        inputs, alpha = (call.node(first), call.node(second)), call.node("alpha")
        _check_rounding(*inputs)
        if isinstance(alpha, Constant) and alpha.value == 1:
            return Pointwise(call.shape, inputs, plain)
        return Pointwise(call.shape, (*inputs, alpha), scaled)

    return made


_LARGE = 2.0**20


def _check_rounding(first: Node, second: Node) -> None:
    """Raise `UnsupportedError` where a large number is added and taken away again, which rounds the rest.

    Compilers add up in any order, and so leave both out.
    """
    for total, number in ((first, second), (second, first)):
        value = number.value if isinstance(number, Constant) else 0.0
        others = total.inputs if isinstance(total, Pointwise) and total.formula in _SUMS else ()
        if abs(value) >= _LARGE and any(
            isinstance(other, Constant) and abs(other.value) == abs(value) for other in others
        ):
            raise UnsupportedError("its loss adds and takes away one large number, to round: use torch.round")


_SUMS = ("({0} + {1})", "({0} - {1})", "({1} - {0})")
_ROUNDED = {None: "({0} / {1})", "trunc": "TRUNC({0} / {1})", "floor": "floored({0}, {1})"}


def _divided(call: Call) -> Node:
    """A quotient, perhaps rounded."""
    inputs = call.node("self"), call.node("other")
    return Pointwise(call.shape, inputs, _ROUNDED[call.plain("rounding_mode")])


def _clamped(low: str, high: str) -> Callable[[Call], Node]:
    """No less than one bound and no more than another, where these are given."""

    def made(call: Call) -> Node:
        value = call.node("self")
        for name, text in (("min", low), ("max", high)):
            if call.given(name):
                value = Pointwise(call.shape, (value, call.node(name)), text)
        return value

    return made


def _entropy(call: Call) -> Node:
    if call.plain("reduction"):
        raise UnsupportedError("its loss adds up the entropy of samples inside of torch")
    return Pointwise(call.shape, (call.node("self"), call.node("target")), "entropy({0}, {1})")


def _all(value: float) -> Callable[[Call], Node]:
    return lambda call: Constant(call.shape, value=value)


def _filled(name: str) -> Callable[[Call], Node]:
    """One number everywhere."""

    def made(call: Call) -> Node:
        number = call.node(name)
        if isinstance(number, Constant):
            return Constant(call.shape, value=number.value)
        return axes.expanded(call.shape, number)

    return made


_OF_ONE = {
    "neg": "(-{0})", "exp": "EXP({0})", "log": "LOG({0})", "log1p": "LOG1P({0})", "abs": "ABS({0})",
    "sqrt": "SQRT({0})", "sigmoid": "sigmoid({0})", "relu": "relu({0})", "sign": "sign({0})",
    "sgn": "sign({0})", "tanh": "TANH({0})", "reciprocal": "(1 / {0})", "rsqrt": "(1 / SQRT({0}))",
    "sin": "SIN({0})", "cos": "COS({0})", "erf": "ERF({0})", "expm1": "EXPM1({0})", "log2": "LOG2({0})",
    "log10": "LOG10({0})", "atan": "ATAN({0})", "tan": "TAN({0})",
    "asin": "ASIN({0})", "acos": "ACOS({0})", "exp2": "EXP2({0})", "erfc": "ERFC({0})",
    "sinh": "SINH({0})", "cosh": "COSH({0})",
    "floor": "FLOOR({0})", "ceil": "CEIL({0})", "trunc": "TRUNC({0})", "round": "RINT({0})",
}  # fmt: skip
_OF_TWO = {
    "minimum": "least({0}, {1})", "maximum": "most({0}, {1})",
}  # fmt: skip
_COMPARED = {"ge": ">=", "le": "<=", "gt": ">", "lt": "<", "eq": "==", "ne": "!="}
_LOGIC = {
    "and": "(real)({0} != 0 && {1} != 0)", "or": "(real)({0} != 0 || {1} != 0)",
    "xor": "(real)(({0} != 0) != ({1} != 0))",
}  # fmt: skip
_NOT = "(real)({0} == 0)"


def _formulas() -> Iterator[tuple[str, Operator]]:
    """Operators that go element by element."""
    for name, text in _OF_ONE.items():
        yield f"{name}.default", formula(text, "self")
    for name, text in _OF_TWO.items():
        yield f"{name}.default", formula(text, "self", "other", gives="real bool")
    for name, sign in _COMPARED.items():
        for overload in ("Scalar", "Tensor"):
            yield f"{name}.{overload}", formula(f"(real)({{0}} {sign} {{1}})", "self", "other", gives="bool")
    for name, text in _LOGIC.items():
        yield f"logical_{name}.default", formula(text, "self", "other", gives="bool")
        yield f"bitwise_{name}.Tensor", formula(text, "self", "other", gives="bool")
    yield "logical_not.default", formula(_NOT, "self", gives="bool")
    yield "bitwise_not.default", formula(_NOT, "self", gives="bool")
    for overload in ("Tensor", "Scalar"):
        yield f"mul.{overload}", formula("({0} * {1})", "self", "other", gives="real bool")
        yield f"div.{overload}", formula("({0} / {1})", "self", "other")
        yield f"div.{overload}_mode", Operator(_divided, ("self", "other", "rounding_mode"))
        added = _scaled("self", "other", "({0} + {1})", "({0} + {2} * {1})")
        yield f"add.{overload}", Operator(added, ("self", "other", "alpha"))
        taken = _scaled("self", "other", "({0} - {1})", "({0} - {2} * {1})")
        yield f"sub.{overload}", Operator(taken, ("self", "other", "alpha"))
        taken_from = _scaled("self", "other", "({1} - {0})", "({1} - {2} * {0})")
        yield f"rsub.{overload}", Operator(taken_from, ("self", "other", "alpha"))
        yield f"fmod.{overload}", formula("FMOD({0}, {1})", "self", "other")
        yield f"remainder.{overload}", formula("remainder_of({0}, {1})", "self", "other")
        yield f"masked_fill.{overload}", formula("({1} != 0 ? {2} : {0})", "self", "mask", "value")
    yield "remainder.Scalar_Tensor", formula("remainder_of({0}, {1})", "self", "other")
    yield "where.self", formula("({0} != 0 ? {1} : {2})", "condition", "self", "other", gives="real bool")
    yield "isnan.default", formula("(real)({0} != {0})", "self", gives="bool")
    yield "floor_divide.default", formula("floored({0}, {1})", "self", "other")
    for overload in ("Tensor_Scalar", "Tensor_Tensor", "Scalar"):
        yield f"pow.{overload}", Operator(_power, ("self", "exponent"))
    bounds = ("self", "min", "max")
    yield "clamp.default", Operator(_clamped("at_least({0}, {1})", "at_most({0}, {1})"), bounds)
    yield "clamp.Tensor", Operator(_clamped("most({0}, {1})", "least({0}, {1})"), bounds)
    yield "clamp_min.default", formula("at_least({0}, {1})", "self", "min")
    yield "clamp_max.default", formula("at_most({0}, {1})", "self", "max")
    yield "clamp_min.Tensor", formula("most({0}, {1})", "self", "min")
    yield "clamp_max.Tensor", formula("least({0}, {1})", "self", "max")
    yield "sigmoid_backward.default", formula("({0} * ((1 - {1}) * {1}))", "grad_output", "output")
    passed = formula("let_through({0}, {1}, {2})", "grad_output", "self", "threshold")
    yield "threshold_backward.default", passed
    asked = ("self", "target", "reduction")
    yield "binary_cross_entropy_with_logits.default", Operator(_entropy, asked)


def _reshaped() -> Iterator[tuple[str, Operator]]:
    """Operators that give elements other places."""
    for name in ("clone", "alias", "detach", "lift_fresh", "lift_fresh_copy"):
        yield f"{name}.default", Operator(axes.same, ("self",), _ANY)
    yield "_to_copy.default", Operator(axes.cast, ("self",), _ANY)
    yield "expand.default", Operator(axes.expand, ("self", "size"), _ANY)
    yield "unsqueeze.default", Operator(axes.unsqueeze, ("self", "dim"), _ANY)
    yield "squeeze.dim", Operator(axes.squeeze, ("self", "dim"), _ANY)
    yield "squeeze.dims", Operator(axes.squeeze, ("self", "dim"), _ANY)
    yield "t.default", Operator(axes.matrix_transpose, ("self",), _ANY)
    yield "transpose.int", Operator(axes.transpose, ("self", "dim0", "dim1"), _ANY)
    yield "permute.default", Operator(axes.permute, ("self", "dims"), _ANY)
    for name in ("view", "_unsafe_view"):
        yield f"{name}.default", Operator(axes.view, ("self", "size"), _ANY)
    cut = ("dim", "start", "end", "step")
    yield "slice.Tensor", Operator(axes.slice_, ("self", *cut), _ANY)
    yield "slice_scatter.default", Operator(axes.slice_scatter, ("self", "src", *cut))
    yield "slice_backward.default", Operator(axes.slice_backward, ("grad_output", "input_sizes", *cut))
    yield "select.int", Operator(axes.select, ("self", "dim", "index"), _ANY)
    yield "select_scatter.default", Operator(axes.select_scatter, ("self", "src", "dim", "index"))
    picked = ("grad_output", "input_sizes", "dim", "index")
    yield "select_backward.default", Operator(axes.select_backward, picked)
    where = ("offset", "dim1", "dim2")
    yield "diagonal.default", Operator(axes.diagonal, ("self", *where), _ANY)
    yield "diagonal_scatter.default", Operator(axes.diagonal_scatter, ("self", "src", *where))
    yield "cat.default", Operator(axes.cat, ("tensors", "dim"), ("real", "bool"))


def _made() -> Iterator[tuple[str, Operator]]:
    """Tensors of one number."""
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
    """Sums and the like along axes, and products of matrices."""
    along = ("self", "dim", "keepdim")
    yield "sum.default", Operator(sums.how_many, ("self",), ("real", "count"))
    yield "sum.dim_IntList", Operator(sums.how_many, along, ("real", "count"))
    yield "mean.default", Operator(sums.mean, ("self",))
    yield "mean.dim", Operator(sums.mean, along)
    yield "amax.default", Operator(sums.largest, along)
    yield "amin.default", Operator(sums.smallest, along)
    yield "max.default", Operator(sums.largest, ("self",))
    yield "min.default", Operator(sums.smallest, ("self",))
    yield "linalg_vector_norm.default", Operator(sums.norm, (*along, "ord"))
    yield "mm.default", Operator(sums.matrix_product("self", "mat2", (0, 2), (2, 1)), ("self", "mat2"))
    yield "bmm.default", Operator(sums.matrix_product("self", "mat2", (0, 1, 3), (0, 3, 2)), ("self", "mat2"))
    yield "dot.default", Operator(sums.matrix_product("self", "tensor", (0,), (0,)), ("self", "tensor"))


OPERATORS: Mapping[str, Operator] = dict((*_formulas(), *_reshaped(), *_made(), *_reduced()))
"""By operator and overload."""
