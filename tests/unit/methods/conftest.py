"""The demonstration's dataset, for methods that are held to plain implementations."""

import pytest

from fedrec.data.prepare import prepare
from fedrec.data.split import make_split
from fedrec.federation.clients import Clients
from tests.federations import clients_of


@pytest.fixture(scope="package")
def demo(catalogue, protocols, tmp_path_factory) -> Clients:
    made = prepare(catalogue["demo"], tmp_path_factory.mktemp("demo"))
    return clients_of(make_split(made.interactions, protocols["clean"]))
