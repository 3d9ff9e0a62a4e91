"""Tiny packages, written as texts, whose versions are compared."""

from pathlib import Path
from textwrap import dedent

from tests.prove_equal.changes import Changes, changes, statements_of


def package(folder: Path, **modules: str) -> Path:
    """A package `fedrec` in `folder`, of modules by name."""
    made = folder / "fedrec"
    made.mkdir(parents=True)
    for name, text in modules.items():
        made.joinpath(f"{name}.py").write_text(dedent(text))
    return made


def both_changes(before: Path, after: Path) -> tuple[Changes, Changes]:
    """The changes of the newer version, and those of the older one; every file counts."""
    old, new = statements_of(before), statements_of(after)
    files = {one.file for one in (*old, *new)}
    return changes(old, new, files), changes(new, old, files)
