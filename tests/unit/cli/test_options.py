"""Options that several commands have."""

from argparse import Namespace

import pytest

from fedrec.cli.options import check_paper
from fedrec.errors import ConfigurationError
from tests.conftest import ROOT


def test_a_run_of_no_paper_may_be_asked_for():
    """Trials of methods of no paper are listed so."""
    methods = ROOT / "config/methods.yaml"
    check_paper(Namespace(paper="own", methods=methods, found=None))
    with pytest.raises(ConfigurationError, match="unknown paper 'owm'"):
        check_paper(Namespace(paper="owm", methods=methods, found=None))
