"""What the digest leaves out decides no number today: no module that a fingerprint covers computes with it."""

import ast
import re

import pytest

from fedrec.config.methods import load_methods
from fedrec.config.modules import method_names
from fedrec.federation.engines.engine import ENGINES
from fedrec.plan.fingerprint import run_modules
from fedrec.plan.source_digest import canonical_source, is_left_out
from tests.compositions import compositions
from tests.conftest import ROOT
from tests.prove_equal.changes import file_of

FACT = re.compile(r"attr='(?:cost|paper)'|name\.(?:cost|paper)\b|'(?:cost|paper)'")
"""An attribute, a name or a text as the digest spells it, by which code could read a printed fact."""
OF_A_PROTOCOL = {"fedrec/data/split.py": 2}
"""Reads of `paper` that is no class attribute, but a value of the configuration."""


@pytest.fixture(scope="module")
def covered():
    """The syntax trees of all modules that the fingerprint of any method covers, by file."""
    names = [*method_names(), *compositions(load_methods(ROOT / "config/methods.yaml"))]
    modules = {module for name in names for engine in ENGINES for module in run_modules(name, engine)}
    paths = [ROOT / "fedrec" / file_of(module, ROOT / "fedrec") for module in sorted(modules)]
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in paths}


def facts_read(tree):
    return FACT.findall(canonical_source(tree))


def reads_beyond_text(tree):
    """Lines on which a handler reads more of its exception than the text."""
    handlers = (node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name)
    return [line for handler in handlers for line in _reads(handler, handler.name)]


def _reads(node, name):
    if isinstance(node, ast.Name):
        return [node.lineno] if node.id == name else []
    if isinstance(node, ast.Raise) or is_left_out(node, node) or _is_text(node, name):
        return []
    return [line for child in ast.iter_child_nodes(node) for line in _reads(child, name)]


def _is_text(node, name):
    """Whether a node is the text of the exception: `str(error)`, or a place in an f-string."""
    if isinstance(node, ast.Call):
        return ast.unparse(node) == f"str({name})"
    return isinstance(node, ast.FormattedValue) and ast.unparse(node.value) == name


def test_no_covered_module_reads_a_printed_fact_of_a_class(covered):
    found = {file: len(facts) for file, tree in covered.items() if (facts := facts_read(tree))}
    assert found == OF_A_PROTOCOL


def test_no_covered_module_reads_more_of_an_exception_than_its_text(covered):
    found = {file: lines for file, tree in covered.items() if (lines := reads_beyond_text(tree))}
    assert found == {}
    handled = (
        node.name
        for tree in covered.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler)
    )
    assert any(handled)


@pytest.mark.parametrize(
    "code",
    [
        "x = method.cost",
        "x = getattr(method, 'paper')",
        "class Method:\n  cost = 2\n  share = cost + 1",
        "def f(self): return self.paper",
    ],
)  # fmt: skip
def test_code_that_reads_a_printed_fact_is_found(code):
    assert facts_read(ast.parse(code))


@pytest.mark.parametrize("code", ["class A:\n  paper: str = B.paper\n  cost = 'O(1)'", "costs = papers"])
def test_a_printed_fact_and_a_similar_name_are_none(code):
    assert not facts_read(ast.parse(code))


def handler(line):
    return ast.parse(f"try: f()\nexcept E as error:\n  g()\n  {line}")


@pytest.mark.parametrize(
    "line",
    [
        "x = error.code",
        "x = error.args[0]",
        "f(error)",
        "x = error",
        "x = f'{error.code}'",
        "x = str(error.code)",
    ],
)
def test_a_handler_that_reads_more_than_the_text_is_found(line):
    assert reads_beyond_text(handler(line)) == [4]


@pytest.mark.parametrize(
    "line",
    ["x = str(error)", "x = f'{error}'", "raise G(error.code) from error", "logger.info(error.code)"],
)  # fmt: skip
def test_the_text_of_an_exception_and_messages_about_it_are_none(line):
    assert reads_beyond_text(handler(line)) == []
