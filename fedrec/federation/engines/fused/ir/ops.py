"""Elementwise operators: they compute an element from the same element of every input.

The trace chooses one for an operator of torch; `backend/c_operators.py` has the text of each in C.
"""

from enum import Enum


class Op(Enum):
    """An elementwise operator; the value is its name in listings, comments are formulas of inputs x, y, z."""

    COPY = "copy"
    NEG = "neg"
    EXP = "exp"
    LOG = "log"
    LOG1P = "log1p"
    ABS = "abs"
    SQRT = "sqrt"
    SIGMOID = "sigmoid"
    RELU = "relu"
    SIGN = "sign"
    TANH = "tanh"
    RECIPROCAL = "reciprocal"
    RSQRT = "rsqrt"
    SIN = "sin"
    COS = "cos"
    ERF = "erf"
    EXPM1 = "expm1"
    LOG2 = "log2"
    LOG10 = "log10"
    ATAN = "atan"
    TAN = "tan"
    ASIN = "asin"
    ACOS = "acos"
    EXP2 = "exp2"
    ERFC = "erfc"
    SINH = "sinh"
    COSH = "cosh"
    FLOOR = "floor"
    CEIL = "ceil"
    TRUNC = "trunc"
    ROUND = "round"
    SQUARE = "square"
    IS_NAN = "isnan"
    IS_NONZERO = "nonzero"
    NOT = "not"
    ADD = "add"
    ADD_SCALED = "add_scaled"  # x + z * y
    SUB = "sub"
    SUB_SCALED = "sub_scaled"  # x - z * y
    RSUB = "rsub"  # y - x
    RSUB_SCALED = "rsub_scaled"  # y - z * x
    MUL = "mul"
    DIV = "div"
    DIV_TRUNC = "div_trunc"
    DIV_FLOOR = "div_floor"
    FMOD = "fmod"  # the sign of x
    REMAINDER = "remainder"  # the sign of y
    POW = "pow"
    MINIMUM = "minimum"  # NaN if x or y is NaN
    MAXIMUM = "maximum"
    AT_LEAST = "at_least"  # NaN if x is NaN
    AT_MOST = "at_most"
    GE = "ge"
    LE = "le"
    GT = "gt"
    LT = "lt"
    EQ = "eq"
    NE = "ne"
    AND = "and"
    OR = "or"
    XOR = "xor"
    MASKED_FILL = "masked_fill"  # z if y else x
    WHERE = "where"  # y if x else z
    SIGMOID_BACKWARD = "sigmoid_backward"
    THRESHOLD_BACKWARD = "threshold_backward"
    BCE_WITH_LOGITS = "bce_with_logits"

    def __str__(self) -> str:
        return self.value


SLOW = frozenset({
    Op.EXP, Op.EXPM1, Op.EXP2, Op.LOG, Op.LOG1P, Op.LOG2, Op.LOG10, Op.TANH, Op.POW, Op.SIGMOID,
    Op.BCE_WITH_LOGITS,
})  # fmt: skip
"""Operators that are slow on a CPU. The passes put them into thin loops, which the C compiler vectorises."""
SUMS = frozenset({Op.ADD, Op.SUB, Op.RSUB})
"""Sums and differences of two inputs without a factor."""
