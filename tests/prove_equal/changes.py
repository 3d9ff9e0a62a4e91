"""Statements that differ between two source trees, and whether a recording executed them."""

import ast
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fedrec.plan.source_digest import canonical_source, is_left_out

Key = tuple[str, ...]
"""The conditions, loops and other blocks around a statement inside its function, and the statement."""


@dataclass(frozen=True)
class Statement:
    """A statement of a source tree: a simple one, or the head of a compound one."""

    file: str
    """From the package's folder."""
    first: int
    last: int
    literals: tuple[str, ...]
    """The numbers that it spells."""

    def is_executed(self, lines: Mapping[str, Iterable[int]]) -> bool:
        """Whether any of its lines was executed."""
        return not set(range(self.first, self.last + 1)).isdisjoint(lines.get(self.file, ()))

    def __str__(self) -> str:
        return f"fedrec/{self.file}:{self.first}"


def changed_statements(
    before: Mapping[Key, list[Statement]], after: Mapping[Key, list[Statement]]
) -> list[Statement]:
    """The statements of `after` that `before` lacks, or has fewer times."""
    changed = (found for key, found in after.items() if len(found) > len(before.get(key, ())))
    return sorted((statement for found in changed for statement in found), key=str)


def literals_of(statements: Iterable[Statement]) -> Counter[str]:
    """How often statements spell each number."""
    return Counter(literal for statement in statements for literal in statement.literals)


def statements_of(package: Path, modules: Iterable[str]) -> dict[Key, list[Statement]]:
    """Every statement of some modules that can decide a number, by its key.

    Two kinds are left out, since they decide no number of a finished run: blocks that only raise an error, and
    functions whose name the package mentions nowhere.
    """
    found: dict[Key, list[Statement]] = defaultdict(list)
    mentioned = _mentioned(package)
    for module in modules:
        path = package.parent.joinpath(*module.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        file = path.relative_to(package).as_posix()
        own = _names_in(path)
        # A private function at module level is called by its own module alone.
        dead = {name for name in _private_functions(path) if name not in own}
        for key, node, last in _statements(_parsed(path), (), mentioned - dead):
            found[key].append(Statement(file, node.lineno, last, tuple(_numbers(node, last))))
    return dict(found)


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def _mentioned(package: Path) -> frozenset[str]:
    """Every name, attribute and text of a package, but for the names that functions are defined by."""
    return frozenset().union(*(_names_in(path) for path in package.rglob("*.py")))


@cache
def _names_in(path: Path) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.alias):
            found.add(node.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return frozenset(found)


def _private_functions(path: Path) -> Iterator[str]:
    for node in _parsed(path).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("_"):
            yield node.name


def modules_in(package: Path) -> list[str]:
    """The names of all modules of a package."""
    files = (path.relative_to(package.parent).with_suffix("") for path in sorted(package.rglob("*.py")))
    return [".".join(file.parts).removesuffix(".__init__") for file in files]


def _statements(
    parent: ast.AST, around: Key, mentioned: Container[str]
) -> Iterator[tuple[Key, ast.stmt, int]]:
    for name, value in ast.iter_fields(parent):
        if not isinstance(value, list) or _is_error_path(parent, value):
            continue
        for node in value:
            if isinstance(node, ast.ExceptHandler):
                caught = f"except {canonical_source(node.type) if node.type else ''}"
                yield from _statements(node, (*around, caught), mentioned)
            elif isinstance(node, ast.match_case):
                yield from _statements(node, (*around, f"case {canonical_source(node.pattern)}"), mentioned)
            elif isinstance(node, ast.stmt) and not is_left_out(node, parent):
                yield from _statement(node, (*around, name), mentioned)


def _is_error_path(parent: ast.AST, block: list[ast.AST]) -> bool:
    """Whether a block inside a function does nothing but raise an error."""
    if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module | ast.ClassDef):
        return False
    simple = (ast.Assign, ast.AnnAssign, ast.Expr, ast.Raise)
    return (
        bool(block) and isinstance(block[-1], ast.Raise) and all(isinstance(node, simple) for node in block)
    )


def _statement(node: ast.stmt, around: Key, mentioned: Container[str]) -> Iterator[tuple[Key, ast.stmt, int]]:
    blocks = [value for _, value in ast.iter_fields(node) if _is_block(value)]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        if node.name not in mentioned and not node.name.startswith("__"):
            # Nothing can call it.
            return
        # A function may be renamed or moved: its statements are the same.
        for decorator in node.decorator_list:
            yield (*around, "decorator", canonical_source(decorator)), node, node.lineno
        if not isinstance(node, ast.ClassDef):
            yield (*around, "def", canonical_source(node.args)), node, node.body[0].lineno - 1
        yield from _statements(node, (), mentioned)
    elif not blocks:
        if not isinstance(node, ast.Pass | ast.Raise) and not _is_ellipsis(node):
            yield (*around, canonical_source(node)), node, node.end_lineno or node.lineno
    else:
        heads = [value for _, value in ast.iter_fields(node) if not _is_block(value)]
        head = f"{type(node).__name__} {' '.join(canonical_source(part) for part in _nodes(heads))}"
        yield (*around, head), node, max(node.lineno, blocks[0][0].lineno - 1)
        yield from _statements(node, (*around, head), mentioned)


def _is_block(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], ast.stmt | ast.ExceptHandler)


def _is_ellipsis(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is ...


def _nodes(values: Iterable[object]) -> Iterator[ast.AST]:
    for value in values:
        if isinstance(value, list):
            yield from _nodes(value)
        elif isinstance(value, ast.AST):
            yield value


def _numbers(node: ast.stmt, last: int) -> Iterator[str]:
    for part in ast.walk(node):
        if (
            isinstance(part, ast.Constant)
            and type(part.value) in (int, float, complex)
            and part.lineno <= last
        ):
            yield repr(part.value)
