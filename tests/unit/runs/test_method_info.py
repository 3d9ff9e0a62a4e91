"""The list of methods: what each file says of itself, and what its code does."""

import pytest

from fedrec.cli.main import main
from fedrec.config.modules import method_names, plugin_names
from fedrec.methods.fedmf import FedMF
from fedrec.runs.method_info import all_methods, format_methods
from tests.federations import METHODS


@pytest.fixture(scope="module")
def found():
    return {card.name: card for card in all_methods(METHODS)}


def test_every_method_and_plug_in_is_listed_with_a_line_and_a_citation(found):
    assert list(found) == [*method_names(), *(f"+{name}" for name in plugin_names())]
    for card in found.values():
        assert card.line.endswith(".")
        assert card.citation[-5:-1].isdigit() or card.kind == "reference" or card.citation == "no paper"


def test_kinds_follow_from_where_tables_live(found):
    kinds = {"fedmf": "federated", "pfedrec": "personalised", "fedcia": "personalised", "mf": "centralised"}
    assert {name: found[name].kind for name in kinds} == kinds
    assert {name for name, card in found.items() if card.kind == "reference"} == {
        name for name, entry in METHODS.items() if entry.reference is not None
    }


def test_a_method_of_no_paper_is_no_reference(monkeypatch):
    monkeypatch.setattr(FedMF, "paper", None)
    card = next(card for card in all_methods(METHODS) if card.name == "fedmf")
    assert (card.kind, card.citation) == ("federated", "no paper")


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
    assert found["+em"].backbones == list(METHODS["+em"].backbones)
    assert "supports: fedmf" in format_methods([found["+em"]])


def test_the_command_prints_the_list(capsys):
    assert main(["methods"]) == 0
    printed = capsys.readouterr().out
    assert "pfedclr (personalised)\n" in printed
    assert "parameters: shared Q; private p\n    uploads: Q\n" in printed


def test_one_method_is_reported_with_its_settings(capsys):
    assert main(["methods", "fedrap"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("fedrap (personalised)\n")
    assert "    uploads: C\n    settings, paper fedrap:\n        participation = 1 (code): share" in printed
    assert "        d = 32 (paper): size of a vector; integer from 1 to 4096\n" in printed
    assert "            elsewhere: in others 16 (paper)\n" in printed
    settings = printed.partition("        found ")[0]
    assert len(settings.split(" = ")) == 1 + len(METHODS["fedrap"].settings)


@pytest.mark.parametrize("name", ["+em", "em"])
def test_one_plug_in_is_reported_with_its_own_settings_alone(capsys, name):
    assert main(["methods", name]) == 0
    printed = capsys.readouterr().out
    assert "adapter = 16x8 (paper)" in printed
    assert "participation" not in printed


def test_an_unknown_method_has_a_nearest_one(capsys):
    assert main(["methods", "fedmff"]) == 1
    assert "unknown method or plug-in 'fedmff'. Did you mean 'fedmf'?" in capsys.readouterr().err
