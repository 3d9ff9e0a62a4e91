import pytest

from tests.mistakes.made import Folder, mistakes

MISTAKES = mistakes()
_LONGEST_LINE = 700
"""Characters of an answer's line; lists of what is known make some long."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return Folder(tmp_path_factory.mktemp("mistakes"))


@pytest.mark.parametrize("mistake", MISTAKES, ids=[f"{one.chapter}: {one.what}" for one in MISTAKES])
def test_a_mistake_is_answered_in_one_message(mistake, folder, monkeypatch):
    for variable in (
        "FEDREC_MIRROR",
        "FEDREC_CATALOGUE",
        "FEDREC_PROTOCOLS",
        "FEDREC_METHODS",
        "FEDREC_FOUND",
    ):
        monkeypatch.delenv(variable, raising=False)
    path = folder.restored()
    status, answer = mistake.answer(path)
    assert (status == 0) == mistake.right, answer
    for part in mistake.said:
        assert part in answer
    line = mistake.line(path)
    if line is not None:
        assert f"{mistake.edit[0]}, line {line}" in answer
    assert "Traceback" not in answer
    assert len(answer.splitlines()) <= mistake.lines, answer
    assert max(map(len, answer.splitlines())) <= _LONGEST_LINE, answer
    assert not (path / "ran").exists()
    assert not (path / "run").exists()
