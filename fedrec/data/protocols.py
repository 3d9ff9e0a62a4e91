"""The protocols of `config/protocols.yaml`: one `published-<paper>` per paper, and `clean`."""

from collections.abc import Mapping
from pathlib import Path

from fedrec.data.protocol import Protocol
from fedrec.errors import ConfigurationError, did_you_mean
from fedrec.schema import load


def load_protocols(path: Path) -> Mapping[str, Protocol]:
    """Read and check `config/protocols.yaml`."""
    document = load(path, "protocols")
    return {name: Protocol(name=name, **settings) for name, settings in document.content.items()}


def protocol_named(protocols: Mapping[str, Protocol], name: str) -> Protocol:
    """The protocol called `name`; an unknown name is an error that lists the known ones."""
    if name not in protocols:
        raise ConfigurationError(
            f"unknown protocol '{name}'.{did_you_mean(name, protocols)} Known: {', '.join(protocols)}."
        )
    return protocols[name]
