"""Names of modules, classes and functions are nouns and verbs of the field, and none of a few vague words."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedrec.config.modules import method_names
from fedrec.plan.fingerprint import NEUTRAL, closure, run_modules
from tests.conftest import ROOT

DENIED = frozenset(
    [
        "alike",
        "anew",
        "apart",
        "aside",
        "asked",
        "beside",
        "besides",
        "crew",
        "elsewhere",
        "room",
        "said",
        "standing",
        "standings",
        "tell",
        "told",
        "together",
        "usual",
    ]
)
"""Words that name nothing: they leave out who acts, or what on."""
ALLOWED = frozenset({"Checkpoints.said"})
"""Names that code with a fingerprint calls: a rename would age every stored run."""
SOURCES_WITH_FINGERPRINT = (
    "fedrec.data.fetch",
    "fedrec.data.prepare",
    "fedrec.data.split",
    "fedrec.data.statistics",
)
"""Further modules whose fingerprint is stored, beside those of runs."""


def words_of(name: str) -> set[str]:
    """The words of a name in any case: `_told_states` and `ToldStates` have the same two."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def names_in(text: str) -> Iterator[str]:
    """The names of classes and functions in a source file; methods with the name of their class."""
    tree = ast.parse(text)
    methods = {
        node: owner.name for owner in ast.walk(tree) if isinstance(owner, ast.ClassDef) for node in owner.body
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{methods[node]}.{node.name}" if node in methods else node.name


def denied_names(package: Path, covered: frozenset[str] = frozenset()) -> list[str]:
    """The names of a package that contain a denied word, but for those of `covered` modules."""
    found = []
    for path in sorted(package.rglob("*.py")):
        module = ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")
        if module not in covered:
            names = (path.stem, *names_in(path.read_text(encoding="utf-8")))
            found += [
                f"{module}: {name}" for name in names if name not in ALLOWED and words_of(name) & DENIED
            ]
    return found


@pytest.fixture(scope="module")
def covered():
    """The modules whose names are part of a fingerprint."""
    engines = ("fused", "batched", "loop")
    of_runs = {
        module for name in method_names() for engine in engines for module in run_modules(name, engine)
    }
    return frozenset(of_runs) | frozenset(closure(SOURCES_WITH_FINGERPRINT, NEUTRAL))


def test_no_name_contains_a_denied_word(covered):
    assert denied_names(ROOT / "fedrec", covered) == []


def test_an_allowed_name_is_in_use():
    everything = {name for path in (ROOT / "fedrec").rglob("*.py") for name in names_in(path.read_text())}
    assert everything >= ALLOWED


def test_a_denied_word_is_found_in_any_case(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "told.py").write_text("class Told:\n    def _said_once(self): ...\n\n\ndef retold(): ...\n")
    (package / "covered.py").write_text("def told(): ...\n")
    assert denied_names(package, frozenset({"package.covered"})) == [
        "package.told: told",
        "package.told: Told",
        "package.told: Told._said_once",
    ]
