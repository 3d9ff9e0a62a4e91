import importlib
import sys

import pytest

from fedrec import methods, plugins
from fedrec.config import modules
from fedrec.config.method_entries import MethodEntry
from fedrec.config.methods import resolve
from fedrec.config.modules import modules_of, plugin_names
from fedrec.errors import ConfigurationError
from fedrec.federation.engines.batched.engine import BatchedEngine
from fedrec.federation.federation import Federation
from fedrec.runs.registry import make_learner, make_method
from tests.compositions import compositions
from tests.federations import METHODS, clients_of, planted_blocks, settings_of

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
    monkeypatch.setitem(modules.MODULE_FOLDERS, "plugins", tmp_path)
    yield "half-rate"
    sys.modules.pop("fedrec.plugins.half_rate", None)


@pytest.fixture
def no_plugins(tmp_path, monkeypatch):
    monkeypatch.setattr(plugins, "__path__", [str(tmp_path)])
    monkeypatch.setitem(modules.MODULE_FOLDERS, "plugins", tmp_path)


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
    methods = {name: MethodEntry(name, name, {}) for name in ("fedmf", "fedncf", "fileless")}
    backbones = dict.fromkeys((*methods, "unknown"), "so")
    plugins = {name: MethodEntry(name, name, {}, backbones=backbones) for name in ("+half-rate", "+fileless")}
    assert compositions(methods | plugins) == ["fedmf+half-rate", "fedncf+half-rate"]
    assert compositions(methods) == []


@pytest.mark.parametrize(
    ("backbone", "said"),
    [
        ("mf", "mf has no clients that train"),
        ("popularity", "popularity has no clients that train"),
        ("local-only", "local-only uploads nothing, but a plug-in needs uploads"),
    ],
)
def test_a_plug_in_needs_something_shared(half_rate, backbone, said):
    with pytest.raises(ConfigurationError, match=said):
        learner_of(f"{backbone}+{half_rate}", backbone)


@pytest.mark.usefixtures("half_rate")
def test_an_unknown_plug_in_is_refused_with_the_nearest():
    said = r"'half-rat' has no file: fedrec/plugins/half_rat.py is missing. Did you mean 'half-rate'\? Files exist for: half-rate\."
    with pytest.raises(ConfigurationError, match=said):
        modules_of("fedmf+half-rat")


@pytest.mark.usefixtures("no_plugins")
def test_there_may_be_no_plug_in_at_all():
    assert plugin_names() == []
    assert modules_of("local-only[d=8]") == ["fedrec.methods.local_only"]
    with pytest.raises(ConfigurationError, match=r"plgc.py is missing\. Files exist for: none\."):
        modules_of("fedmf+plgc")


VARIED = """
from fedrec.methods.fedmf import FedMF


class Plain(FedMF):
    def item_rate(self):
        return 1.0

    def said(self):
        return "plain"


class Uniform(Plain):
    def said(self):
        return f"uniform, {super().said()}"


class Touched(Plain):
    def item_rate(self):
        return 2.0

    def said(self):
        return f"touched, {super().said()}"


METHOD = Plain
VARIANTS = {("user_initial", "uniform"): Uniform, ("combine", "touched"): Touched}
"""


@pytest.fixture
def varied(tmp_path, monkeypatch):
    """One method, `varied`, with two variants."""
    (tmp_path / "varied.py").write_text(VARIED)
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    monkeypatch.setitem(modules.MODULE_FOLDERS, "methods", tmp_path)
    yield lambda **changes: make_method("varied", settings_of("fedmf") | changes, 9)
    sys.modules.pop("fedrec.methods.varied", None)


def test_variants_are_picked_by_settings_and_combined_in_order(varied):
    assert varied().said() == "plain"
    assert varied(user_initial="uniform").said() == "uniform, plain"
    assert varied(combine="touched").said() == "touched, plain"
    both = varied(user_initial="uniform", combine="touched")
    assert both.said() == "uniform, touched, plain"
    assert both.item_rate() == 2.0


def test_variants_that_cannot_be_combined_are_refused(varied):
    file = sys.modules.get("fedrec.methods.varied") or importlib.import_module("fedrec.methods.varied")
    file.VARIANTS = {("user_initial", "uniform"): file.Plain, ("combine", "touched"): file.Touched}
    with pytest.raises(ConfigurationError, match="user_initial=uniform, combine=touched cannot be combined"):
        varied(user_initial="uniform", combine="touched")


def test_code_that_asks_for_a_setting_that_its_entry_does_not_have_gets_an_error():
    settings = dict(resolve(METHODS, "fedmf", None, "any")[0])
    del settings["d"]
    with pytest.raises(ConfigurationError, match="the code of fedmf reads a setting 'd'"):
        make_method("fedmf", settings, 8).parameters()
