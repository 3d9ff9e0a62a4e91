"""A public name of the package means one thing, wherever it is met."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

CONVENTIONS = {
    "METHOD": ("methods/", "what the file of a method trains by; found by the file's name"),
    "PLUGIN": ("plugins/", "what the file of a plug-in trains by; found by the file's name"),
    "VARIANTS": ("methods/ plugins/", "the classes that settings choose in the file of a method or plug-in"),
    "LAYOUT": ("reporting/", "what the file of a layout declares; read without importing it"),
    "CHAPTER": ("reporting/tables/audit/", "how the page presents an audit table; found by the file's name"),
    "build": ("reporting/", "writes the target of a layout; found by the file's name"),
    "draw": ("reporting/figures/", "the figure, rows and caption of a layout"),
    "make": ("federation/engines/", "the engine of a module; found by the engine's name"),
    "train": ("__init__ runs/train", "trains a run: by its request, and as Python's interface asks for it"),
    "compare": ("__init__ audit/significance", "compares methods: by their runs, and by two rows of values"),
    "add_commands": ("cli/", "adds the commands of a module to the parser"),
    "logger": ("", "the log of its module"),
    "philox": ("random/", "the same generator for numpy and for torch"),
}
"""Names that several modules define on purpose: in which folders, and what each of them is."""


def public_names(module: ast.Module) -> Iterator[str]:
    """Classes, functions and constants at the top of a module."""
    for node in module.body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                names = [name]
            case ast.Assign(targets=targets):
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                names = [name]
            case _:
                names = []
        yield from (name for name in names if not name.startswith("_"))


def definitions(package: Path) -> dict[str, list[str]]:
    """The modules that define each public name, as paths below the package."""
    modules = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        for name in dict.fromkeys(public_names(ast.parse(path.read_text(encoding="utf-8")))):
            modules[name].append(path.relative_to(package).as_posix())
    return modules


def double_meanings(package: Path) -> dict[str, list[str]]:
    """Names that several modules define, without those that are a convention where they stand."""
    return {
        name: modules
        for name, modules in definitions(package).items()
        if len(modules) > 1
        and not (
            name in CONVENTIONS
            and all(m.startswith(tuple(CONVENTIONS[name][0].split()) or "") for m in modules)
        )
    }


def test_a_public_name_means_one_thing():
    assert double_meanings(ROOT / "fedrec") == {}


@pytest.fixture(scope="module")
def ours():
    return definitions(ROOT / "fedrec")


@pytest.mark.parametrize("name", CONVENTIONS)
def test_a_convention_is_followed_by_several_modules(ours, name):
    assert len(ours[name]) > 1


def test_a_second_meaning_is_seen(tmp_path):
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods" / "a.py").write_text("METHOD = 1\n_own = 2\nKey: type = str\n\n\ndef run(): ...\n")
    (tmp_path / "methods" / "b.py").write_text("METHOD = 2\n_own = 3\nKey = int\n\n\nclass run: ...\n")
    meant = ["methods/a.py", "methods/b.py"]
    assert double_meanings(tmp_path) == {"Key": meant, "run": meant}
    (tmp_path / "other.py").write_text("METHOD = 3\n")
    assert double_meanings(tmp_path)["METHOD"] == [*meant, "other.py"]
