"""Digest of a source file: a hash of the code that can decide a number, and of nothing else.

The digest leaves out comments, docstrings, facts that are only printed, error and log messages, and type
annotations of functions. It replaces the names of local variables by numbers. Parameters keep their names,
since callers use them. Every version of Python gives the same digest, so that fedrec can compare runs from
different machines.

Three edits that can change a number do not change the digest. To detect them, every fingerprint would have to
change, and with it the state of every stored run.

- `def f(a=cache)` and `@cache def f(a)` are spelled the same: one list has defaults and decorators.
- A handler could read arguments of `raise` from the exception. A test finds a handler in covered modules that
  reads more than the exception's text.
- Code could compute with the class attributes `cost` and `paper`. A test finds covered modules that do.
"""

import ast
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

_PACKAGE = __name__.partition(".")[0]
_PRINTED_FACTS = ("paper", "cost")
"""Class attributes that tables print and no computation reads."""
_REDUNDANT = ("ctx", "kind", "type_comment")
"""Fields of a syntax tree that repeat other fields, or are prose."""
_IMPORTS = (ast.Import, ast.ImportFrom)
_LOGGERS = ("logger", "logging", "warnings")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_NAMED = (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)
"""Nodes whose field `name` binds a variable."""
_BINDING = (ast.FunctionDef, ast.AsyncFunctionDef, *_NAMED)
_CLOSED = frozenset({*_FUNCTIONS, ast.ClassDef, ast.Name, ast.Constant})
"""Nodes below which nothing belongs to the scope around them."""
_SPELLED_OTHERWISE = frozenset(
    {ast.arg, *_FUNCTIONS, *_COMPREHENSIONS, ast.ClassDef, ast.Raise, ast.Assert, ast.AnnAssign}
)
"""Nodes that the digest does not spell field by field."""
_MAYBE_LEFT_OUT = frozenset({ast.Expr, ast.If, ast.Global, ast.Nonlocal})
"""Nodes that the digest may leave out of a list under any parent."""
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {}
"""Cache of the fields that a kind of node has."""
_IN_CLASS: dict[str, str] = {}
"""The scope of a class body: its names are attributes, and functions inside it do not see them."""
_C_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True)
class SourceCode:
    """The parts of a parsed source file that fingerprints and checks read."""

    imports: frozenset[str]
    """Names that it imports from this package at run time; some are not modules."""
    texts: frozenset[str]
    """Every string in the code that the digest covers, names of settings among them."""
    names: frozenset[str]
    """Names in the assignments at module level."""
    digest: str


@cache
def source_code(text: str) -> SourceCode:
    """Parse the text of a file; raise `SyntaxError` if it is broken."""
    tree = ast.parse(text)
    writer = _DigestWriter()
    writer.write(tree)
    assigned = (statement for statement in tree.body if isinstance(statement, ast.Assign | ast.AnnAssign))
    names = (node.id for statement in assigned for node in ast.walk(statement) if isinstance(node, ast.Name))
    digest = hashlib.sha256("".join(writer.words).encode()).hexdigest()
    return SourceCode(frozenset(writer.imports), frozenset(writer.texts), frozenset(names), digest)


def c_digest(text: str) -> str:
    """The digest of a file of C or CUDA C: its lines without comments, without spaces at their ends.

    Comments are `/* */`; a `//` is code.
    """
    lines = (line.strip() for line in _C_COMMENT.sub(" ", text).splitlines())
    return hashlib.sha256("\n".join(line for line in lines if line).encode()).hexdigest()


def canonical_source(node: ast.AST) -> str:
    """A node as the digest spells it, with the names of its variables."""
    writer = _DigestWriter()
    writer.write(node)
    return "".join(writer.words)


