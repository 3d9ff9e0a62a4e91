import pytest

from fedrec.config.methods import load_methods, resolve
from fedrec.config.printed import printed
from fedrec.errors import ResultError
from fedrec.reporting.parameters import megabytes, numbers_held
from tests.conftest import ROOT

METHODS = load_methods(ROOT / "config/methods.yaml")
SIZES = {
    "filmtrust": (1002, 2042),
    "ml-100k": (943, 1682),
    "ml-1m": (6040, 3706),
    "hetrec2011": (2113, 10109),
    "lastfm-2k-c": (1269, 12322),
}


def spaces(name, dataset):
    settings, _, _ = resolve(METHODS, name, "pfedclr", dataset)
    return tuple(map(megabytes, numbers_held(name, settings, *SIZES[dataset])))


def table6(title, dataset, metric):
    return printed("pfedclr", "Table 6", dataset, (title, ""), metric).value


def test_numbers_of_a_client_and_of_the_server_by_hand():
    settings, _, _ = resolve(METHODS, "fedmf", "pfedclr", "ml-100k")
    assert numbers_held("fedmf", settings, 10, 100) == (101 * 16, 100 * 16)
    # GPFedRec: the shared table, one table per client on the server, user vector and tower 32-16-8-1.
    settings, _, _ = resolve(METHODS, "gpfedrec", "pfedclr", "ml-100k")
    assert numbers_held("gpfedrec", settings, 10, 100) == (2 * 1600 + 16 + 673, 1600 + 10 * 1600)
    settings, _, _ = resolve(METHODS, "fedmf+plgc", "plgc", "ml-100k")
    plain, _, _ = resolve(METHODS, "fedmf", "plgc", "ml-100k")
    assert numbers_held("fedmf+plgc", settings, 10, 100)[0] > numbers_held("fedmf", plain, 10, 100)[0]


def test_a_megabyte_is_two_to_the_twenty_bytes():
    assert megabytes(2**18) == 1.0


def test_a_method_without_clients_has_no_space():
    settings, _, _ = resolve(METHODS, "mf", "pfedclr", "ml-100k")
    with pytest.raises(ResultError, match="mf is not federated"):
        numbers_held("mf", settings, 10, 100)


@pytest.mark.parametrize("dataset", SIZES)
@pytest.mark.parametrize("title", ["FedMF", "FedNCF", "PFedRec", "FedRAP", "PFedCLR"])
def test_the_space_of_a_client_is_what_the_paper_prints(title, dataset):
    assert spaces(title.lower(), dataset)[0] == pytest.approx(
        table6(title, dataset, "space_client"), abs=5.01e-5
    )


@pytest.mark.parametrize("dataset", SIZES)
@pytest.mark.parametrize("title", ["FedMF", "FedRAP", "PFedCLR"])
def test_the_papers_server_holds_the_uploads_of_all_clients_besides(title, dataset):
    clients, items = SIZES[dataset]
    ours = spaces(title.lower(), dataset)[1]
    assert ours + clients * megabytes(16 * items) == pytest.approx(
        table6(title, dataset, "space_server"), abs=5.01e-5
    )


@pytest.mark.parametrize("title", ["pFedGraph", "GPFedRec"])
def test_a_client_that_downloads_its_own_aggregate_holds_two_tables(title):
    """The paper counts one: our clients keep what they trained beside what the server sent."""
    table = megabytes(16 * SIZES["ml-1m"][1])
    assert spaces(title.lower(), "ml-1m")[0] == pytest.approx(
        table6(title, "ml-1m", "space_client") + table, abs=1e-4
    )
