"""The one spelling of a method, with a plug-in or with settings changed.

    backbone                        fedmf
    backbone+plugin                 fedmf+plgc
    backbone[setting=value]...      fedmf[d=8][rate=0.1]
    backbone+plugin[setting=value]  fedmf+plgc[beta=0.3]

Each setting has its own brackets, because cluster schedulers split names at commas. fedrec also reads
`fedmf[d=8, rate=0.1]`. The folder is `fedmf+plgc@beta-0.3`, which needs no quoting. This module checks only
the spelling; `fedrec.config.methods` knows the methods, settings and values.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import NoReturn

from fedrec.errors import ConfigurationError

_FORM = "Write backbone+plugin[setting=value]; the plug-in and the brackets are optional."


@dataclass(frozen=True)
class Composition:
    """A backbone, its plug-in if any, and the changed settings as texts."""

    backbone: str
    plugin: str | None = None
    changes: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """The spelling without changed settings."""
        return self.backbone if self.plugin is None else f"{self.backbone}+{self.plugin}"

    def with_changes(self, changes: Mapping[str, str]) -> "Composition":
        """The same composition with further changes; a new value replaces an earlier one."""
        return replace(self, changes=tuple({**dict(self.changes), **changes}.items()))

    def __str__(self) -> str:
        return self.name + "".join(f"[{name}={value}]" for name, value in self.changes)


@cache
def parse(text: str) -> Composition:
    """The parts of a spelling; blanks around them do not matter."""
    head, bracket, rest = text.partition("[")
    groups = re.fullmatch(r"((?:\s*\[[^\[\]]*\])*)(.*)", bracket + rest, flags=re.DOTALL)
    inside, behind = groups.groups() if groups else ("", bracket + rest)
    if "]" in head or "[" in behind or "]" in behind:
        _refuse(text, "its brackets do not match")
    if behind.strip():
        _refuse(text, f"'{behind.strip()}' follows the brackets, which must come last")
    backbone, *plugins = (part.strip() for part in head.split("+"))
    if not backbone:
        _refuse(text, "the backbone is missing")
    if "" in plugins:
        _refuse(text, "the plug-in after '+' is missing")
    if len(plugins) > 1:
        _refuse(text, "two plug-ins both replace the item table; use one")
    changes = _parse_changes(text, re.findall(r"\[([^\]]*)\]", inside))
    return Composition(backbone, plugins[0] if plugins else None, changes)


def parse_change(text: str) -> tuple[str, str]:
    """The name and the value of `name=value`."""
    name, _, value = (part.strip() for part in text.partition("="))
    if not name or not value:
        raise ConfigurationError(f"'{text}' is not a setting; write name=value, for example d=32.")
    return name, value


def parse_changes(texts: Iterable[str]) -> dict[str, str]:
    """The values by name of texts `name=value`, each one setting that is given once."""
    changes: dict[str, str] = {}
    for text in texts:
        name, value = parse_change(text)
        if "," in value and "=" in value:
            words = " ".join(f"--set {part.strip()}" for part in text.split(","))
            raise ConfigurationError(f"'{text}' is more than one setting. Give each separately: {words}.")
        if changes.setdefault(name, value) != value:
            raise ConfigurationError(
                f"{name}={changes[name]} and {name}={value} contradict each other. Give {name} once."
            )
    return changes


def folder_name(spelling: str) -> str:
    """The folder of a method: `fedmf+plgc@beta-0.3@d-8` for `fedmf+plgc[beta=0.3][d=8]`."""
    composition = parse(spelling)
    return composition.name + "".join(f"@{name}-{value}" for name, value in composition.changes)


def spelling_of(folder_name: str) -> str:
    """The inverse of `folder_name`: the first dash behind an `@` parts a setting from its value."""
    name, *changes = folder_name.split("@")
    pairs = tuple((key, value) for key, _, value in (change.partition("-") for change in changes))
    composition = parse(name)
    if composition.changes or not all(key and value for key, value in pairs):
        raise ConfigurationError(
            f"'{folder_name}' is not the folder of a method; write fedmf+plgc@beta-0.3 for "
            "fedmf+plgc[beta=0.3]."
        )
    return str(replace(composition, changes=pairs))


def _parse_changes(text: str, groups: list[str]) -> tuple[tuple[str, str], ...]:
    if not all(group.strip() for group in groups):
        _refuse(text, "its brackets are empty")
    changes = tuple(parse_change(part) for group in groups for part in group.split(","))
    names = [name for name, _ in changes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        _refuse(text, f"'{twice}' is set twice")
    return changes


def _refuse(text: str, reason: str) -> NoReturn:
    raise ConfigurationError(f"'{text}': {reason}. {_FORM}")
