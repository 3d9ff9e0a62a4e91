"""Statements that differ between two source trees, and whether a recording executed them."""

import ast
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedrec.plan.source_digest import canonical_source, is_left_out

_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
_PART = (ast.stmt, ast.ExceptHandler, ast.match_case)
"""Nodes that a block is made of."""
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.Expr, ast.Raise)
_ABSTRACT = ("ABC", "Protocol", "Generic")
"""Base classes that call no method."""
_PASSIVE = ("cache", "property", "cached_property", "staticmethod", "classmethod", "override", "dataclass")
"""Decorators that call no function and keep none for a later call."""
_LITERAL = (bool, int, float, complex, type(None))
_ORDERS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


@dataclass(frozen=True)
class Statement:
    """A statement of a source tree: a simple one, or the head of a compound one."""

    file: str
    """From the package's folder."""
    place: str
    """The classes and functions around it."""
    key: tuple[str, ...]
    """The blocks around it inside its function, the statement before it, and the statement."""
    at: int
    """The line on which it begins."""
    lines: range
    """It is executed if any of these lines is."""
    literals: tuple[str, ...]
    """The numbers, truth values, `None` and comparisons by order that it spells."""

    def is_executed(self, lines: Mapping[str, Iterable[int]]) -> bool:
        """Whether any of its lines was executed."""
        return not set(self.lines).isdisjoint(lines.get(self.file, ()))

    def __str__(self) -> str:
        return f"fedrec/{self.file}:{self.at}"


@dataclass(frozen=True)
class Changes:
    """The statements of one version that have no counterpart in another version."""

    statements: list[Statement]
    """Where one of several equal statements is new, all of them."""
    literals: Counter[str]
    """How often the new ones spell each number, truth value, `None` and comparison by order."""


def changes(before: Sequence[Statement], after: Sequence[Statement], covered: Container[str]) -> Changes:
    """The statements of `after`, in `covered` files, that have no counterpart in `before`.

    Functions may be moved, renamed, split and joined. So the counterpart of a statement is in the same function.
    Where only one version has the function of the one or of the other, it may be in any function.
    """
    common = {(one.file, one.place) for one in before} & {(one.file, one.place) for one in after}
    old, new = _by_key(before, common), _by_key(after, common)
    found: list[Statement] = []
    literals: Counter[str] = Counter()
    for key, places in new.items():
        surplus, statements = _unmatched(old[key], places)
        own = [one for one in statements if one.file in covered]
        found += own if surplus else ()
        for one in own[:surplus]:
            literals.update(one.literals)
    return Changes(sorted(found, key=lambda one: (one.file, one.at)), literals)


_ByPlace = dict[tuple[str, str] | None, list[Statement]]
"""Statements of one key by function; None stands for all functions that only one version has."""


def _by_key(
    statements: Iterable[Statement], common: Container[tuple[str, str]]
) -> dict[tuple[str, ...], _ByPlace]:
    found: dict[tuple[str, ...], _ByPlace] = defaultdict(lambda: defaultdict(list))
    for one in statements:
        place = (one.file, one.place)
        found[one.key][place if place in common else None].append(one)
    return found


def _unmatched(old: _ByPlace, new: _ByPlace) -> tuple[int, list[Statement]]:
    """How many new statements have no counterpart, and the statements that may be meant."""
    gone, created = len(old[None]), new[None]
    left = sum(max(0, len(there) - len(new[place])) for place, there in old.items() if place is not None)
    grown = [here for place, here in new.items() if place is not None and len(here) > len(old[place])]
    added = sum(len(here) for here in grown) - sum(len(old[(one[0].file, one[0].place)]) for one in grown)
    unmatched = max(0, added - gone) + max(0, len(created) - max(0, gone - added) - left)
    return unmatched, [*created, *(one for here in grown for one in here)]


