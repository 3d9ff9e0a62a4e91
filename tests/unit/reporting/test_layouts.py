"""What every layout owes: a function that builds it, and nothing that another layout needs."""

import ast
import importlib
import inspect

import pytest

from fedrec.plan.layouts import load_layouts
from tests.conftest import ROOT

LAYOUTS = load_layouts()


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_builds_itself_and_needs_no_other(name):
    layout = LAYOUTS[name]
    module = importlib.import_module(layout.module)
    assert list(inspect.signature(module.build).parameters) == ["target", "project"]
    assert module.LAYOUT.form == layout.form
    others = {other.module for other in LAYOUTS.values()} - {layout.module}
    path = ROOT.joinpath(*layout.module.split(".")).with_suffix(".py")
    imported = {
        node.module for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)
    }
    assert not imported & others
