"""A cache of the configuration files that plans read: a process reads each text of them once."""

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from fedrec.config import tuning
from fedrec.config.document import Document
from fedrec.config.found_file import with_findings
from fedrec.config.method_entries import MethodEntry
from fedrec.config.method_file import read_entries
from fedrec.config.methods import Methods
from fedrec.config.tuning import Tuning
from fedrec.config.yaml_text import read_text
from fedrec.plan import workspace


@contextmanager
def plans_read_once() -> Iterator[None]:
    """Let workspaces share methods, searches and the checks of both, which no plan changes.

    A text with a mistake is read again each time. The node of a document stands for its text: `tests.conftest`
    parses equal texts into one node.
    """
    known: dict[Hashable, Any] = {}
    kept: list[object] = []

    def methods_once(entries: Mapping[str, MethodEntry]) -> Methods:
        key = ("methods", id(entries))
        if key not in known:
            kept.append(entries)
            known[key] = Methods(entries)
        return known[key]

    def entries_once(document: Document) -> Mapping[str, MethodEntry]:
        key = ("entries", id(document.node))
        if key not in known:
            entries = read_entries(document)
            kept.append(document)
            known[key] = entries
        return known[key]

    def found_once(entries: Mapping[str, MethodEntry], document: Document) -> Mapping[str, MethodEntry]:
        key = ("found", id(entries), id(document.node))
        if key not in known:
            joined = with_findings(entries, document)
            kept.extend((entries, document))
            known[key] = joined
        return known[key]

    def tuning_once(path: Path, methods: Methods) -> Tuning:
        key = ("tuning", read_text(path), id(methods))
        if key not in known:
            searches = tuning.load_tuning(path, methods)
            kept.append(methods)
            known[key] = searches
        return known[key]

    def check_once(document: Document, methods: Methods, searches: Tuning) -> None:
        key = ("checked", id(document.node), id(methods), id(searches))
        if key not in known:
            tuning.check_findings(document, methods, searches)
            kept.extend((document, methods, searches))
            known[key] = True

    with (
        mock.patch.object(workspace, "Methods", methods_once),
        mock.patch.object(workspace, "read_entries", entries_once),
        mock.patch.object(workspace, "with_findings", found_once),
        mock.patch.object(workspace, "load_tuning", tuning_once),
        mock.patch.object(workspace, "check_findings", check_once),
    ):
        yield
