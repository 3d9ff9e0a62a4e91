"""Whether a process is one of several, by what its starter told it."""

import pytest
import torch

from fedrec.errors import ConfigurationError
from fedrec.federation.collectives import SINGLE
from fedrec.runs.process_group import ProcessGroup


@pytest.mark.parametrize("environment", [{}, {"WORLD_SIZE": "1", "LOCAL_RANK": "0"}])
def test_a_process_by_itself_has_no_peers(environment):
    membership = ProcessGroup.of_environment(environment)
    assert membership == ProcessGroup()
    with membership.communicator(torch.device("cpu")) as communicator:
        assert communicator is SINGLE


def test_one_of_several_knows_its_place_on_its_machine():
    told = {"WORLD_SIZE": "16", "RANK": "11", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "8"}
    assert ProcessGroup.of_environment(told) == ProcessGroup(size=16, local_rank=3, local_size=8)


def test_half_of_what_is_to_be_set_is_an_error():
    with pytest.raises(ConfigurationError, match="WORLD_SIZE=2 is set, but LOCAL_RANK is not"):
        ProcessGroup.of_environment({"WORLD_SIZE": "2"})
