"""Every file of a method or plug-in: its variants, and what it says about itself."""

import importlib
import itertools
from contextlib import nullcontext

import pytest

from fedrec.config.modules import MODULE_FOLDERS, method_names, plugin_names
from fedrec.errors import ConfigurationError
from fedrec.federation.model import Citation
from fedrec.runs.registry import make_learner
from tests.by_hand import ENGINES
from tests.compositions import compositions, speaking_first
from tests.federations import METHODS, clients_of, planted_blocks, settings_of

FILES = [f"methods.{name}" for name in method_names()] + [f"plugins.{name}" for name in plugin_names()]


def file_of(name):
    package, _, stem = name.partition(".")
    module = importlib.import_module(f"fedrec.{package}.{stem.replace('-', '_')}")
    entry = METHODS[stem if package == "methods" else f"+{stem}"]
    return module, getattr(module, "METHOD" if package == "methods" else "PLUGIN"), entry.settings


@pytest.mark.parametrize("name", FILES)
def test_variants_are_values_of_settings_and_change_what_the_file_trains_by(name):
    module, plain, settings = file_of(name)
    variants = getattr(module, "VARIANTS", {})
    for (key, value), variant in variants.items():
        assert value in settings[key].choices
        assert issubclass(variant, plain)
        assert variant is not plain
    for key in {key for key, _ in variants}:
        # One value is what the class itself does.
        assert len(settings[key].choices) == 1 + sum(known == key for known, _ in variants)


REFUSED = {"plgc": {"mixing=off", "kept=mixed"}}
"""Variants that do not go together: what is not mixed cannot be kept."""


@pytest.mark.parametrize("name", speaking_first([*method_names(), *compositions(METHODS)]))
def test_variants_go_together(name):
    """All those of a method, or of a plug-in on its backbone as it stands."""
    clients = clients_of(planted_blocks(users=6))
    backbone, _, plugin = name.partition("+")
    module, _, settings = file_of(f"plugins.{plugin}" if plugin else f"methods.{backbone}")
    keys = sorted({key for key, _ in getattr(module, "VARIANTS", {})})
    for values in itertools.product(*(settings[key].choices for key in keys)):
        changes = [f"{key}={value}" for key, value in zip(keys, values, strict=True)]
        refused = REFUSED.get(plugin or backbone, {"none"}) <= set(changes)
        with pytest.raises(ConfigurationError) if refused else nullcontext():
            make_learner(name, clients, settings_of(name, *changes), 0, ENGINES[0])


@pytest.mark.parametrize("name", FILES)
def test_a_file_cites_its_paper_or_is_a_reference(name):
    _, plain, _ = file_of(name)
    if plain.paper is None:
        return
    assert plain.cost
    text = str(plain.paper)
    assert text.endswith(f"{plain.paper.year}.")
    assert not {"  ", " ,", ",,"} & {text[at : at + 2] for at in range(len(text))}


def test_a_preprint_has_no_venue():
    assert str(Citation("A, B", "Some title", "", 2025)) == "A, B: Some title, 2025."
    assert str(Citation("A et al.", "Some title", "KDD", 2024)) == "A et al.: Some title, KDD 2024."


def test_files_that_start_with_an_underscore_are_no_methods():
    for package, folder in MODULE_FOLDERS.items():
        private = [path.stem for path in folder.glob("_*.py")]
        assert private
        assert not set(private) & set(method_names() if package == "methods" else plugin_names())
