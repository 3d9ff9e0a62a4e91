"""The code of a loss: its structure, the names that it reads, and modules whose code counts as constant."""

import sys
from collections.abc import Hashable
from dis import get_instructions
from functools import cache
from itertools import chain
from types import CodeType
from typing import Any

_OWN = ("fedrec.methods", "fedrec.plugins")
"""The packages of this project whose functions and classes are read; the rest counts as constant."""
_READS_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME")


def code_structure(code: CodeType) -> Hashable:
    """The structure of a code object, independent of its file and line."""
    return (
        code.co_name, code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars,
        code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags,
        tuple(map(_constant, code.co_consts)),
    )  # fmt: skip


def _constant(value: Any) -> Hashable:  # noqa: ANN401 - whatever a constant is
    if isinstance(value, CodeType):
        return code_structure(value)
    if isinstance(value, tuple | frozenset):
        parts = map(_constant, value)
        return (type(value).__name__, *(sorted(parts, key=repr) if isinstance(value, frozenset) else parts))
    return plain_structure(value)


def plain_structure(value: Any) -> Hashable:  # noqa: ANN401 - see above
    """The structure of a value without parts, such as a number or a text."""
    # NaN equals no number, and zeros of both signs are equal; their texts behave otherwise.
    return (type(value).__name__, value.hex() if type(value) is float else value)


@cache
def globals_of(code: CodeType) -> tuple[str, ...]:
    """The names of the globals that code and its inner functions read."""
    own = (each.argval for each in get_instructions(code) if each.opname in _READS_GLOBALS)
    inner = (globals_of(each) for each in code.co_consts if isinstance(each, CodeType))
    return tuple(dict.fromkeys((*own, *chain(*inner))))


@cache
def names_of(code: CodeType) -> tuple[str, ...]:
    """The names of all globals and attributes in code and its inner functions."""
    inner = (names_of(each) for each in code.co_consts if isinstance(each, CodeType))
    return tuple(dict.fromkeys((*code.co_names, *chain(*inner))))


_HIDDEN = frozenset({
    "environ", "environb", "getenv", "getenvb", "globals", "locals", "vars", "eval", "exec", "__import__",
    "import_module", "__mro__", "__subclasses__", "f_globals", "f_locals",
})  # fmt: skip
"""Names by which code can read values that no key covers."""


@cache
def has_hidden_reads(code: CodeType) -> bool:
    """Whether code reads values that no key covers, such as those of a module that it imports itself."""
    imported = (each.argval for each in get_instructions(code) if each.opname == "IMPORT_NAME")
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return (
        not _HIDDEN.isdisjoint(code.co_names)
        or any(not is_foreign(name) for name in imported)
        or any(map(has_hidden_reads, inner))
    )


@cache
def is_foreign(module: str) -> bool:
    """Whether a module's code counts as constant: a module of Python, of a package, or of fedrec's base."""
    if module.startswith(_OWN):
        return False
    first = module.partition(".")[0]
    if first in sys.stdlib_module_names or first == "fedrec":
        return True
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def is_user_package(module: str) -> bool:
    """Whether a module is, or contains, a package of methods or plug-ins."""
    return any(each == module or each.startswith(f"{module}.") for each in _OWN)