class _DigestWriter:
    """Spells a syntax tree as words. `ast`'s own visitors would take three times as long."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.imports: set[str] = set()
        self.texts: set[str] = set()
        self._scopes: list[dict[str, str]] = []
        """The functions, comprehensions and classes around a node, the innermost last."""

    def write(self, node: ast.AST) -> None:
        """Spell a node and all below it, without empty fields: versions of Python differ in these."""
        if isinstance(node, ast.Name):
            self.words.append(self._spelled(node.id))
        elif isinstance(node, ast.Constant):
            self._write_constant(node)
        elif type(node) in _SPELLED_OTHERWISE:
            self._write_otherwise(node)
        else:
            self._write_fields(node, _fields_of(node))

    def _write_otherwise(self, node: ast.AST) -> None:
        """Spell a node that is not spelled field by field."""
        if isinstance(node, ast.arg):
            self.words.append(repr(node.arg))
        elif isinstance(node, _FUNCTIONS):
            self._write_function(node)
        elif isinstance(node, _COMPREHENSIONS):
            self._write_in_scope(node, _numbered(node, len(self._scopes)), _fields_of(node))
        elif isinstance(node, ast.ClassDef):
            self._write_fields(node, [name for name in _fields_of(node) if name != "body"])
            self._write_in_scope(node, _IN_CLASS, ["body"])
        elif isinstance(node, ast.Raise):
            raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            self._write_parts("Raise", [raised] if raised else [])
        elif isinstance(node, ast.Assert):
            self._write_parts("Assert", [node.test])
        elif isinstance(node, ast.AnnAssign) and self._scopes[-1:] != [_IN_CLASS]:
            self._write_parts("AnnAssign", [node.target, *([node.value] if node.value else [])])
        else:
            self._write_fields(node, _fields_of(node))

    def _write_constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.texts.add(node.value)
        self.words.append(repr(node.value))

    def _write_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        """Spell a function: defaults and decorators in the scope around it, the body in its own."""
        name, outside = "lambda", [*node.args.defaults]
        outside += [default or ast.Constant(None) for default in node.args.kw_defaults]
        if not isinstance(node, ast.Lambda):
            name, outside = self._spelled(node.name), outside + node.decorator_list
        self._write_parts(name, outside)
        self.words.append(_signature(node.args))
        self._write_in_scope(node, _numbered(node, len(self._scopes)), ["body"])

    def _write_in_scope(self, node: ast.AST, scope: dict[str, str], fields: Sequence[str]) -> None:
        self._scopes.append(scope)
        self._write_fields(node, fields)
        self._scopes.pop()

    def _write_parts(self, name: str, parts: Sequence[ast.AST]) -> None:
        self.words += (name, "(")
        for part in parts:
            self.write(part)
            self.words.append(",")
        self.words.append(")")

    def _write_fields(self, node: ast.AST, fields: Sequence[str]) -> None:
        if isinstance(node, _IMPORTS):
            self.imports.update(_imported(node))
        words = self.words
        words += (type(node).__name__, "(")
        for name in fields:
            value = getattr(node, name, None)
            if value is None:
                continue
            if isinstance(value, list):
                if value and (entries := _entries_to_write(value, node)):
                    words += (name, "=", "[")
                    for entry in entries:
                        self._write_value(node, entry)
                    words.append("]")
            else:
                words += (name, "=")
                self._write_value(node, value)
        words.append(")")

    def _write_value(self, node: ast.AST, value: object) -> None:
        if isinstance(value, ast.AST):
            self.write(value)
        elif isinstance(value, str) and isinstance(node, _NAMED):
            self.words.append(self._spelled(value))
        else:
            self.words.append(repr(value))
        self.words.append(",")

    def _spelled(self, name: str) -> str:
        """The number of a local variable, the name of anything else."""
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return f"name.{name}"


def _numbered(node: ast.AST, depth: int) -> dict[str, str]:
    """The local variables of a function or comprehension, numbered in the order in which it binds them.

    Parameters and global names keep their names.
    """
    bound: dict[str, None] = {}
    fixed = set(_parameters(node.args)) if isinstance(node, _FUNCTIONS) else set()
    outer: set[str] = set()
    for child in _own_nodes(node):
        if isinstance(child, ast.Name):
            if not isinstance(child.ctx, ast.Load):
                bound.setdefault(child.id)
        elif isinstance(child, ast.Global):
            fixed.update(child.names)
        elif isinstance(child, ast.Nonlocal):
            outer.update(child.names)
        elif isinstance(child, _BINDING) and child.name:
            bound.setdefault(child.name)
    names = [name for name in bound if name not in outer | fixed]
    return {name: f"local{depth}.{number}" for number, name in enumerate(names)} | {
        name: f"name.{name}" for name in fixed
    }


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below a function or comprehension that belong to its own scope, in order."""
    waiting = _children(node)[::-1]
    while waiting:
        child = waiting.pop()
        yield child
        if type(child) in _CLOSED:
            continue
        if isinstance(child, _COMPREHENSIONS):
            yield from (inner.target for inner in ast.walk(child) if isinstance(inner, ast.NamedExpr))
        else:
            waiting += _children(child)[::-1]


