"""Many steps of Adam without a gradient, taken as one, are what they are one by one."""

import math

import pytest
import torch

from fedrec.federation.engines.fused.adam import (
    ADAM_TABLES,
    EPSILON,
    FIRST,
    SECOND,
    adam_tables,
    corrections,
    lowest_root,
)
from fedrec.federation.federation import Federation
from fedrec.federation.model import Batch, Weights
from fedrec.methods.fedmf import FedMF
from tests.core import core_and
from tests.engines import ENGINES, LOOP
from tests.federations import assert_same, clients_of, planted_blocks, precision, settings_of, values_of

LONGEST = 700
GAPS = range(1, 501)


def one_by_one(first, second, last, rate, shrink):
    """How far a row has moved after every mini-batch behind `last`, and its moments then."""
    slope, root = (correction.tolist() for correction in corrections(LONGEST))
    moved = 0.0
    for j in range(last + 1, last + GAPS[-1] + 1):
        first, second = FIRST * first, SECOND * second
        moved += rate * shrink[j] * slope[j] * first / (math.sqrt(second) * root[j] + EPSILON)
        yield moved, first, second


def tables_of(shrink):
    return {name: table.tolist() for name, table in adam_tables(*corrections(LONGEST), shrink).items()}


def at_once(first, second, last, gap, rate, tables, shrunk=""):
    """The same, by tables; None where the second moment is too small for that."""
    to, root = last + gap, math.sqrt(second)
    if root == 0:
        return 0.0, first, second
    *powers, first_power, second_power, unfaded, _ = tables["past"][gap]
    if root <= lowest_root(torch.float64) * unfaded * tables["unroot"][to]:
        return None
    tails = tables[f"{shrunk}tails"]
    sums = [since - power * until for since, power, until in zip(tails[last], powers, tails[to], strict=True)]
    terms = [total * (-EPSILON / root) ** number for number, total in enumerate(sums)]
    return rate * first / root * sum(terms), first * first_power, second * second_power


@pytest.mark.parametrize("shrinking", [1.0, 0.99])
@pytest.mark.parametrize(("first", "second"), [(0.3, 0.04), (-0.02, 1e-6), (1e-3, 1e-5), (0.0, 0.2)])
@pytest.mark.parametrize("last", [1, 2, 190])
def test_idle_steps_at_once_are_those_one_by_one(first, second, last, shrinking):
    shrink = [shrinking ** max(0, count - 1) for count in range(LONGEST + 1)]
    tables = tables_of(torch.tensor(shrink, dtype=torch.float64))
    known = 0
    for gap, expected in zip(GAPS, one_by_one(first, second, last, 0.05, shrink), strict=True):
        actual = at_once(first, second, last, gap, 0.05, tables, "" if shrinking == 1 else "shrunk_")
        if actual is not None:
            known += 1
            assert math.isclose(actual[0], expected[0], rel_tol=1e-9), gap
            assert math.isclose(actual[1], expected[1], rel_tol=1e-9), gap
            assert math.isclose(actual[2], expected[2], rel_tol=1e-9), gap
    assert known > len(GAPS) / 4, "a table that is never used is not tested"


def test_moments_that_are_too_small_to_be_taken_at_once_are_known_as_such():
    """What is left out is the fourth power of epsilon over the root: far below rounding, or one by one."""
    tables = tables_of(torch.ones(LONGEST + 1, dtype=torch.float64))
    roots = [10.0**-power for power in range(1, 16)]
    taken = [at_once(1e-3, root**2, 5, 20, 0.05, tables) is not None for root in roots]
    assert taken == sorted(taken, reverse=True)
    assert taken[0]
    assert not taken[-1]


def test_a_row_that_never_had_a_gradient_does_not_move():
    tables = tables_of(torch.ones(LONGEST + 1, dtype=torch.float64))
    assert at_once(0.0, 0.0, 3, 10, 0.05, tables) == (0.0, 0.0, 0.0)


def test_every_table_is_as_long_as_there_are_mini_batches():
    tables = adam_tables(*corrections(9), torch.ones(10, dtype=torch.float64))
    assert set(tables) == set(ADAM_TABLES)
    assert {len(table) for table in tables.values()} == {10}


class Uneven(FedMF):
    """FedMF whose negatives count little, so that rows have moments of very different sizes."""

    weight = 1.0

    def loss(self, w: Weights, batch: Batch) -> torch.Tensor:
        entropy = torch.nn.functional.softplus(self.score(w, batch.items) * (1 - 2 * batch.labels))
        return batch.mean(entropy * (batch.labels + self.weight * (1 - batch.labels)))


@pytest.mark.parametrize("weight", core_and([1e-6, 0.0], [1.0, 1e-3]))
def test_rows_that_rest_for_hundreds_of_mini_batches_end_where_the_plain_loop_has_them(weight):
    """One sample to a mini-batch, so that a row is idle for most of them, and moments of any size fade."""
    settings = settings_of("fedmf", "d=4", "batch_size=1", "local_epochs=2", "participation=1", "rate=0.02")
    with precision(torch.float64):
        clients = clients_of(planted_blocks(users=2, items=300, per_user=60))
        ends = []
        for engine in (LOOP, ENGINES["fused"]):
            method = type("Uneven", (Uneven,), {"weight": weight})(settings, clients.items)
            federation = Federation(method, clients, engine.make(), settings, 0)
            federation.train_round(1)
            ends.append(values_of(federation))
    assert_same(*ends, relative=1e-9)
