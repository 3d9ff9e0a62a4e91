"""Sets and tables of pairs against dense ones, and their sizes."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedrec.federation.pairs import PairSet, PairTable

CLIENTS, ITEMS = 6, 9
CPU = torch.device("cpu")
EVERYONE, ALL_ITEMS = torch.arange(CLIENTS), torch.arange(ITEMS)
pairs = st.lists(st.tuples(st.integers(0, CLIENTS - 1), st.integers(0, ITEMS - 1)), max_size=30)
clients = st.lists(st.integers(0, CLIENTS - 1), max_size=8)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("add"), pairs),
        st.tuples(st.just("count"), pairs),
        st.tuples(st.just("clear"), clients),
        st.tuples(st.just("reload"), st.none()),
    ),
    max_size=15,
)


def columns(listed):
    return torch.tensor(listed, dtype=torch.int64).reshape(-1, 2).unbind(1)


@given(pairs, st.lists(st.integers(0, CLIENTS - 1), unique=True).map(sorted))
def test_a_set_holds_what_it_was_made_of(listed, some):
    client, item = columns(listed)
    mask = torch.zeros(CLIENTS, ITEMS, dtype=torch.bool)
    mask[client, item] = True
    made = PairSet.of(client, item, CLIENTS, ITEMS)
    assert torch.equal(made.holds(EVERYONE.unsqueeze(1), ALL_ITEMS), mask)
    assert torch.equal(made.sizes(), mask.sum(1))
    who = torch.tensor(some, dtype=torch.int64)
    fewer = made.subset(who)
    assert torch.equal(fewer.holds(torch.arange(len(who)).unsqueeze(1), ALL_ITEMS), mask[who])
    assert torch.equal(fewer.sizes(), mask[who].sum(1))


@pytest.mark.parametrize(("users", "items"), [(1, 1), (3, 2**20), (2**20, 2**40)])
def test_a_set_is_as_large_as_its_pairs(users, items):
    """However many pairs there could be."""
    client, item = torch.tensor([0, users - 1]), torch.tensor([0, items - 1])
    made = PairSet.of(client, item, users, items)
    assert made.holds(client, item).all()
    assert not made.holds(torch.tensor([users - 1]), torch.tensor([items - 2])).any()
    assert len(made.filled) <= 33


def test_pairs_that_have_no_number_are_refused():
    nothing = torch.empty(0, dtype=torch.int64)
    with pytest.raises(OverflowError, match="64 bits"):
        PairSet.of(nothing, nothing, 2**32, 2**32)
    with pytest.raises(OverflowError, match="64 bits"):
        PairTable(2**32, 2**32, CPU)


def do(table, numbers, operation, listed):
    """The same operation on a table and on a dense one."""
    if operation == "reload":
        stored = {name: value.clone() for name, value in table.tensors().items()}
        table = PairTable(CLIENTS, ITEMS, CPU)
        table.load(stored)
    elif operation == "clear":
        who = torch.tensor(listed, dtype=torch.int64)
        table.clear(who)
        numbers[who] = 0
    else:
        client, item = columns(listed)
        value = torch.ones_like(client) if operation == "count" else 3 * client - item
        given = (client, item) if operation == "count" else (client, item, value)
        getattr(table, operation)(*given)
        numbers.index_put_((client, item), value, accumulate=True)
    return table


@given(operations, clients)
def test_a_table_holds_the_sum_of_what_it_was_given(steps, some):
    table, numbers = PairTable(CLIENTS, ITEMS, CPU), torch.zeros(CLIENTS, ITEMS, dtype=torch.int64)
    for step in steps:
        table = do(table, numbers, *step)
        assert torch.equal(table.get(EVERYONE.unsqueeze(1), ALL_ITEMS), numbers)
        assert torch.equal(table.sums(), numbers.sum(1))
    who = torch.tensor(some, dtype=torch.int64)
    index, item, value = table.entries(who)
    expected = numbers[who]
    assert torch.equal(torch.stack((index, item)), expected.nonzero().T)
    assert torch.equal(value, expected[expected != 0])


@given(st.permutations(range(8)))
def test_the_order_of_blocks_does_not_show_in_a_file(order):
    generator = torch.Generator().manual_seed(0)
    blocks = [torch.randint(0, 2**20, (2, 50), generator=generator) for _ in order]
    tables = [PairTable(2**20, 2**20, CPU) for _ in range(2)]
    for table, sequence in zip(tables, (range(8), order), strict=True):
        for number in sequence:
            table.count(*blocks[number])
    first, second = (table.tensors() for table in tables)
    assert first.keys() == second.keys()
    assert all(torch.equal(value, second[name]) for name, value in first.items())


def test_a_table_that_grows_by_blocks_has_few_runs():
    table = PairTable(1000, 100, CPU)
    items = torch.arange(100)
    for client in range(1000):
        table.count(torch.full_like(items, client), items)
    assert len(table._runs) <= 17
    lengths = [len(key) for key, _ in table._runs]
    assert sum(lengths) == 100_000
    assert all(longer >= 2 * shorter for longer, shorter in pairwise(lengths))


def test_numbers_that_are_zero_again_are_dropped():
    """Clients that start again in every round do not make a table grow."""
    table = PairTable(4, 100, CPU)
    for round_ in range(50):
        for who in torch.arange(4).split(2):
            table.clear(who)
            item = torch.arange(10) + round_
            table.count(who.repeat_interleave(10), item.repeat(2))
        assert sum(len(key) for key, _ in table._runs) <= 120
    assert len(table.tensors()["/key"]) == 40
    assert torch.equal(table.sums(), torch.full((4,), 10))
