"""Reads and writes `config/found.yaml`: what searches of `config/tuning.yaml` found, by search and dataset.

Machines that train read it, too, and check no schemas. `fedrec.config.tuning` checks it against the searches.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf
from typing import Any

import yaml

from fedrec.config.document import Document, KeyPath, Mistake, quoted_value, refuse
from fedrec.config.method_entries import Found, MethodEntry, Setting, entry_key, setting_meant
from fedrec.config.names import parse
from fedrec.errors import ConfigurationError, did_you_mean

_KEYS = ("trials", "settings", "held")


def with_found(entries: Mapping[str, MethodEntry], document: Document) -> dict[str, MethodEntry]:
    """The entries with what searches found; a value that a setting may not have is refused."""
    found: dict[str, dict[str, dict[str, Found]]] = {}
    for search, datasets in document.content.items():
        name, _, paper = search.rpartition("@")
        owner, place, known = _place(document, search, name, paper, entries)
        for dataset, content in datasets.items():
            refuse(document, list(_mistakes((search, dataset), name, content, known)))
            one = Found(
                content["trials"],
                content["settings"],
                content["held"],
                content.get("seeds", 1),
                content.get("validation"),
            )
            found.setdefault(owner, {}).setdefault(place, {})[dataset] = one
    return {name: replace(entry, found=found.get(name, {})) for name, entry in entries.items()}


def found_text(before: str, found: Mapping[str, Mapping[str, Found]]) -> str:
    """The file that holds `found`, by search and dataset, below the comments at the top of `before`."""
    lines = before.splitlines()
    first = next((number for number, line in enumerate(lines) if line.strip() and line[0] != "#"), len(lines))
    text = [*lines[:first]]
    for search in sorted(found):
        text.append(f"{search}:")
        for dataset, one in sorted(found[search].items()):
            held = dict(sorted(one.held.items()))
            text += [f"  {dataset}:", *(f"    {line}" for line in _summary(one).splitlines())]
            text += [f"    settings: {_on_a_line(one.settings)}", f"    held: {_on_a_line(held)}"]
    return "\n".join(text if found else [*text, "{}"]) + "\n"


def _summary(one: Found) -> str:
    """How a finding was made, and what it reached where that is noted: a line each."""
    summary: dict[str, Any] = {"trials": one.trials}
    if one.validation is not None:
        summary |= {"seeds": one.seeds, "validation": one.validation}
    text: str = yaml.safe_dump(summary, sort_keys=False)
    return text


def _on_a_line(values: Mapping[str, Any]) -> str:
    text: str = yaml.safe_dump(dict(values), default_flow_style=True, sort_keys=False, width=inf)
    return text.strip()


def _place(
    document: Document, search: str, name: str, paper: str, entries: Mapping[str, MethodEntry]
) -> tuple[str, str, Mapping[str, Setting]]:
    """The entry that a search is about, where it stands in it, and the settings there are."""
    composition = parse(name)
    owner = composition.backbone if composition.plugin is None else f"+{composition.plugin}"
    for key in (composition.backbone, owner):
        if key not in entries:
            raise ConfigurationError(
                f"{document.location((search,))}: unknown method '{key}'.{did_you_mean(key, list(entries))}"
            )
    settings = {**entries[composition.backbone].settings, **entries[owner].settings}
    return owner, entry_key(composition, paper), settings


def _mistakes(
    key: KeyPath, name: str, content: Mapping[str, Any], known: Mapping[str, Setting]
) -> Iterator[Mistake]:
    missing = [part for part in _KEYS if part not in content]
    if missing:
        yield Mistake(key, f"key '{missing[0]}' is missing. Add it.")
        return
    if not isinstance(content["trials"], int):
        yield Mistake((*key, "trials"), f"must be a whole number, got {quoted_value(content['trials'])}.")
    for setting, value in content["settings"].items():
        at = (*key, "settings", setting)
        if setting not in known:
            yield Mistake(at, f"{name} has no setting '{setting}'.{setting_meant(setting, known)}")
        elif not known[setting].allows(value):
            yield Mistake(at, known[setting].refusal(value))
