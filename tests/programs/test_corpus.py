"""Every case of the corpus by every engine: what it expects, and nothing else, must become of it."""

import pytest

from tests.programs.corpus import CASES
from tests.programs.outcome import LOOP, has_checked, mistakes_of, outcome_of

ENGINES = ("fused", "batched", *(["checked"] if has_checked() else []), LOOP)


EVERY = {"checked": 6, "batched": 3, LOOP: 6}
"""One in so many of the quick cases is met by these engines at a push; by all cases in `make test-all`."""


def _cases():
    quick = 0
    for case in CASES.values():
        quick += case.quick
        for engine in ENGINES:
            pushed = case.quick and quick % EVERY.get(engine, 1) == 0
            marks = () if pushed else pytest.mark.matrix
            yield pytest.param(case, engine, id=f"{case.name}-{engine}", marks=marks)


@pytest.mark.parametrize(("case", "engine"), list(_cases()))
def test_a_case_is_trained_as_by_the_loop_or_refused(case, engine):
    assert mistakes_of(case, outcome_of(case, engine)) == []


def test_there_are_as_many_cases_as_are_promised():
    assert len(CASES) >= 400