def statements_of(package: Path) -> list[Statement]:
    """Every statement of a package that can decide a number.

    Two kinds are left out, since they decide no number of a finished run: blocks that only raise an error, and
    functions that nothing can call.
    """
    parsed = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(package.rglob("*.py"))}
    mentions = {path: frozenset(_mentioned(tree)) for path, tree in parsed.items()}
    everywhere = frozenset().union(*mentions.values())
    imported = frozenset().union(*(frozenset(_imported(tree)) for tree in parsed.values()))
    found: list[Statement] = []
    for path, tree in parsed.items():
        # A private function of a module is called by that module, unless another one imports it.
        dead = {name for name in _private_functions(tree) if name not in mentions[path] | imported}
        found += _Reader(tree, path.relative_to(package).as_posix(), everywhere - dead).statements()
    return found


def file_of(module: str, package: Path) -> str:
    """The file of a module, from the package's folder."""
    path = package.parent.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return path.relative_to(package).as_posix()


def _mentioned(tree: ast.Module) -> Iterator[str]:
    """Every name, attribute and text of a file, but for the names that functions are defined by."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _imported(tree: ast.Module) -> Iterator[str]:
    """Every name that a file imports, or takes from something other than its own objects."""
    for node in ast.walk(tree):
        if isinstance(node, ast.alias):
            yield node.name
        elif isinstance(node, ast.Attribute) and _last_name(node.value) not in ("self", "cls"):
            yield node.attr


def _private_functions(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, _FUNCTION) and node.name.startswith("_"):
            yield node.name


class _Reader:
    """Reads the statements of one file."""

    def __init__(self, module: ast.Module, file: str, mentioned: Container[str]) -> None:
        self._module = module
        self._file = file
        self._mentioned = mentioned
        self._computes_names = any(map(_is_computed_name, ast.walk(self._module)))

    def statements(self) -> Iterator[Statement]:
        yield from self._scope(self._module, "")

    def _scope(
        self, node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, place: str
    ) -> Iterator[Statement]:
        """The statements of a module, a class or a function."""
        yield from self._block(node, node.body, place, ("body",))

    def _block(
        self, parent: ast.AST, block: Sequence[ast.AST], place: str, around: tuple[str, ...]
    ) -> Iterator[Statement]:
        # Modules and classes execute all of their statements, in whatever order functions and imports are sorted.
        is_ordered = not isinstance(parent, ast.Module | ast.ClassDef)
        previous = ""
        for node in block:
            if is_left_out(node, parent) or _is_error_handler(node):
                continue
            head = _head(node)
            key = (*around, f"after {previous}" if is_ordered else "", head)
            if isinstance(node, (*_FUNCTION, ast.ClassDef)):
                if not self._is_dead(node, parent):
                    yield from self._definition(node, place, around)
            elif _blocks(node):
                yield self._statement(place, key, node, _head_lines(node), _head_nodes(node))
                for name, inner in _blocks(node):
                    if not _is_error_path(inner):
                        yield from self._block(node, inner, place, (*around, head, name))
            elif not isinstance(node, ast.Pass | ast.Raise) and not _is_ellipsis(node):
                yield self._statement(place, key, node, _lines(node), [node])
            previous = head

    def _definition(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, place: str, around: tuple[str, ...]
    ) -> Iterator[Statement]:
        """A function or class may be renamed or moved: its statements are the same."""
        for decorator in node.decorator_list:
            key = (*around, "decorator", canonical_source(decorator))
            yield self._statement(place, key, decorator, _lines(decorator), [decorator])
        inner = f"{place}.{node.name}" if place else node.name
        heads = _head_nodes(node)
        body = list(self._scope(node, inner))
        key = (type(node).__name__, *map(canonical_source, heads))
        # A function that is defined is not executed yet; one without statements never is.
        is_called = body and not isinstance(node, ast.ClassDef)
        lines = (
            range(node.body[0].lineno, _last(node) + 1) if is_called else range(node.lineno, node.lineno + 1)
        )
        yield self._statement(inner, key, node, lines, heads)
        yield from body

    def _statement(
        self, place: str, key: tuple[str, ...], node: ast.AST, lines: range, spelled: Iterable[ast.AST]
    ) -> Statement:
        literals = tuple(text for part in spelled for text in _literals(part))
        return Statement(self._file, place, key, _lines(node)[0], lines, literals)

    def _is_dead(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, parent: ast.AST) -> bool:
        """Whether nothing can call a function, or create an object of a class."""
        if node.name.startswith("__") or node.name in self._mentioned or self._computes_names:
            return False
        if any(_last_name(decorator) not in _PASSIVE for decorator in node.decorator_list):
            return False
        # Others call the methods of a class that is derived from theirs.
        return not isinstance(parent, ast.ClassDef) or all(
            _last_name(base) in _ABSTRACT for base in parent.bases
        )


def _is_computed_name(node: ast.AST) -> bool:
    """Whether a node looks up an attribute by a name that is not spelled."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "getattr"
        and not isinstance(node.args[1], ast.Constant)
    )


