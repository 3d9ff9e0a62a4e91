"""The functions that the statements of a kernel call.

The module reads the files of this folder: `gpu.cuh`, `cpu.c`, and `common.c` for both devices. It gives the
text in front of a kernel, comments included. Fingerprints cover these files.
"""

import re
from functools import cache
from pathlib import Path

from fedrec.federation.engines.fused.adam import PAST, TERMS

_CPU_MATH = {
    False: "EXP power_of_e|LOG logf|LOG1P log1pf|ABS fabsf|SQRT sqrtf|TANH tanhf|POW powf",
    True: "EXP exp|LOG log|LOG1P log1p|ABS fabs|SQRT sqrt|TANH tanh|POW pow",
}
"""The functions of C for the names in kernels of a CPU, by whether numbers are doubles."""


_RARE = {
    "SIN": "sin", "COS": "cos", "ERF": "erf", "EXPM1": "expm1", "LOG2": "log2", "LOG10": "log10",
    "ATAN": "atan", "TAN": "tan", "ASIN": "asin", "ACOS": "acos",
    "EXP2": "exp2", "ERFC": "erfc", "SINH": "sinh", "COSH": "cosh", "FLOOR": "floor", "CEIL": "ceil",
    "TRUNC": "trunc", "RINT": "rint", "FMOD": "fmod",
}  # fmt: skip
"""Further mathematical functions, by their names in kernels. A kernel defines only those that it uses."""
_RARE_FILES = {"floored": "floored.c", "most_of_lanes": "most_of_lanes.cuh", "remainder_of": "remainder_of.c"}
"""The files of functions that few kernels use, by the name of the function."""


@cache
def library_text(file: str) -> str:
    """The text of a file of this folder."""
    return Path(__file__).with_name(file).read_text(encoding="utf-8")


def rare_functions(body: str, *, gpu: bool, double: bool) -> str:
    """The text of the rare functions that the statements `body` of a kernel use."""
    used = (file for name, file in _RARE_FILES.items() if re.search(rf"\b{name}\b", body))
    functions = "".join(f"\n{library_text(file)}" for file in used)
    suffix = "" if gpu or double else "f"
    names = (name for name in _RARE if re.search(rf"\b{name}\(", body + functions))
    return "".join(f"#define {name} {_RARE[name]}{suffix}\n" for name in names) + functions


def functions_for(*, gpu: bool, double: bool, users: bool = False) -> str:
    """The text of the functions that every kernel has, for a device and a precision.

    With `users`, each sample has a row of a user table as well.
    """
    tables = (f"TERMS {TERMS}", f"PAST {PAST}")
    mathematics = "".join(f"#define {one}\n" for one in (*_CPU_MATH[double].split("|"), *tables))
    precision = f"#define DOUBLE {int(double)}\n#define USERS {int(users)}\n"
    files = (
        f"\n#if NATIVE_GPU\n{library_text('gpu.cuh')}#else\n{library_text('cpu.c')}#endif\n"
        f"{library_text('common.c')}"
    )
    return precision + ("" if gpu else mathematics) + files
