"""Training alone for some rounds before the first aggregation (`aggregate_from`)."""

import pytest
import torch

from tests.by_hand import ENGINES, clients_with, everyone, federation_of, kept, near

pytestmark = pytest.mark.usefixtures("double_precision")
both_engines = pytest.mark.parametrize("engine", ENGINES, ids=["loop", "batched"])
COMMON = ("d=2", "rate=0.1", "local_epochs=2", "batch_size=4", "negatives=2")
FROM_3 = ("aggregate_from=3", "weighting=size")


@pytest.fixture
def clients():
    """1, 2 and 3 training rows: shares 1/6, 2/6 and 3/6."""
    return clients_with([[0], [1, 2], [3, 4, 5]], items=8)


def mean_by_size(values):
    return values[0] / 6 + values[1] / 3 + values[2] / 2


@both_engines
@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_before_the_first_aggregation_clients_train_alone(clients, engine, optimiser):
    changes = (*COMMON, f"optimiser={optimiser}", "participation=1")
    later = federation_of("fedmf", clients, *changes, *FROM_3, engine=engine)
    alone = federation_of("local-only", clients, *changes, engine=engine)
    start = later.state.shared["Q"].clone()
    items = torch.arange(8).expand(3, -1)
    for round_ in (1, 2):
        report = later.train_round(round_)
        alone.train_round(round_)
        for name in ("Q", "p"):
            assert near(kept(later, name), kept(alone, name))
        assert torch.equal(later.state.shared["Q"], start)
        assert (report.up, report.down) == (0, 0)
        # Until then everyone is scored with its own table.
        assert near(later.scores(everyone(later), items), alone.scores(everyone(alone), items))


@both_engines
def test_the_first_aggregation_is_of_the_clients_own_tables(clients, engine):
    changes = (*COMMON, "participation=1")
    later = federation_of("fedmf", clients, *changes, *FROM_3, engine=engine)
    alone = federation_of("local-only", clients, *changes, engine=engine)
    for round_ in (1, 2, 3):
        report = later.train_round(round_)
        alone.train_round(round_)
    assert near(later.state.shared["Q"], mean_by_size(kept(alone, "Q")))
    assert (report.up, report.down) == (16, 16)
    # From now on everyone is scored with the server's.
    items = torch.arange(8).expand(3, -1)
    expected = (later.state.shared["Q"] * kept(later, "p")).sum(-1)
    assert near(later.scores(everyone(later), items), expected)


@both_engines
def test_afterwards_clients_start_from_the_server_as_ever(clients, engine):
    changes = (*COMMON, "participation=1", "weighting=size")
    later = federation_of("fedmf", clients, *changes, "aggregate_from=2", engine=engine)
    later.train_round(1)
    later.train_round(2)
    # The same server and the same user vectors, as if there had been no rounds alone.
    ever = federation_of("fedmf", clients, *changes, engine=engine)
    ever.state.shared["Q"] = later.state.shared["Q"].clone()
    ever.state.client_tensors["p"].put(everyone(ever), kept(later, "p"))
    later.train_round(3)
    ever.train_round(3)
    assert near(later.state.shared["Q"], ever.state.shared["Q"])
    assert near(kept(later, "p"), kept(ever, "p"))


@both_engines
def test_towers_wait_too(clients, engine):
    later = federation_of(
        "fedncf", clients, *COMMON, *FROM_3, "participation=1", "layers=3", "spread=1", engine=engine
    )
    start = {name: value.clone() for name, value in later.state.shared.items()}
    later.train_round(1)
    later.train_round(2)
    assert all(torch.equal(later.state.shared[name], value) for name, value in start.items())
    assert not near(kept(later, "mlp.0")[0], kept(later, "mlp.0")[1], within=1e-6)
    later.train_round(3)
    for name in start:
        assert near(later.state.shared[name], mean_by_size(kept(later, name))), name


@both_engines
def test_clients_that_take_no_part_keep_what_they_had(clients, engine):
    later = federation_of("fedmf", clients, *COMMON, *FROM_3, "participation=0.4", engine=engine)
    before = kept(later, "Q")
    later.train_round(1)
    (joined,) = later.state.joined.nonzero().flatten().tolist()
    moved = [not torch.equal(kept(later, "Q")[client], before[client]) for client in range(3)]
    assert moved == [client == joined for client in range(3)]
    # Whoever comes first to the third round: the server's table is that client's own.
    later.train_round(2)
    own = kept(later, "Q")
    later.train_round(3)
    changed = [client for client in range(3) if not torch.equal(kept(later, "Q")[client], own[client])]
    assert near(later.state.shared["Q"], kept(later, "Q")[changed[0]])
    assert len(changed) == 1
