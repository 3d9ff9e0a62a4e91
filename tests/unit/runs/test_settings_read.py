"""Every setting that an entry of `config/methods.yaml` offers is read by the code behind it."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from fedrec.config.method_entries import Setting
from fedrec.config.modules import method_names, plugin_names
from fedrec.config.names import Composition
from fedrec.errors import ConfigurationError
from fedrec.federation.engines.engine import engine_named
from fedrec.runs.registry import make_learner
from tests.federations import METHODS, clients_of, planted_blocks, settings_of

BY_THE_RUN = {"rounds"}
"""Read by what runs a method, whatever it is."""
QUICK = {"local_epochs": 1, "rebuild_epochs": 1, "align_steps": 1, "batch_size": 64, "clusters": 2}
REFUSED = {"fedem": {"dp_clip", "dp_delta"}}
"""Settings of FedMF's noise, which FedEM inherits with its code, and refuses to turn on with a reason."""


class Noted(Mapping[str, Any]):
    """Settings that note which of them are read."""

    def __init__(self, values: Mapping[str, Any], read: set[str]) -> None:
        self._values, self._read = values, read

    def __getitem__(self, key: str) -> Any:
        self._read.add(key)
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


@pytest.fixture(scope="module")
def clients():
    return clients_of(planted_blocks(users=6, items=60, per_user=9))


def offered(entry: str) -> dict[str, Setting]:
    """The settings of an entry that can be changed at all."""
    settings = METHODS[entry].settings
    return {key: setting for key, setting in settings.items() if not has_one_value(setting)}


def has_one_value(setting: Setting) -> bool:
    return len(set(setting.choices if setting.range is None else setting.range)) == 1


def another(setting: Setting, value: Any) -> list[Any]:
    """Values that may make code read what it did not: other choices, something where there was nothing."""
    if setting.type == "choice":
        return [choice for choice in setting.choices if choice != value]
    if value is None or value == 0:
        return [2 if setting.type == "integer" else min(0.5, setting.range[1])]
    return []


def read_by(name: str, entry: str, clients: Any) -> set[str]:
    """The settings that one round reads, tried with other values as long as some are unread."""
    usual = settings_of(name)
    usual |= {key: value for key, value in QUICK.items() if key in usual}
    read: set[str] = set()
    settings = offered(entry)
    changes = [{}, *({key: value} for key in settings for value in another(settings[key], usual[key]))]
    for change in changes:
        if settings.keys() <= read | BY_THE_RUN:
            break
        try:
            learner = make_learner(
                name, clients, Noted(usual | change, read), 0, engine_named("batched", 2**30)
            )
            learner.train_round(1)
            learner.scores(clients.everyone, clients.candidates["test"][:, :2])
            learner.notes(1)
        except ConfigurationError:
            continue  # Some values do not go with each other.
    return read


ENTRIES = [(name, name) for name in method_names()] + [
    (str(Composition(next(iter(METHODS[f"+{plugin}"].backbones)), plugin)), f"+{plugin}")
    for plugin in plugin_names()
]


@pytest.mark.parametrize(("name", "entry"), ENTRIES, ids=[entry for _, entry in ENTRIES])
def test_an_entry_offers_what_is_read_and_nothing_else(name, entry, clients):
    unread = set(offered(entry)) - read_by(name, entry, clients) - BY_THE_RUN - REFUSED.get(entry, set())
    assert not unread
