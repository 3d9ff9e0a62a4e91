"""The list of methods: what each file says of itself, and what its code does."""

import pytest

from fedrec.cli.main import main
from fedrec.config.modules import method_names, plugin_names
from fedrec.runs.cards import cards, listed
from tests.federations import METHODS


@pytest.fixture(scope="module")
def found():
    return {card.name: card for card in cards(METHODS)}


def test_every_method_and_plug_in_is_listed_with_a_line_and_a_citation(found):
    assert list(found) == [*method_names(), *(f"+{name}" for name in plugin_names())]
    for card in found.values():
        assert card.line.endswith(".")
        assert card.citation[-5:-1].isdigit() or card.kind == "reference"


def test_kinds_follow_from_where_tables_live(found):
    kinds = {"fedmf": "federated", "pfedrec": "personalised", "fedcia": "personalised", "mf": "centralised"}
    assert {name: found[name].kind for name in kinds} == kinds
    assert {name for name, card in found.items() if card.kind == "reference"} == {
        "draw-counter", "local-only", "popularity",
    }  # fmt: skip


def test_what_is_uploaded_is_what_the_local_round_uploads(found):
    assert found["fedncf"].uploads == ["Q", "mlp"]
    assert found["colr"].uploads == ["A"]
    assert found["fedcia"].uploads == ["products of rows of Q"]
    assert found["local-only"].uploads == []
    assert found["perfedrec"].uploads == ["L", "p"]


def test_nothing_private_is_uploaded(found):
    for card in found.values():
        assert not set(card.uploads) & set(card.locations.get("private", []))


def test_a_plug_in_says_what_it_goes_with(found):
    assert found["+em"].backbones == list(METHODS["+em"]["backbones"])
    assert "goes with: fedmf" in listed([found["+em"]])


def test_the_command_prints_the_list(capsys):
    assert main(["methods"]) == 0
    printed = capsys.readouterr().out
    assert "pfedclr (personalised)\n" in printed
    assert "parameters: shared Q; private p\n    uploads: Q\n" in printed
