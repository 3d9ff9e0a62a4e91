"""The text of each elementwise operator in C, with gaps for the texts of its inputs."""

from collections.abc import Sequence

from fedrec.federation.engines.fused.ir.ops import Op

_TEXT = {
    Op.COPY: "{0}", Op.NEG: "(-{0})", Op.EXP: "EXP({0})", Op.LOG: "LOG({0})", Op.LOG1P: "LOG1P({0})",
    Op.ABS: "ABS({0})", Op.SQRT: "SQRT({0})", Op.SIGMOID: "sigmoid({0})", Op.RELU: "relu({0})",
    Op.SIGN: "sign({0})", Op.TANH: "TANH({0})", Op.RECIPROCAL: "(1 / {0})", Op.RSQRT: "(1 / SQRT({0}))",
    Op.SIN: "SIN({0})", Op.COS: "COS({0})", Op.ERF: "ERF({0})", Op.EXPM1: "EXPM1({0})", Op.LOG2: "LOG2({0})",
    Op.LOG10: "LOG10({0})", Op.ATAN: "ATAN({0})", Op.TAN: "TAN({0})", Op.ASIN: "ASIN({0})",
    Op.ACOS: "ACOS({0})", Op.EXP2: "EXP2({0})", Op.ERFC: "ERFC({0})", Op.SINH: "SINH({0})",
    Op.COSH: "COSH({0})", Op.FLOOR: "FLOOR({0})", Op.CEIL: "CEIL({0})", Op.TRUNC: "TRUNC({0})",
    Op.ROUND: "RINT({0})", Op.SQUARE: "square({0})", Op.IS_NAN: "(real)({0} != {0})",
    Op.IS_NONZERO: "(real)({0} != 0)", Op.NOT: "(real)({0} == 0)",
    Op.ADD: "({0} + {1})", Op.ADD_SCALED: "({0} + {2} * {1})", Op.SUB: "({0} - {1})",
    Op.SUB_SCALED: "({0} - {2} * {1})", Op.RSUB: "({1} - {0})", Op.RSUB_SCALED: "({1} - {2} * {0})",
    Op.MUL: "({0} * {1})", Op.DIV: "({0} / {1})", Op.DIV_TRUNC: "TRUNC({0} / {1})",
    Op.DIV_FLOOR: "floored({0}, {1})", Op.FMOD: "FMOD({0}, {1})", Op.REMAINDER: "remainder_of({0}, {1})",
    Op.POW: "POW({0}, {1})", Op.MINIMUM: "least({0}, {1})", Op.MAXIMUM: "most({0}, {1})",
    Op.AT_LEAST: "at_least({0}, {1})", Op.AT_MOST: "at_most({0}, {1})",
    Op.GE: "(real)({0} >= {1})", Op.LE: "(real)({0} <= {1})", Op.GT: "(real)({0} > {1})",
    Op.LT: "(real)({0} < {1})", Op.EQ: "(real)({0} == {1})", Op.NE: "(real)({0} != {1})",
    Op.AND: "(real)({0} != 0 && {1} != 0)", Op.OR: "(real)({0} != 0 || {1} != 0)",
    Op.XOR: "(real)(({0} != 0) != ({1} != 0))",
    Op.MASKED_FILL: "({1} != 0 ? {2} : {0})", Op.WHERE: "({0} != 0 ? {1} : {2})",
    Op.SIGMOID_BACKWARD: "({0} * ((1 - {1}) * {1}))", Op.THRESHOLD_BACKWARD: "let_through({0}, {1}, {2})",
    Op.BCE_WITH_LOGITS: "entropy({0}, {1})",
}  # fmt: skip
"""The text of each operator; `{0}`, `{1}` and `{2}` are its inputs."""
assert _TEXT.keys() == set(Op)


def operator_text(op: Op, inputs: Sequence[str]) -> str:
    """The expression of an operator, from the expressions of its inputs."""
    return _TEXT[op].format(*inputs)
