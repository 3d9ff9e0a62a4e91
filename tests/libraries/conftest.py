"""The splits on which methods stand beside libraries."""

import pytest
import torch

from fedrec.data.fetch import fetch
from fedrec.data.prepare import prepare
from fedrec.data.split import make_split
from tests.federations import clients_of, precision


@pytest.fixture
def double_precision():
    with precision(torch.float64):
        yield


@pytest.fixture(scope="module", params=["demo", "ml-100k"])
def clients(request, catalogue, protocols, tmp_path_factory):
    """The clean split of a dataset; of a real one where there is a mirror."""
    dataset, raw = catalogue[request.param], tmp_path_factory.mktemp("raw")
    mirror = request.getfixturevalue("mirror") if dataset.synthetic is None else None
    for file in dataset.files():
        fetch(file, raw / file.path, mirror)
    return clients_of(make_split(prepare(dataset, raw).interactions, protocols["clean"]))
