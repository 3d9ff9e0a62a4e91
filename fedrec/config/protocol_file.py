"""The protocols of `config/protocols.yaml`: one `published-<paper>` per paper, `clean` and `neutral`.

`clean-1` is `clean` with another seed, and nothing else.

The steps of the audit between `published-<paper>` and `clean` need no entries. `only-<switch>-<paper>` is the
paper's protocol with one switch as in `clean`; `upto-<switch>-<paper>` has this switch and all before it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from fedrec.config.default_files import file_or_default
from fedrec.config.protocol import SWITCHES, Protocol, rules_name
from fedrec.config.schema import load
from fedrec.errors import ConfigurationError, did_you_mean

_EXTENTS = ("only", "upto")


def load_protocols(path: Path) -> Mapping[str, Protocol]:
    """Read and check `config/protocols.yaml`."""
    document = load(file_or_default(path), "protocols")
    protocols = {name: Protocol(name=name, **settings) for name, settings in document.content.items()}
    for name, protocol in protocols.items():
        rules = rules_name(name)
        if rules in protocols and replace(protocols[rules], name=name, seed=protocol.seed) != protocol:
            raise ConfigurationError(
                f"{document.location((name,))}: differs from {rules} in more than the seed. Choose another "
                f"name: {rules}-<number> means {rules} with another seed."
            )
    return protocols


def protocol_named(protocols: Mapping[str, Protocol], name: str) -> Protocol:
    """The protocol called `name`; an unknown name is an error that lists the known ones."""
    extent, _, rest = name.partition("-")
    switch, _, paper = rest.partition("-")
    if extent in _EXTENTS and switch in SWITCHES and f"published-{paper}" in protocols:
        return replace(switched(protocols, paper, switches_of(f"{extent}-{switch}")), name=name)
    if name not in protocols:
        steps = [step for known in protocols.values() if known.paper for step in _steps_of(known.paper)]
        raise ConfigurationError(
            f"unknown protocol '{name}'.{did_you_mean(name, (*protocols, *steps))} Known protocols: "
            f"{', '.join(protocols)}; and the steps only-<switch>-<paper> and upto-<switch>-<paper>, where "
            f"a switch is one of {', '.join(SWITCHES)}."
        )
    return protocols[name]


def _steps_of(paper: str) -> list[str]:
    return [f"{extent}-{switch}-{paper}" for extent in _EXTENTS for switch in SWITCHES]


def switches_of(step: str) -> tuple[str, ...]:
    """The switches a step turns: `only-ties` this one, `upto-ties` all up to it."""
    extent, _, switch = step.partition("-")
    every = tuple(SWITCHES)
    return (switch,) if extent == "only" else every[: every.index(switch) + 1]


def switched(protocols: Mapping[str, Protocol], paper: str, switches: Iterable[str]) -> Protocol:
    """The protocol of `paper` with some switches as in `clean`."""
    clean = protocol_named(protocols, "clean")
    changes = {setting: getattr(clean, setting) for switch in switches for setting in SWITCHES[switch]}
    return replace(protocol_named(protocols, f"published-{paper}"), **changes)
