"""What a method's file is written with."""

import copy
import importlib

import pytest
import torch

from fedrec.config.modules import method_names, modules_of, plugin_names
from fedrec.errors import FederationError
from fedrec.federation.engines.batched.schedule import BlockBatch
from fedrec.federation.model import Citation, Combined, PlainTable, ServerRule, dot
from fedrec.federation.model.parameters import Initial, vector
from fedrec.federation.model.tables import PlainBatch, SampledItems
from fedrec.federation.server.uploads import FlatUploads
from tests.by_hand import clients_with, federation_of, kept, near

TABLE = torch.arange(8.0).reshape(4, 2)


def test_a_citation_reads_as_papers_cite():
    journal = Citation("Chai, Wang", "Secure factorization: a way", "IEEE Intelligent Systems", 2021)
    assert str(journal) == "Chai, Wang: Secure factorization: a way, IEEE Intelligent Systems 2021."
    assert str(Citation("Chen et al.", "Beyond", "", 2025)) == "Chen et al.: Beyond, 2025."


def test_a_dot_product_serves_one_client_and_many():
    rows, vector = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[10.0, 1.0]])
    assert dot(rows, vector).tolist() == [12.0, 34.0]
    assert dot(rows.expand(3, -1, -1), vector.expand(3, -1, -1)).tolist() == [[12.0, 34.0]] * 3


def test_a_table_of_one_client_and_tables_of_many_are_read_alike():
    items = torch.tensor([[2, 0], [1, 1]])
    many = PlainTable(torch.stack((TABLE, -TABLE)))
    assert torch.equal(many[items], torch.stack((TABLE[[2, 0]], -TABLE[[1, 1]])))
    assert torch.equal(PlainTable(TABLE)[items], TABLE[items])
    assert many.row_sum().tolist() == [[[12.0, 16.0]], [[-12.0, -16.0]]]
    assert many.squared_norm().tolist() == [[[140.0]], [[140.0]]]
    with pytest.raises(
        FederationError, match=r"training_sum\(\) is available only in losses, scores and `derived`"
    ):
        many.training_sum()


def test_a_combined_table_combines_rows_wherever_they_come_from():
    first, second = PlainTable(TABLE, torch.tensor([0, 3])), PlainTable(2 * TABLE, torch.tensor([0, 3]))
    table = Combined(lambda a, b: a + b, first, second, linear=True)
    assert torch.equal(table[torch.tensor([1])], 3 * TABLE[[1]])
    assert torch.equal(table.whole(), 3 * TABLE)
    assert torch.equal(table.training_sum(), 3 * TABLE[[0, 3]].sum(0, keepdim=True))
    with pytest.raises(FederationError, match="merged one by one"):
        Combined(torch.maximum, first, second).training_sum()


def test_the_plain_rule_leaves_everyone_its_own_upload():
    rule = ServerRule({}, 3)
    assert rule.choose(None, 1) is None
    assert rule.mix("p", FlatUploads(torch.zeros(2, 3)), None) is None
    assert rule.weights(torch.tensor([4, 2])).tolist() == [4, 2]


def test_a_personal_parameter_that_is_not_mixed_is_what_its_client_sent():
    """FedFast's server has every user vector; the rule mixes none."""
    federation = federation_of("fedfast", clients_with([[0], [1, 2]], items=8), "d=2", "local_epochs=1")
    uploaded = []
    federation.method.server.mix = lambda _name, uploads, _server: uploaded.append(uploads.map(torch.clone))
    federation.train_round(1)
    (sent,) = uploaded
    assert near(kept(federation, "p").flatten(1), sent)
    assert not near(sent[0], sent[1], within=1e-3)
    assert federation.state.held.all()


@pytest.mark.parametrize("name", method_names())
def test_every_method_comes_from_a_paper_or_is_a_reference_of_ours(name):
    module = importlib.import_module(modules_of(name)[0])
    paper = module.METHOD.paper
    # A reference learns nothing from others, and says so first.
    assert (paper is None) == ("A reference" in module.__doc__)
    assert paper is None or (paper.authors and paper.title and 1990 < paper.year < 2100)


@pytest.mark.parametrize("name", plugin_names())
def test_every_plug_in_says_what_a_round_costs_and_where_it_comes_from(name):
    plugin = importlib.import_module(modules_of(f"fedmf+{name}")[1]).PLUGIN
    assert plugin.paper is not None
    assert plugin.cost


def test_a_parameter_lives_at_a_place_that_there_is():
    with pytest.raises(FederationError, match=r"cannot live at 'privat'\. Did you mean 'private'"):
        vector(4, "privat", Initial("normal", 0.1))


READINGS = {
    "an index of a tensor": lambda items: TABLE[items],
    "a comparison": lambda items: items == 1,
    "arithmetic": lambda items: items + 1,
    "arithmetic with a tensor": lambda items: torch.arange(3) % items,
    "a remainder": lambda items: 7 % items,
    "a function of torch": lambda items: torch.isin(items, torch.arange(2)),
    "a lookup by torch": lambda items: torch.nn.functional.embedding(items, TABLE),
    "a list of them": lambda items: torch.stack([items, items]),
    "their number": len,
    "a loop": list,
    "a tensor of them": torch.tensor,
    "their shape": lambda items: items.shape,
    "another type": lambda items: items.float(),
    "a condition": lambda items: 1 if items else 2,
    "an index of a list": lambda items: [1, 2][items],
    "a key of a dictionary": lambda items: {1: 2}[items],
}


@pytest.mark.parametrize("reading", READINGS.values(), ids=READINGS.keys())
def test_items_of_a_mini_batch_look_up_rows_and_do_nothing_else(reading):
    items = PlainBatch(torch.tensor([2, 0]), torch.ones(2)).items
    assert torch.equal(PlainTable(TABLE)[items], TABLE[[2, 0]])
    with pytest.raises(FederationError, match=r"only looks up rows of tables \(w\.Q\[batch\.items\]\)"):
        reading(items)


def test_items_can_be_copied_and_shown():
    items = SampledItems(torch.tensor([2, 0]))
    assert torch.equal(copy.deepcopy(items).index, items.index)
    assert "SampledItems" in repr(items)


@pytest.mark.usefixtures("double_precision")
def test_sums_over_samples_leave_out_what_fills_a_short_mini_batch_up():
    """Two clients of 4 and 2 samples, side by side and one after the other."""
    values = torch.tensor([[0.3, -1.0, 2.0, 0.5], [4.0, 1.5, 4.0, 4.0]])
    many = BlockBatch(
        torch.zeros(2, 4, dtype=torch.int64),
        torch.zeros(2, 4),
        torch.tensor([[0.25] * 4, [0.5, 0.5, 0, 0]]),
        0,
        lambda: None,
    )
    alone = [PlainBatch(torch.zeros(size, dtype=torch.int64), torch.zeros(size)) for size in (4, 2)]
    for name in ("mean", "sum", "logsumexp"):
        found = getattr(many, name)(values)
        each = [
            getattr(batch, name)(row[: len(batch.labels)]) for batch, row in zip(alone, values, strict=True)
        ]
        assert all(one.shape == () for one in each)
        assert near(found, torch.stack(each), within=1e-15), name
    shares = many.softmax(values)
    assert near(shares[0], alone[0].softmax(values[0]))
    assert near(shares[1, :2], alone[1].softmax(values[1, :2]))
    assert shares[1, 2:].tolist() == [0.0, 0.0]
