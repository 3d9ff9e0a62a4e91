"""Every case of the corpus by every engine: what it expects, and nothing else, must become of it."""

import pytest

from tests.programs.corpus import CASES
from tests.programs.outcome import LOOP, has_checked, mistakes_of, outcome_of

ENGINES = ("fused", "batched", *(["checked"] if has_checked() else []), LOOP)


def _cases():
    for case in CASES.values():
        marks = () if case.quick else pytest.mark.matrix
        yield from (pytest.param(case, engine, id=f"{case.name}-{engine}", marks=marks) for engine in ENGINES)


@pytest.mark.parametrize(("case", "engine"), list(_cases()))
def test_a_case_is_trained_as_by_the_loop_or_refused(case, engine):
    assert mistakes_of(case, outcome_of(case, engine)) == []


def test_there_are_as_many_cases_as_are_promised():
    assert len(CASES) >= 400
