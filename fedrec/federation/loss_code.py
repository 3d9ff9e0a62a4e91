"""The code of a loss: what it does, the names it reads, and whose code is taken to stay as it is."""

import sys
from collections.abc import Hashable
from dis import get_instructions
from functools import cache
from itertools import chain
from types import CodeType
from typing import Any

_OWN = ("fedrec.methods", "fedrec.plugins")
"""The packages of this project whose functions and classes are read; the rest of it stays what it is."""
_READS_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME")


def code_structure(code: CodeType) -> Hashable:
    """Identity of a code object, independent of its file and line."""
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
    """A number, a text, or another value without parts."""
    # A number that is none equals no number, and zeros of both signs are equal.
    return (type(value).__name__, value.hex() if type(value) is float else value)


@cache
def globals_of(code: CodeType) -> tuple[str, ...]:
    """The names of globals that code reads, and functions that it makes."""
    own = (each.argval for each in get_instructions(code) if each.opname in _READS_GLOBALS)
    inner = (globals_of(each) for each in code.co_consts if isinstance(each, CodeType))
    return tuple(dict.fromkeys((*own, *chain(*inner))))


@cache
def names_of(code: CodeType) -> tuple[str, ...]:
    """All names of globals and attributes in code, and in functions that it makes."""
    inner = (names_of(each) for each in code.co_consts if isinstance(each, CodeType))
    return tuple(dict.fromkeys((*code.co_names, *chain(*inner))))


_HIDDEN = frozenset({
    "environ", "environb", "getenv", "getenvb", "globals", "locals", "vars", "eval", "exec", "__import__",
    "import_module", "__mro__", "__subclasses__", "f_globals", "f_locals",
})  # fmt: skip
"""Names by which code reads what no key can follow."""


@cache
def has_hidden_reads(code: CodeType) -> bool:
    """Whether code reads values by ways that no key can follow, as of a module that it imports itself."""
    imported = (each.argval for each in get_instructions(code) if each.opname == "IMPORT_NAME")
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return (
        not _HIDDEN.isdisjoint(code.co_names)
        or any(not is_foreign(name) for name in imported)
        or any(map(has_hidden_reads, inner))
    )


@cache
def is_foreign(module: str) -> bool:
    """Whether what a module defines is taken to stay as it is: Python's, a package's, and fedrec's base."""
    if module.startswith(_OWN):
        return False
    first = module.partition(".")[0]
    if first in sys.stdlib_module_names or first == "fedrec":
        return True
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def is_user_package(module: str) -> bool:
    """Whether modules of methods lie below a module."""
    return any(each == module or each.startswith(f"{module}.") for each in _OWN)
