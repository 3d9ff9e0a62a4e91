"""Causes of the configuration: each is bounded, and about printed numbers."""

import pytest

from fedrec.config.causes import check_causes, is_about
from fedrec.config.configuration import read_configuration
from fedrec.config.document import Document
from fedrec.config.schema import check
from fedrec.errors import ConfigurationError
from tests.conftest import ROOT
from tests.made_results import ALL_METHODS

KEY = ("pfedclr", "Table 3", "ml-100k", "PFedCLR", "w/o LDP", "hr@10")


def checked(**cause):
    """Check a configuration with one cause, by schema and by what it means."""
    content = read_configuration([ROOT / "config/config.yaml"]).content
    own = {"cause": "our choice of split", "why": "so", **cause}
    order = [{"targets": ["pfedclr_table3"], "seeds": [0]}]
    document = Document("here", {**content, "reference": {"order": order, "causes": [own]}})
    check(document, "config")
    check_causes(document, ALL_METHODS)


@pytest.mark.parametrize(
    "bound", [{"at_most": 0.1}, {"fits": "pfedclr[rank=5]"}, {"cause": "another machine", "always": True}]
)
def test_a_bounded_cause_is_taken(bound):
    checked(**bound)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "could explain any difference. Add exactly one of at_most, fits, always"),
        ({"at_most": 0.1, "fits": "pfedclr"}, "could explain any difference"),
        ({"always": True}, "Bound 'our choice of split' by at_most or fits"),
        ({"always": False}, "reference.causes\\[0\\].always"),
        ({"at_most": 0}, "at_most"),
        (
            {"cause": "another copy of the data", "at_most": 0.1},
            "'another copy of the data' .* is not allowed",
        ),
        ({"fits": "pfedclr[rang=5]"}, "Did you mean 'rank'"),
        (
            {"at_most": 0.1, "method": ["PFedCLR", "PFedCRL"]},
            (
                r"reference\.causes\[0\]\.method\[1\]: 'PFedCRL' matches no printed number of this cause\. Did "
                r"you mean 'PFedCLR'\?"
            ),
        ),
        # Each name is printed, and never both together.
        (
            {"at_most": 0.1, "paper": ["fedrap"], "method": ["FedEM"]},
            r"reference\.causes\[0\]: matches no printed number: its keys never occur together\.",
        ),
        # FedEM is printed by its own paper, and not by this one.
        (
            {"at_most": 0.1, "paper": ["fedrap"], "method": ["FedRAP", "FedEM"]},
            "causes\\[0\\]\\.method\\[1\\]: 'FedEM' matches no printed number of this cause\\.",
        ),
    ],
)
def test_a_cause_that_cannot_fail_or_means_nothing_is_refused(wrong, message):
    with pytest.raises(ConfigurationError, match=message):
        checked(**wrong)


def test_a_cause_is_about_numbers_of_every_field_that_it_names():
    assert is_about({}, KEY)
    assert is_about({"paper": ["plgc", "pfedclr"], "metric": ["hr@10"]}, KEY)
    assert not is_about({"paper": ["plgc"], "metric": ["hr@10"]}, KEY)
    assert not is_about({"paper": ["pfedclr"], "variant": ["federated"]}, KEY)
