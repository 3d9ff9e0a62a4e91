"""Every composition that the configuration allows."""

from fedrec.config.methods import Methods
from fedrec.config.modules import method_names, plugin_names
from fedrec.config.names import Composition


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
