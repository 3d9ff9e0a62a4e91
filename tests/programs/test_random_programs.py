"""Random programs, held to the plain loop; `python -m tests.programs.random_programs` tries more of them."""

from pathlib import Path

import pytest

from tests.programs.outcome import EQUAL, LOOP, REFUSED, UNSTEADY, WRONG, Outcome, has_checked, outcome_of
from tests.programs.random_programs import alike, case_of, disagrees, drawn, shrunk, tried

FOUND = sorted((Path(__file__).parent / "found").glob("*.py"))
"""Programs that an engine once trained to other numbers; each says when it was found, and the cause."""
ENGINES = ("fused", "batched", *(["checked"] if has_checked() else []))
FEW = {"fused": 2, "batched": 2, "checked": 1}
"""How many random programs `make test` tries, by engine; `make test-all` tries `MATRIX` by each."""
MATRIX, AT_ONCE = 3100, 50


def _differing(seeds, engine):
    """The programs that an engine trains to other numbers, made smaller."""
    for seed in seeds:
        outcome = tried(drawn(seed), engine)
        if disagrees(outcome):
            small = shrunk(drawn(seed), lambda less, first=outcome: alike(tried(less, engine), first), 60)
            yield f"seed {seed}: {outcome}\n{small.source}"


@pytest.mark.parametrize("engine", ENGINES)
def test_random_programs_are_trained_as_by_the_loop(engine):
    assert list(_differing(range(FEW[engine]), engine)) == []


@pytest.mark.matrix
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("first", range(0, MATRIX, AT_ONCE))
def test_many_random_programs_are_trained_as_by_the_loop(first, engine):
    assert list(_differing(range(first, first + AT_ONCE), engine)) == []


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_what_was_once_wrong_is_right(path, engine):
    assert outcome_of(case_of(path), engine).kind in (EQUAL, UNSTEADY, REFUSED)


def test_a_seed_makes_the_same_program_every_time():
    assert [drawn(seed).source for seed in range(20)] == [drawn(seed).source for seed in range(20)]


def test_most_random_programs_are_trained():
    kinds = [tried(drawn(seed), LOOP).kind for seed in range(6)]
    assert kinds.count(EQUAL) >= 5


def test_a_failing_program_is_made_smaller():
    program = drawn(11)
    small = shrunk(program, lambda less: "w.p" in less.source and "fit(" in less.source, 400)
    assert len(small.source) < len(program.source) * 0.7
    assert not disagrees(Outcome("small", "batched", tried(small, "batched").kind))
    assert disagrees(Outcome("small", "batched", WRONG))
