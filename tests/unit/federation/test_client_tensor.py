"""Tables kept as changed rows: any sequence of operations leaves what dense tables hold."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrec.federation.state import sparse_rows as module
from fedrec.federation.state.dense import DenseClientTensor
from fedrec.federation.state.sparse_rows import SparseRowsTensor, merge_rows, split_rows
from tests.by_hand import everyone, federation_of, kept
from tests.core import core_and
from tests.federations import clients_of, planted_blocks

CLIENTS, ITEMS, SIZE = 5, 7, 2
EVERYONE = torch.arange(CLIENTS)
who = st.lists(st.integers(0, CLIENTS - 1), unique=True, max_size=CLIENTS)
pairs = st.lists(st.tuples(st.integers(0, CLIENTS - 1), st.integers(0, ITEMS - 1)), unique=True, max_size=20)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("put_rows"), pairs),
        st.tuples(st.just("put"), who),
        st.tuples(st.just("modify"), who.filter(len).map(sorted)),
        st.tuples(st.just("scale"), who),
        st.tuples(st.just("fill"), who),
        st.tuples(st.just("reload"), st.none()),
        st.tuples(st.just("share"), st.lists(st.integers(0, CLIENTS), max_size=2).map(sorted)),
    ),
    max_size=12,
)


@pytest.fixture(autouse=True, scope="module")
def small_slabs():
    """Pieces of 8 rows, so that a few operations need several."""
    before, module._SLAB = module._SLAB, 8
    yield
    module._SLAB = before


def numbers(generator, *shape):
    return torch.randn(*shape, generator=generator)


def both(generator):
    start = numbers(generator, ITEMS, SIZE)
    return DenseClientTensor(start, CLIENTS), SparseRowsTensor(start, CLIENTS)


def shared_out(rows, cuts):
    """A store read back from what the stores of neighbouring clients have, cut at some places."""
    stored, ends = rows.tensors(), [0, *cuts, CLIENTS]
    parts = []
    for first, last in pairwise(ends):
        part = SparseRowsTensor(torch.zeros(ITEMS, SIZE), last - first)
        part.load(split_rows(stored, slice(first, last)))
        assert torch.equal(part.whole(torch.arange(last - first)), rows.whole(EVERYONE[first:last]))
        parts.append(part.tensors())
    fresh = SparseRowsTensor(torch.zeros(ITEMS, SIZE), CLIENTS)
    fresh.load(merge_rows(parts))
    return fresh


def do(stores, operation, some, generator):
    """The same operation on both stores; returns them, one of them read back if it was to be stored."""
    if operation == "reload":
        dense, rows = stores
        fresh = SparseRowsTensor(torch.zeros(ITEMS, SIZE), CLIENTS)
        fresh.load({key: value.clone() for key, value in rows.tensors().items()})
        return dense, fresh
    if operation == "share":
        return stores[0], shared_out(stores[1], some)
    chosen = torch.tensor(some, dtype=torch.int64)
    if operation == "put_rows":
        client, item = chosen.reshape(-1, 2).unbind(1)
        values = (client, item, numbers(generator, len(client), SIZE))
    elif operation == "put":
        values = (chosen, numbers(generator, len(chosen), ITEMS, SIZE))
    elif operation == "modify":
        wanted = numbers(generator, len(chosen), ITEMS * SIZE)
        values = (chosen, lambda flat: flat.mul_(-2).add_(wanted))
    elif operation == "scale":
        values = (chosen, torch.rand(len(chosen), generator=generator).double())
    else:
        values = (chosen, numbers(generator, ITEMS, SIZE))
    for store in stores:
        getattr(store, operation)(*values)
    return stores


@settings(max_examples=150)
@given(operations, st.integers(0, 2**32 - 1))
def test_changed_rows_are_whole_tables(steps, seed):
    generator = torch.Generator().manual_seed(seed)
    stores = both(generator)
    for operation, some in steps:
        stores = do(stores, operation, some, generator)
        dense, rows = (store.whole(EVERYONE) for store in stores)
        assert torch.allclose(dense, rows, rtol=1e-5, atol=1e-7)
    dense, rows = stores
    # Some clients in any order, and single rows of them, several of one client and twice the same.
    order = torch.tensor([3, 0, 3])
    assert torch.allclose(dense.whole(order), rows.whole(order), rtol=1e-5, atol=1e-7)
    items = torch.tensor([[6, 0], [2, 2], [1, 5]])
    asked = order.unsqueeze(1).expand_as(items)
    found = rows.rows(asked, items)
    assert found.shape == (3, 2, SIZE)
    assert torch.allclose(dense.rows(asked, items), found, rtol=1e-5, atol=1e-7)


@settings(max_examples=50)
@given(operations, st.integers(0, 2**32 - 1))
def test_every_client_reads_places_of_its_own(steps, seed):
    """No place serves two rows, and none is both in use and free."""
    generator = torch.Generator().manual_seed(seed)
    stores = both(generator)
    for operation, some in steps:
        stores = do(stores, operation, some, generator)
    rows = stores[1]
    used = rows.slot.entries(EVERYONE)[2] - 1
    everything = torch.cat((used, rows.free)).sort().values
    assert torch.equal(everything, torch.arange(rows.used))


def test_clients_that_start_from_the_same_table_share_it_however_they_are_cut_into_blocks():
    rows = SparseRowsTensor(torch.zeros(ITEMS, SIZE), CLIENTS)
    for number in (1.0, 2.0):
        for block in EVERYONE.split(2):
            rows.fill(block, torch.full((ITEMS, SIZE), number))
            assert len(rows.bases) <= 2 + (number == 1.0)
        assert torch.equal(rows.whole(EVERYONE), torch.full((CLIENTS, ITEMS, SIZE), number))
    assert len(rows.bases) == 1


def test_an_untouched_store_holds_the_start_and_no_rows():
    start = torch.arange(14.0).reshape(ITEMS, SIZE)
    rows = SparseRowsTensor(start, CLIENTS)
    assert torch.equal(rows.whole(EVERYONE), start.expand(CLIENTS, -1, -1))
    assert rows.used == 0
    fresh = SparseRowsTensor(torch.zeros(ITEMS, SIZE), CLIENTS)
    fresh.load(rows.tensors())
    assert torch.equal(fresh.whole(EVERYONE), start.expand(CLIENTS, -1, -1))


def test_rows_that_are_freed_are_used_again():
    rows = SparseRowsTensor(torch.zeros(ITEMS, SIZE), CLIENTS)
    items = torch.arange(ITEMS)
    for round_ in range(6):
        rows.fill(torch.tensor([0, 1]), torch.full((ITEMS, SIZE), float(round_)))
        for client in (0, 1):
            rows.put_rows(
                torch.full_like(items, client), items, torch.full((ITEMS, SIZE), 10.0 * round_ + client)
            )
    # Two clients with 7 rows each, six times over.
    assert rows.used == 14
    assert len(rows.slabs) == 2
    assert torch.equal(rows.whole(torch.tensor([1]))[0], torch.full((ITEMS, SIZE), 51.0))
    assert not rows.whole(torch.tensor([2, 3, 4])).any()


def test_starts_that_nobody_has_any_more_are_forgotten():
    rows = SparseRowsTensor(torch.zeros(ITEMS, SIZE), CLIENTS)
    for round_ in range(1, 20):
        rows.fill(torch.tensor([0, 1]), torch.full((ITEMS, SIZE), float(round_)))
    # What the first two have, and what the other three began with.
    assert len(rows.bases) == 2
    assert rows.whole(EVERYONE)[:, 0, 0].tolist() == [19, 19, 0, 0, 0]
    rows.fill(EVERYONE, torch.full((ITEMS, SIZE), 20.0))
    assert len(rows.bases) == 1


def test_scaling_reaches_changed_and_unchanged_rows_of_its_clients_alone():
    rows = SparseRowsTensor(torch.ones(ITEMS, SIZE), CLIENTS)
    rows.put_rows(torch.tensor([0, 1]), torch.tensor([3, 3]), torch.full((2, SIZE), 8.0))
    rows.scale(torch.tensor([1, 2]), torch.tensor([0.5, 0.25]))
    first = rows.whole(EVERYONE)[:, :, 0]
    assert first[0].tolist() == [1, 1, 1, 8, 1, 1, 1]
    assert first[1].tolist() == [0.5, 0.5, 0.5, 4, 0.5, 0.5, 0.5]
    assert first[2].tolist() == [0.25] * 7
    # A new start begins without the factor.
    rows.fill(torch.tensor([1]), torch.full((ITEMS, SIZE), 2.0))
    assert rows.whole(torch.tensor([1]))[0, :, 0].tolist() == [2] * 7


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize(
    "name", core_and(["pfedrec", "fedmf+plgc", "local-only"], ["fedrap", "pfedclr", "fedrap+em"])
)
def test_a_federation_stores_either_way_and_goes_on_from_either(name):
    """Some take part in each round, and a file is written and read in between."""
    clients = clients_of(planted_blocks(users=10))
    changes = ["participation=0.5", "local_epochs=2", "batch_size=16"]
    gentle = {"rate": 0.05, "item_rate": 1, "item_factor": 1, "item_scale": "one", "adapter_rate": 0.01}
    known = federation_of(name, clients).settings
    changes += [f"{key}={value}" for key, value in gentle.items() if key in known]
    dense, rows = (federation_of(name, clients, *changes, dense_bytes=size) for size in (2**40, 0))
    assert any(isinstance(one, SparseRowsTensor) for one in rows.state.client_tensors.values())
    assert all(isinstance(one, DenseClientTensor) for one in dense.state.client_tensors.values())
    for round_ in range(1, 6):
        if round_ == 4:
            stored = {key: value.clone() for key, value in rows.tensors().items()}
            rows = federation_of(name, clients, *changes, dense_bytes=0)
            rows.load(stored)
        dense.train_round(round_)
        rows.train_round(round_)
    assert dense.state.joined.sum() > 5
    for one in dense.state.client_tensors:
        assert torch.allclose(kept(dense, one), kept(rows, one), rtol=1e-9, atol=1e-12), one
    for one, value in dense.state.shared.items():
        assert torch.allclose(value, rows.state.shared[one], rtol=1e-9, atol=1e-12), one
    items = torch.arange(clients.items).expand(len(clients), -1)
    assert torch.allclose(dense.scores(everyone(dense), items), rows.scores(everyone(rows), items), atol=1e-9)
