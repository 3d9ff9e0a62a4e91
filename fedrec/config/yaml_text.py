"""YAML text as values, or as nodes that know their lines; read by the C library where PyYAML has it.

That is ten times as fast, and every command and every call of snakemake reads the configuration first.
"""

from typing import Any

import yaml

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def values_of(text: str) -> Any:  # noqa: ANN401 - whatever the text holds
    """The values in `text`; raises `yaml.YAMLError` where it is not YAML."""
    return yaml.load(text, Loader=_LOADER)  # noqa: S506 - it is a safe loader


def nodes_of(text: str) -> yaml.Node | None:
    """The nodes of `text`, with the lines they stand in."""
    root: yaml.Node | None = yaml.compose(text, Loader=_LOADER)
    return root
