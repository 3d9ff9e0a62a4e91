"""Every composition that the configuration allows."""

from collections.abc import Mapping
from typing import Any

from fedrec.config.modules import method_names, plugin_names
from fedrec.config.names import Composition


def compositions(methods: Mapping[str, Any]) -> list[str]:
    """Every `backbone+plugin` that `methods`, as `config/methods.yaml` holds them, allows and there are
    files for.
    """
    known = method_names()
    return [
        str(Composition(backbone, plugin))
        for plugin in plugin_names()
        for backbone in methods.get(f"+{plugin}", {}).get("backbones", {})
        if backbone in methods and backbone in known
    ]