def _children(node: ast.AST) -> list[ast.AST]:
    """The direct children of a node, in order, without redundant ones."""
    children: list[ast.AST] = []
    for name in _fields_of(node):
        value = getattr(node, name, None)
        if isinstance(value, ast.AST):
            children.append(value)
        elif isinstance(value, list) and value:
            children += [entry for entry in value if isinstance(entry, ast.AST)]
    return children


def _fields_of(node: ast.AST) -> tuple[str, ...]:
    """The fields of a node, but for redundant ones."""
    kind = type(node)
    if kind not in _FIELDS:
        _FIELDS[kind] = tuple(name for name in kind._fields if name not in _REDUNDANT)
    return _FIELDS[kind]


def _parameters(arguments: ast.arguments) -> list[str]:
    """The names of all parameters: plain ones in order, then `*args` and `**kwargs`."""
    extra = [argument.arg for argument in (arguments.vararg, arguments.kwarg) if argument]
    plain = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    return [*(argument.arg for argument in plain), *extra]


def _signature(arguments: ast.arguments) -> str:
    """The names and kinds of parameters, without annotations."""
    kinds = (arguments.posonlyargs, arguments.args, arguments.kwonlyargs)
    names = [[argument.arg for argument in kind] for kind in kinds]
    return repr([*names, *(argument and argument.arg for argument in (arguments.vararg, arguments.kwarg))])


def _entries_to_write(entries: list[object], parent: ast.AST) -> list[object]:
    """The entries of a list that decide a number."""
    if isinstance(parent, ast.JoinedStr | ast.ClassDef) or any(
        type(part) in _MAYBE_LEFT_OUT for part in entries
    ):
        return [entry for entry in entries if not is_left_out(entry, parent)]
    return entries


def is_left_out(value: object, parent: ast.AST) -> bool:
    """Whether an entry of a list decides no number: prose, a log message, a type or a scope declaration."""
    if isinstance(value, ast.Expr):
        return _is_prose(value.value) or _is_message(value.value)
    if isinstance(value, ast.If):
        return _is_for_types(value)
    if isinstance(parent, ast.JoinedStr):
        # Some versions of Python put empty texts into an f-string.
        return isinstance(value, ast.Constant) and not value.value
    return isinstance(value, ast.Global | ast.Nonlocal) or (
        isinstance(parent, ast.ClassDef) and _is_printed_fact(value)
    )


def _is_for_types(branch: ast.If) -> bool:
    """Whether only type checkers read a branch. With an `else`, that part would run."""
    return isinstance(branch.test, ast.Name) and branch.test.id == "TYPE_CHECKING" and not branch.orelse


def _is_prose(value: ast.expr) -> bool:
    """Whether an expression is only a text: it documents the code above it."""
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _is_message(value: ast.expr) -> bool:
    """Whether an expression prints or logs."""
    if not isinstance(value, ast.Call):
        return False
    if isinstance(value.func, ast.Name):
        return value.func.id == "print"
    return (
        isinstance(value.func, ast.Attribute)
        and isinstance(value.func.value, ast.Name)
        and value.func.value.id in _LOGGERS
    )


def _is_printed_fact(statement: object) -> bool:
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    return any(isinstance(target, ast.Name) and target.id in _PRINTED_FACTS for target in targets)


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Names that an import statement takes from this package; some are not modules."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if _is_ours(alias.name))
    elif node.module and not node.level and _is_ours(node.module):
        # The package itself has a version and functions for users. Its modules compute with neither.
        yield from () if node.module == _PACKAGE else (node.module,)
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_ours(module: str) -> bool:
    return module.split(".")[0] == _PACKAGE
