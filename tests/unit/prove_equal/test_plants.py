"""The comparison of commits refuses planted changes of numbers, and accepts a harmless refactoring."""

import shutil

import pytest

from tests.made_data import ROOT
from tests.prove_equal.plants import HARMLESS, PLANTS, Edit, Field


@pytest.mark.parametrize("plant", [*PLANTS, HARMLESS], ids=lambda plant: plant.title)
def test_a_plant_still_fits_the_code(plant, tmp_path):
    """A text that moved on would leave the plant without effect."""
    for edit in plant.edits:
        target = tmp_path / edit.file
        target.parent.mkdir(parents=True, exist_ok=True)
        if edit.old and not target.exists():
            shutil.copy(ROOT / edit.file, target)
        edit.apply(tmp_path)
        assert edit.new in target.read_text()


def test_a_plant_that_does_not_fit_says_so(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\nx = 1\n")
    for old in ("x = 1", "x = 2"):
        with pytest.raises(SystemExit, match=r"a\.py has not one text"):
            Edit("a.py", old, "x = 3").apply(tmp_path)


@pytest.fixture(scope="module")
def field(tmp_path_factory):
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is no clone of the repository, or there is no git")
    return Field(tmp_path_factory.mktemp("field"))


@pytest.mark.matrix
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.title)
def test_a_planted_change_is_refused(field, plant):
    assert field.reasons(plant)


@pytest.mark.matrix
def test_a_harmless_refactoring_is_accepted(field):
    assert field.reasons(HARMLESS) == []
