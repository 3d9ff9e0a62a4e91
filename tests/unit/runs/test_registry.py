import sys

import pytest

from fedrec import plugins
from fedrec.config import modules
from fedrec.config.modules import modules_of, plugin_names
from fedrec.errors import ConfigurationError
from fedrec.federation.engines.batched.engine import BatchedEngine
from fedrec.federation.federation import Federation
from fedrec.runs.registry import make_learner
from tests.compositions import compositions
from tests.federations import clients_of, planted_blocks, settings_of

PLUGIN = """
from fedrec.methods.fedmf import FedMF


class HalfRate(FedMF):
    def __init__(self, backbone, settings, items):
        super().__init__(settings | {"rate": backbone.settings["rate"] / 2}, items)
        self.backbone = backbone


PLUGIN = HalfRate
"""


@pytest.fixture
def half_rate(tmp_path, monkeypatch):
    """One plug-in, `half-rate`, and no other."""
    (tmp_path / "half_rate.py").write_text(PLUGIN)
    monkeypatch.setattr(plugins, "__path__", [str(tmp_path)])
    monkeypatch.setitem(modules.FOLDERS, "plugins", tmp_path)
    yield "half-rate"
    sys.modules.pop("fedrec.plugins.half_rate", None)


@pytest.fixture
def no_plugins(tmp_path, monkeypatch):
    monkeypatch.setattr(plugins, "__path__", [str(tmp_path)])
    monkeypatch.setitem(modules.FOLDERS, "plugins", tmp_path)


def learner_of(name, backbone):
    clients = clients_of(planted_blocks(users=4))
    return make_learner(name, clients, settings_of(backbone), 0, BatchedEngine(2**30))


def test_a_plug_in_joins_by_its_file(half_rate):
    assert plugin_names() == [half_rate]
    assert modules_of("fedmf+half-rate[d=8]") == ["fedrec.methods.fedmf", "fedrec.plugins.half_rate"]
    learner = learner_of("fedmf+half-rate", "fedmf")
    assert isinstance(learner, Federation)
    assert type(learner.method).__name__ == "HalfRate"
    assert type(learner.method.backbone).__name__ == "FedMF"


@pytest.mark.usefixtures("half_rate")
def test_compositions_are_those_the_configuration_allows_and_files_exist_for():
    entries = {"backbones": {"fedmf": "so", "fedncf": "so", "fileless": "so", "unknown": "so"}}
    methods = {"fedmf": {}, "fedncf": {}, "fileless": {}, "+half-rate": entries, "+fileless": entries}
    assert compositions(methods) == ["fedmf+half-rate", "fedncf+half-rate"]
    assert compositions({"fedmf": {}}) == []


@pytest.mark.parametrize(
    ("backbone", "said"),
    [
        ("mf", "mf has no clients that train"),
        ("popularity", "popularity has no clients that train"),
        ("local-only", "nothing of local-only leaves the client"),
    ],
)
def test_a_plug_in_needs_something_shared(half_rate, backbone, said):
    with pytest.raises(ConfigurationError, match=said):
        learner_of(f"{backbone}+{half_rate}", backbone)


@pytest.mark.usefixtures("half_rate")
def test_an_unknown_plug_in_is_refused_with_the_nearest():
    said = r"unknown plug-in 'half-rat'. Did you mean 'half-rate'\? There are: half-rate\."
    with pytest.raises(ConfigurationError, match=said):
        modules_of("fedmf+half-rat")


@pytest.mark.usefixtures("no_plugins")
def test_there_may_be_no_plug_in_at_all():
    assert plugin_names() == []
    assert modules_of("local-only[d=8]") == ["fedrec.methods.local_only"]
    with pytest.raises(ConfigurationError, match=r"unknown plug-in 'plgc'\. There are: none\."):
        modules_of("fedmf+plgc")