def _last_name(node: ast.expr) -> str:
    """The name of a decorator or base class, without its module, arguments and types."""
    if isinstance(node, ast.Call):
        return _last_name(node.func)
    if isinstance(node, ast.Subscript):
        return _last_name(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_error_handler(node: ast.AST) -> bool:
    return isinstance(node, ast.ExceptHandler) and _is_error_path(node.body)


def _is_error_path(block: Sequence[ast.AST]) -> bool:
    """Whether a block does nothing but raise an error."""
    return isinstance(block[-1], ast.Raise) and all(isinstance(node, _SIMPLE) for node in block)


def _blocks(node: ast.AST) -> list[tuple[str, list[ast.AST]]]:
    return [(name, value) for name, value in ast.iter_fields(node) if _is_block(value)]


def _is_block(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], _PART)


def _head(node: ast.AST) -> str:
    """A statement as the digest spells it, without the blocks inside."""
    if not _blocks(node):
        return canonical_source(node)
    return " ".join((type(node).__name__, *map(canonical_source, _head_nodes(node))))


def _head_nodes(node: ast.AST) -> list[ast.AST]:
    """The expressions of a compound statement: conditions, parameters with defaults, base classes."""
    left_out = ("decorator_list", "returns", "type_params")
    values = (value for name, value in ast.iter_fields(node) if name not in left_out and not _is_block(value))
    return [
        part
        for value in values
        for part in (value if isinstance(value, list) else [value])
        if isinstance(part, ast.AST)
    ]


def _lines(node: ast.AST) -> range:
    # The pattern of a case knows its lines, the case does not.
    node = node.pattern if isinstance(node, ast.match_case) else node
    return range(node.lineno, _last(node) + 1)


def _last(node: ast.AST) -> int:
    return node.end_lineno or node.lineno


def _head_lines(node: ast.AST) -> range:
    """The lines of a compound statement before its first block."""
    first = _lines(node)[0]
    return range(first, max(first + 1, _lines(_blocks(node)[0][1][0])[0]))


def _is_ellipsis(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is ...


def _literals(node: ast.AST) -> Iterator[str]:
    """The numbers of a node with their signs, its truth values, `None`, and comparisons by order; not its types."""
    if isinstance(node, ast.Constant):
        yield from [repr(node.value)] if isinstance(node.value, _LITERAL) else []
        return
    if (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.USub)
        and isinstance(node.operand, ast.Constant)
    ):
        yield f"-{node.operand.value!r}"
        return
    if isinstance(node, ast.Compare):
        yield from (_ORDERS[type(operator)] for operator in node.ops if type(operator) in _ORDERS)
    annotation = getattr(node, "annotation", None)
    for child in ast.iter_child_nodes(node):
        if child is not annotation:
            yield from _literals(child)
