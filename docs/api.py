"""The API reference, read from the sources of fedrec's modules without importing them.

Names without a leading underscore are public. The string below a constant or a field describes it.
"""

import ast
import inspect
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path

_LONG = 60
"""A value with more letters is not shown."""
_LINE = 88
"""The most letters of a signature in one line; a longer one has a line for each parameter."""


@dataclass(frozen=True)
class Item:
    """A function, a class, a method, a field or a constant."""

    name: str
    """Its full name, also its anchor."""
    title: str
    code: str
    """Its signature, or its value."""
    text: str
    """Its docstring."""


@dataclass(frozen=True)
class Module:
    """A module with its public names."""

    name: str
    text: str
    items: Sequence[Item]
    offers: Sequence[tuple[str, str]] = ()
    """Names that it re-exports, each with the full name in its own module."""


@dataclass(frozen=True)
class Package:
    """The modules of one page."""

    name: str
    modules: Sequence[Module]


def packages_of(folder: Path, rendered: Callable[[str], str]) -> list[Package]:
    """The package in a folder, its direct subpackages, and deeper ones with `__all__`.

    `rendered` turns docstrings into HTML.
    """
    by_package: dict[str, list[Module]] = {}
    own_pages = []
    for path in sorted(folder.rglob("*.py"), key=_order):
        parts = path.relative_to(folder.parent).with_suffix("").parts
        names = parts[:-1] if parts[-1] == "__init__" else parts
        if any(name.startswith("_") for name in names):
            continue
        module = _module(path, ".".join(names), rendered)
        if parts[-1] == "__init__" and module.offers:
            own_pages.append(module.name)
        above = (page for page in own_pages if f"{module.name}.".startswith(f"{page}."))
        page = max(above, key=len, default=".".join(parts[: min(2, len(parts) - 1)]))
        by_package.setdefault(page, []).append(module)
    return [Package(name, modules) for name, modules in sorted(by_package.items())]


def _order(path: Path) -> tuple[tuple[str, ...], bool, str]:
    """The sort key of a module: a package comes before its modules."""
    return path.parent.parts, path.stem != "__init__", path.stem


def _module(path: Path, name: str, rendered: Callable[[str], str]) -> Module:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    items = [replace(item, text=rendered(item.text)) for item in _items(tree, name)]
    return Module(name, rendered(_text(tree)), items, _offers(tree))


def _offers(tree: ast.Module) -> list[tuple[str, str]]:
    """The names in `__all__` of other modules, with their full names there."""
    origins = {
        (one.asname or one.name): f"{node.module}.{one.name}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module
        for one in node.names
    }
    (listed,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ][:1] or [()]
    return [(name, origins[name]) for name in listed if name in origins]


def _items(owner: ast.Module | ast.ClassDef, prefix: str) -> Iterator[Item]:
    """The public names of a module or a class, in order; members come after their class."""
    for index, node in enumerate(owner.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_public(node.name):
            yield Item(f"{prefix}.{node.name}", node.name, _signature(node), _text(node))
        elif isinstance(node, ast.ClassDef) and _is_public(node.name):
            bases = ", ".join(map(ast.unparse, node.bases))
            code = f"class {node.name}({bases})" if bases else f"class {node.name}"
            yield Item(f"{prefix}.{node.name}", node.name, code, _text(node))
            for item in _items(node, f"{prefix}.{node.name}"):
                yield replace(item, title=f"{node.name}.{item.title}")
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            described = owner.body[index + 1] if index + 1 < len(owner.body) else None
            yield from _values(node, described, prefix, is_field=isinstance(owner, ast.ClassDef))


def _values(
    node: ast.AnnAssign | ast.Assign, described: ast.stmt | None, prefix: str, *, is_field: bool
) -> Iterator[Item]:
    """Constants and fields: all fields, and constants with a description."""
    targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
    text = _below(described)
    for target in targets:
        if isinstance(target, ast.Name) and _is_public(target.id) and (text or is_field):
            kind = f": {ast.unparse(node.annotation)}" if isinstance(node, ast.AnnAssign) else ""
            value = f" = {ast.unparse(node.value)}" if node.value else ""
            shown = value if len(value) < _LONG else ""
            yield Item(f"{prefix}.{target.id}", target.id, f"{target.id}{kind}{shown}", text)


def _below(node: ast.stmt | None) -> str:
    """The string below a constant or a field."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return inspect.cleandoc(str(node.value.value))
    return ""


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """A function without its body, with decorators that change its use, such as `property`."""
    empty = copy(node)
    empty.body = []
    code = ast.unparse(empty).removesuffix(":")
    if max(map(len, code.splitlines())) <= _LINE:
        return code
    before, _, _ = code.rpartition("\n")
    kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    parameters = "".join(f"\n    {one}," for one in _parameters(node.args))
    line = f"{kind} {node.name}({parameters}\n){result}"
    return f"{before}\n{line}" if before else line


def _parameters(arguments: ast.arguments) -> list[str]:
    """The parameters of a function as text."""
    named = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(named) - len(arguments.defaults)) + [*arguments.defaults]
    words = [_parameter(one, default) for one, default in zip(named, defaults, strict=True)]
    if arguments.posonlyargs:
        words.insert(len(arguments.posonlyargs), "/")
    if arguments.vararg:
        words.append(f"*{ast.unparse(arguments.vararg)}")
    elif arguments.kwonlyargs:
        words.append("*")
    words += [
        _parameter(one, default)
        for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    return [*words, f"**{ast.unparse(arguments.kwarg)}"] if arguments.kwarg else words


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    if default is None:
        return ast.unparse(argument)
    return f"{ast.unparse(argument)}{' = ' if argument.annotation else '='}{ast.unparse(default)}"


def _text(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return ast.get_docstring(node) or ""


def _is_public(name: str) -> bool:
    return not name.startswith("_")
