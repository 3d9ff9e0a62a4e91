"""Stored code fingerprints are compared with the current code in one place."""

import re

import pytest

from fedrec.errors import ConfigurationError
from fedrec.plan import code_matching
from fedrec.plan.code_matching import CodeMatcher
from fedrec.plan.fingerprint import run_fingerprint
from tests.conftest import ROOT

STATE_THEIR_CODE = {"plan/project.py", "runs/train.py"}
"""Modules that compute a fingerprint to write it down, and compare none."""


@pytest.mark.parametrize("engine", ["fused", "loop"])
def test_a_fingerprint_is_current_for_its_own_method_and_engine_alone(engine):
    matcher, code = CodeMatcher(), run_fingerprint("fedmf", engine)
    assert matcher.is_current(code, "fedmf", engine)
    assert matcher.is_current_run({"method": "fedmf", "engine": engine, "code": code})
    assert not matcher.is_current_run({"method": "fedmf", "engine": engine, "code": code}, "pfedrec")
    assert not matcher.is_current(code, "fedmf", "batched")
    assert not matcher.is_current("0" * 64, "fedmf", engine)
    assert not matcher.is_current(None, "fedmf", "no such engine")


@pytest.mark.parametrize("method", ["deleted", "fedmf+deleted", "fedmf[d="])
def test_no_code_is_current_of_a_method_that_does_not_exist_any_more(method):
    """One stored run of it stops no command that reads the store."""
    matcher, run = CodeMatcher(), {"method": method, "engine": "fused", "code": "c0de"}
    assert not matcher.is_current_run(run)
    assert matcher.proofs(run) is None


def test_a_method_whose_file_is_broken_is_an_error(monkeypatch):
    def broken(*_named):
        raise ConfigurationError("fedmf.py, line 1: not valid Python")

    monkeypatch.setattr(code_matching, "run_fingerprint", broken)
    with pytest.raises(ConfigurationError, match="not valid Python"):
        CodeMatcher().is_current("code", "fedmf", "loop")


def test_a_fingerprint_is_computed_once(monkeypatch):
    asked = []
    monkeypatch.setattr(code_matching, "run_fingerprint", lambda *named: asked.append(named) or "code")
    matcher = CodeMatcher()
    assert all(matcher.is_current("code", method, "loop") for method in ("fedmf", "fedmf[d=8]", "fedmf"))
    assert asked == [("fedmf", "loop")]


def test_nothing_else_computes_the_fingerprint_of_a_run():
    sources = (ROOT / "fedrec").rglob("*.py")
    users = {
        path.relative_to(ROOT / "fedrec").as_posix()
        for path in sources
        if re.search(r"\brun_fingerprint\b", path.read_text(encoding="utf-8"))
    }
    assert users == {"plan/code_matching.py", "plan/fingerprint.py", *STATE_THEIR_CODE}
