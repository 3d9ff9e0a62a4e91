"""The reference of what fedrec's modules offer: read from their sources, which are not imported.

Public is what has no underscore before its name. A constant or a field is described by the text below it.
"""

import ast
import inspect
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path

_LONG = 60
"""Letters of a value that is not shown."""


@dataclass(frozen=True)
class Item:
    """A function, a class, a method, a field or a constant."""

    name: str
    """Its full name, which is its anchor."""
    title: str
    code: str
    """How it is called, or what it is."""
    text: str
    """Its docstring."""


@dataclass(frozen=True)
class Module:
    """A module, and what it offers."""

    name: str
    text: str
    items: Sequence[Item]


@dataclass(frozen=True)
class Package:
    """Modules that stand on one page."""

    name: str
    modules: Sequence[Module]


def packages_of(folder: Path, rendered: Callable[[str], str]) -> list[Package]:
    """The package in a folder, and each package right below it; `rendered` makes HTML of docstrings."""
    by_package: dict[str, list[Module]] = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder.parent).with_suffix("").parts
        names = parts[:-1] if parts[-1] == "__init__" else parts
        if not any(name.startswith("_") for name in names):
            module = _module(path, ".".join(names), rendered)
            by_package.setdefault(".".join(parts[: min(2, len(parts) - 1)]), []).append(module)
    return [Package(name, modules) for name, modules in by_package.items()]


def _module(path: Path, name: str, rendered: Callable[[str], str]) -> Module:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    items = [replace(item, text=rendered(item.text)) for item in _items(tree, name)]
    return Module(name, rendered(_text(tree)), items)


def _items(owner: ast.Module | ast.ClassDef, prefix: str) -> Iterator[Item]:
    """What stands in a module or a class, in its order; what a class has comes after it."""
    for place, node in enumerate(owner.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_public(node.name):
            yield Item(f"{prefix}.{node.name}", node.name, _signature(node), _text(node))
        elif isinstance(node, ast.ClassDef) and _is_public(node.name):
            bases = ", ".join(map(ast.unparse, node.bases))
            code = f"class {node.name}({bases})" if bases else f"class {node.name}"
            yield Item(f"{prefix}.{node.name}", node.name, code, _text(node))
            for item in _items(node, f"{prefix}.{node.name}"):
                yield replace(item, title=f"{node.name}.{item.title}")
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            described = owner.body[place + 1] if place + 1 < len(owner.body) else None
            yield from _values(node, described, prefix, is_field=isinstance(owner, ast.ClassDef))


def _values(
    node: ast.AnnAssign | ast.Assign, described: ast.stmt | None, prefix: str, *, is_field: bool
) -> Iterator[Item]:
    """A constant or a field: every field, and of constants those that a text describes."""
    targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
    text = _below(described)
    for target in targets:
        if isinstance(target, ast.Name) and _is_public(target.id) and (text or is_field):
            kind = f": {ast.unparse(node.annotation)}" if isinstance(node, ast.AnnAssign) else ""
            value = f" = {ast.unparse(node.value)}" if node.value else ""
            shown = value if len(value) < _LONG else ""
            yield Item(f"{prefix}.{target.id}", target.id, f"{target.id}{kind}{shown}", text)


def _below(node: ast.stmt | None) -> str:
    """The text that stands below a constant or a field."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return inspect.cleandoc(str(node.value.value))
    return ""


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """A function without its body, with what decides how it is used, as a property is."""
    empty = copy(node)
    empty.body = []
    return ast.unparse(empty).removesuffix(":")


def _text(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return ast.get_docstring(node) or ""


def _is_public(name: str) -> bool:
    return not name.startswith("_")
