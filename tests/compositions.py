"""Every composition that the configuration allows, and those that speak for the others."""

from collections.abc import Iterable
from typing import Any

import pytest

from fedrec.config.methods import Methods
from fedrec.config.modules import method_names, plugin_names
from fedrec.config.names import Composition, parse


def compositions(methods: Methods) -> list[str]:
    """Every `backbone+plugin` that `methods`, as `config/methods.yaml` holds them, allows and there are
    files for.
    """
    known = method_names()
    return [
        str(Composition(backbone, plugin))
        for plugin in plugin_names()
        if f"+{plugin}" in methods
        for backbone in methods[f"+{plugin}"].backbones
        if backbone in methods and backbone in known
    ]


def speaking(names: Iterable[str]) -> list[str]:
    """Every method of `names`, and the first composition of every plug-in."""
    chosen: dict[str, str] = {}
    for name in names:
        composition = parse(name)
        key = composition.backbone if composition.plugin is None else f"+{composition.plugin}"
        chosen.setdefault(key, name)
    return list(chosen.values())


def speaking_first(names: list[str]) -> list[Any]:
    """`names` as parameters of a test: `make test` runs those that speak for the others, `make test-all` all."""
    core = speaking(names)
    return [pytest.param(name, marks=[] if name in core else pytest.mark.matrix) for name in names]
