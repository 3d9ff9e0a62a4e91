"""Every case of the corpus by every engine: what it expects, and nothing else, must become of it."""

import pytest

from tests.programs.corpus import CASES
from tests.programs.outcome import LOOP, has_checked, mistakes_of, outcome_of

ENGINES = ("fused", "batched", *(["checked"] if has_checked() else []), LOOP)
EVERY = {"fused": 4, "batched": 12, "checked": 24, LOOP: 24}
"""`make test` runs one in so many of the quick cases by each engine, `make test-all` every case by every engine."""


def _cases():
    quick = 0
    for case in CASES.values():
        quick += case.quick
        for engine in ENGINES:
            in_core = case.quick and quick % EVERY[engine] == 0
            marks = () if in_core else pytest.mark.matrix
            yield pytest.param(case, engine, id=f"{case.name}-{engine}", marks=marks)


@pytest.mark.parametrize(("case", "engine"), list(_cases()))
def test_a_case_is_trained_as_by_the_loop_or_refused(case, engine):
    assert mistakes_of(case, outcome_of(case, engine)) == []


def test_there_are_as_many_cases_as_are_promised():
    assert len(CASES) >= 400
