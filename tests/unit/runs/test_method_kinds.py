"""Kinds of methods follow from what their files declare, not from their names."""

from dataclasses import replace

import pytest

from fedrec.config.methods import Methods, resolve
from fedrec.federation.model.parameters import Initial, item_table
from fedrec.methods.fedmf import FedMF
from fedrec.runs.method_kinds import METHOD_KINDS, kind_of, kind_of_method
from tests.federations import METHODS

WANTED = {
    "popularity": "reference",
    "draw-counter": "reference",
    "local-only": "reference",
    "mf": "centralised",
    "lightgcn": "centralised",
    "fedmf": "federated",
    "fedrecon": "federated",
    "fedmf+plgc": "personalised",
    "pfedrec": "personalised",
    "fedrap": "personalised",
    "fedem": "personalised",
    "fedfast": "federated",
    "colr": "federated",
    "fedncf": "federated",
    "pfedclr": "personalised",
    "pfedgraph": "personalised",
    "gpfedrec": "personalised",
    "perfedrec": "personalised",
    "fedcia": "personalised",
    "centrap": "centralised",
    "ncf": "centralised",
    "ease": "centralised",
    "item-knn": "centralised",
    "ials": "centralised",
    "bpr-mf": "centralised",
    "fcf": "federated",
    "fedease": "federated",
    "fism": "federated",
    "fedadam": "federated",
    "fedprox": "federated",
}


@pytest.mark.parametrize("name", WANTED)
def test_the_kind_of_a_method(name):
    kind = kind_of(METHODS, name, resolve(METHODS, name, None, "any")[0])
    assert kind == WANTED[name]
    assert kind in METHOD_KINDS


def fedmf_with(location=None, copies=(), reads=True):
    """FedMF as somebody might change it in a file of their own: its scores read a further table, or do not."""

    class Own(FedMF):
        scored_with_own_copy = copies

        def parameters(self):
            more = (
                {} if location is None else {"R": item_table(self.items, 4, location, Initial("normal", 0.1))}
            )
            return super().parameters() | more

        def score(self, w, items):
            more = w.R[items].sum(-1) if reads and "R" in w else 0
            return super().score(w, items) + more

    return Own(resolve(METHODS, "fedmf", None, "any")[0], 8)


@pytest.mark.parametrize("location", ["personal", "local", "private"])
def test_a_table_with_the_client_makes_a_method_of_ones_own_personalised(location):
    assert kind_of_method(fedmf_with()) == "federated"
    assert kind_of_method(fedmf_with(location)) == "personalised"


def test_a_copy_that_users_are_scored_with_is_a_table_of_their_own():
    assert kind_of_method(fedmf_with(copies=("Q",))) == "personalised"


def test_tables_on_the_server_or_for_one_round_are_nobodys_own():
    assert kind_of_method(fedmf_with("server")) == kind_of_method(fedmf_with("scratch")) == "federated"


@pytest.mark.parametrize("location", ["personal", "local", "private"])
def test_a_table_that_no_score_reads_is_a_helper_and_makes_no_method_personalised(location):
    assert kind_of_method(fedmf_with(location, reads=False)) == "federated"


def test_what_a_derived_number_is_made_of_counts_where_scores_read_it():
    class Derived(type(fedmf_with("local", reads=False))):
        def derived(self, w):
            return {"bias": w.R.row_sum().sum(-1, keepdim=True)}

    class Scored(Derived):
        def score(self, w, items):
            return super().score(w, items) + w.bias.squeeze(-1)

    made = [kind(resolve(METHODS, "fedmf", None, "any")[0], 8) for kind in (Derived, Scored)]
    assert [kind_of_method(method) for method in made] == ["federated", "personalised"]


def test_a_method_of_no_paper_is_no_reference_unless_its_entry_says_so():
    assert kind_of_method(fedmf_with("private")) == "personalised"
    settings = resolve(METHODS, "fedmf", None, "any")[0]
    own = replace(METHODS["fedmf"], paper=None)
    assert kind_of(Methods({"fedmf": own}), "fedmf", settings) == "federated"
    assert kind_of(Methods({"fedmf": replace(own, reference="why")}), "fedmf", settings) == "reference"
