"""What a source file says to the interpreter, without comments, docstrings and facts that are only printed.

It is spelt as the same text by every version of Python: a run that was trained elsewhere is compared by it.
"""

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

_OURS = __name__.partition(".")[0]
_PRINTED_FACTS = ("paper", "cost")
"""Attributes of classes that tables print and no computation reads."""
_UNSAID = ("ctx", "kind", "type_comment")
"""Fields of a syntax tree that follow from others, or are prose."""


@dataclass(frozen=True)
class Code:
    """What a file says to the interpreter."""

    imports: frozenset[str]
    """What it imports of this package wherever it runs; some may name what is no module."""
    texts: frozenset[str]
    """Every text in it, names of settings among them."""
    names: frozenset[str]
    """What it assigns, or assigns from, outside of functions and classes."""
    digest: str


@cache
def source_code(text: str) -> Code:
    """The code of a file; raise `SyntaxError` where it is broken."""
    tree = ast.parse(text)
    reader = _Reader()
    reader.read(tree)
    assigned = (statement for statement in tree.body if isinstance(statement, ast.Assign | ast.AnnAssign))
    names = (node.id for statement in assigned for node in ast.walk(statement) if isinstance(node, ast.Name))
    digest = hashlib.sha256("".join(reader.words).encode()).hexdigest()
    return Code(frozenset(reader.imports), frozenset(reader.texts), frozenset(names), digest)


class _Reader:
    """Reads a syntax tree once: by hand, since `ast`'s own visitors take three times as long."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.imports: set[str] = set()
        self.texts: set[str] = set()

    def read(self, node: ast.AST) -> None:
        """Spell a node and all below it, without what is empty: versions differ in what they leave out."""
        kind = type(node)
        if isinstance(node, ast.Constant):
            self._read_constant(node)
            return
        if isinstance(node, ast.Import | ast.ImportFrom):
            self.imports.update(_imported(node))
        self.words += (kind.__name__, "(")
        for name in kind._fields:
            value = getattr(node, name, None)
            if value is None or value == [] or name in _UNSAID:
                continue
            self.words += (name, "=")
            if isinstance(value, list):
                self._read_list(node, value)
            else:
                self._read_value(value)
        self.words.append(")")

    def _read_constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.texts.add(node.value)
        self.words.append(repr(node.value))

    def _read_list(self, parent: ast.AST, values: list[object]) -> None:
        self.words.append("[")
        for value in values:
            if not (_is_prose(value, parent) or _is_empty_text(value, parent)):
                self._read_value(value)
        self.words.append("]")

    def _read_value(self, value: object) -> None:
        if isinstance(value, ast.AST):
            self.read(value)
        else:
            self.words.append(repr(value))
        self.words.append(",")


def _is_prose(value: object, parent: ast.AST) -> bool:
    """Whether this is a docstring, a fact of a class that is only printed, or for type checkers alone."""
    if isinstance(value, ast.Expr):
        # A string that stands by itself documents what is above it.
        return isinstance(value.value, ast.Constant) and isinstance(value.value.value, str)
    if isinstance(value, ast.If):
        return isinstance(value.test, ast.Name) and value.test.id == "TYPE_CHECKING"
    return isinstance(parent, ast.ClassDef) and _is_printed_fact(value)


def _is_empty_text(value: object, parent: ast.AST) -> bool:
    """Whether this is nothing in an f-string: some versions have it there."""
    return isinstance(parent, ast.JoinedStr) and isinstance(value, ast.Constant) and not value.value


def _is_printed_fact(statement: object) -> bool:
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    return any(isinstance(target, ast.Name) and target.id in _PRINTED_FACTS for target in targets)


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Names of modules of this package in an import statement; some may name what is no module."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if _is_ours(alias.name))
    elif node.module and not node.level and _is_ours(node.module):
        # The package itself holds a version and a door for users, nothing that its modules compute with.
        yield from () if node.module == _OURS else (node.module,)
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_ours(module: str) -> bool:
    return module.split(".")[0] == _OURS
