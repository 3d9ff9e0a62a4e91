"""Which source files a piece of work depends on, and the hash that names them.

The workflow gives a rule exactly these files as inputs, so that editing a module re-runs
what uses it and nothing else; a result records the hash.
"""

import ast
import hashlib
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_ROOT = _PACKAGE.parent


def sources_of(*modules: str) -> list[Path]:
    """The files of `modules` and of every fedrec module they import, directly or not, sorted."""
    found: set[str] = set()
    waiting = [*modules]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(_imports(name))
    return sorted(_file_of(name) for name in found)


def code_hash(*modules: str) -> str:
    """sha256 over the names and contents of `sources_of(*modules)`."""
    digest = hashlib.sha256()
    for path in sources_of(*modules):
        digest.update(f"{path.relative_to(_ROOT).as_posix()}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def _imports(module: str) -> frozenset[str]:
    """The fedrec modules named by the import statements of `module`, wherever they stand."""
    tree = ast.parse(_file_of(module).read_text(encoding="utf-8"))
    named: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            named.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            named.add(node.module)
            # `from package import module` names a module too, where it is one.
            named.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(name for name in named if name.split(".")[0] == _PACKAGE.name and _exists(name))


def _file_of(module: str) -> Path:
    path = _ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _exists(module: str) -> bool:
    return _file_of(module).is_file()
