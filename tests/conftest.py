"""What the tests share: the project's own configuration, small made datasets, the mirror."""

import gc
import os
import pickle
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import settings

from fedrec.config import document
from fedrec.config.catalogue import Catalogue, load_catalogue
from fedrec.config.protocol import Protocol
from fedrec.config.protocol_file import load_protocols
from fedrec.config.yaml_text import Parsed, parse_yaml
from fedrec.errors import NoCompilerError
from tests.made_data import ROOT

HALF_WRITTEN = shutil.ignore_patterns("*.pyc.*")
"""What no copy of the sources takes along: another worker may be writing it. What Python has compiled is taken,
and found right by the times that a copy keeps."""

# The same examples on every run: a test fails because of a change, not because of luck.
settings.register_profile("fedrec", derandomize=True, deadline=None, max_examples=30)
settings.load_profile("fedrec")


SOON = "-O0"
"""The flag by which a kernel is compiled in half of the time: there are many, for cases that are small."""


def swift() -> str:
    """Flags for kernels that learn for many rounds: they use vectors, and are compiled soon all the same.

    What gcc leaves out for it is how turns are counted and where numbers lie: it changes none of them.
    """
    from fedrec.native.on_cpu import flags

    with suppress(NoCompilerError):
        if "-fpeel-loops" in flags():
            return "-O1 -ftree-vectorize -fno-peel-loops -fno-ivopts -fira-region=one"
    return "-O1 -ftree-vectorize"


# Some tests interrupt themselves, which a shell that starts them in its background would have them ignore.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


GARBAGE_AFTER = 20_000
"""How many new objects there are before garbage is looked for, which Python does after some hundreds."""


def pytest_configure() -> None:
    """No garbage comes of importing modules: nobody looks for it before tests begin."""
    gc.disable()


def pytest_collection_finish() -> None:
    """What was imported stays to the end: nobody looks for garbage in it again."""
    gc.freeze()
    gc.set_threshold(GARBAGE_AFTER)
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest to set up: at the end, all workers would wait for it together."""
    items.sort(key=lambda item: item.path.parent.name != "workflow")


_PARSED: dict[str, tuple[bytes, yaml.Node | None]] = {}
"""Cache of the values and nodes of YAML texts."""


def _parsed(text: str, origin: str) -> Parsed:
    """What `parse_yaml` gives; the values of a text that it has taken before are made anew."""
    if text not in _PARSED:
        parsed = parse_yaml(text, origin)
        _PARSED[text] = pickle.dumps(parsed.values), parsed.node
    values, node = _PARSED[text]
    return Parsed(pickle.loads(values), node)


@pytest.fixture(scope="session", autouse=True)
def _kernels_are_compiled_soon() -> None:
    """Also those of processes that tests start. torch is imported here, as the process that hands tests to workers
    has no use for it."""
    from fedrec.native.on_cpu import FLAGS

    os.environ.setdefault(FLAGS, SOON)


@pytest.fixture(scope="session", autouse=True)
def _rules_are_checked_once() -> Iterator[None]:
    """Check each function of a method against the rules once in a worker: hundreds of tests train the same ones."""
    from tests.known_rules import rules_checked_once

    with rules_checked_once():
        yield


@pytest.fixture(scope="session", autouse=True)
def _texts_are_parsed_once() -> Iterator[None]:
    """Tests read the files of the configuration hundreds of times, and to parse them takes longest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document, "parse_yaml", _parsed)
        yield


@pytest.fixture(scope="session", autouse=True)
def _plans_are_read_once(_texts_are_parsed_once: None) -> Iterator[None]:
    """Hundreds of tests plan with the same methods and searches, which take longest to check."""
    from tests.known_plans import plans_read_once

    with plans_read_once():
        yield


@pytest.fixture(scope="session", autouse=True)
def _nothing_waits_for_the_disk() -> Iterator[None]:
    """Tests write thousands of small files, none of which has to outlive a power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines train at once, without a comparison with the loop: a test counts what the run itself does."""
    monkeypatch.setattr("fedrec.runs.engine_check.CheckedEngine._compared", lambda engine, *_: engine.name)


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    return load_catalogue(ROOT / "config/datasets.yaml")


@pytest.fixture(scope="session")
def protocols() -> dict[str, Protocol]:
    return dict(load_protocols(ROOT / "config/protocols.yaml"))


@pytest.fixture(scope="session")
def mirror() -> Path:
    """The folder of real raw files, which FEDREC_MIRROR names."""
    named = os.environ.get("FEDREC_MIRROR")
    if not named:
        pytest.skip("set FEDREC_MIRROR to a folder of raw files to test on real data")
    folder = Path(named)
    assert folder.is_dir(), f"FEDREC_MIRROR names {folder}, which is not a folder"
    return folder


def entry(path: str, **changes: Any) -> dict[str, Any]:
    """A catalogue entry for a comma-separated file of user, item, rating, time."""
    made: dict[str, Any] = {
        "title": "Made for a test",
        "citation": "none",
        "licence": "free",
        "papers": ["pfedrec"],
        "interactions": {
            "path": path,
            "unverified": "made by a test",
            "sources": [],
            "format": {"separator": ",", "columns": {"user": 0, "item": 1, "rating": 2, "time": 3}},
        },
        "filter": {"min_rows": 1},
        "time": "file",
        "published": {},
    }
    return made | changes


@pytest.fixture
def write_catalogue(tmp_path: Path) -> Callable[..., Path]:
    """Writes entries, by name, as a catalogue and returns its path."""

    def write(**entries: dict[str, Any]) -> Path:
        path = tmp_path / "datasets.yaml"
        path.write_text(yaml.safe_dump(entries, sort_keys=False))
        return path

    return write
