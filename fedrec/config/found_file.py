"""Read and write `config/found.yaml`: the findings of searches, by search and dataset.

Machines that train read it without schemas. `fedrec.config.tuning` checks it against the declared searches.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf
from typing import Any

import yaml

from fedrec.config.document import Document, KeyPath, Mistake, quoted_value, refuse
from fedrec.config.method_entries import Finding, MethodEntry, Setting, entry_key, setting_meant
from fedrec.config.names import parse
from fedrec.errors import ConfigurationError, did_you_mean

_KEYS = ("trials", "settings", "held")


def with_findings(entries: Mapping[str, MethodEntry], document: Document) -> dict[str, MethodEntry]:
    """The entries with the findings of searches; `ConfigurationError` for a value that is not allowed."""
    findings: dict[str, dict[str, dict[str, Finding]]] = {}
    for search, datasets in document.content.items():
        name, _, paper = search.rpartition("@")
        entry_name, key, known = _entry_of(document, search, name, paper, entries)
        for dataset, content in datasets.items():
            refuse(document, list(_mistakes((search, dataset), name, content, known)))
            finding = Finding(
                content["trials"],
                content["settings"],
                content["held"],
                content.get("seeds", 1),
                content.get("validation"),
            )
            findings.setdefault(entry_name, {}).setdefault(key, {})[dataset] = finding
    return {name: replace(entry, findings=findings.get(name, {})) for name, entry in entries.items()}


def findings_text(before: str, findings: Mapping[str, Mapping[str, Finding]]) -> str:
    """The file that holds `found`, by search and dataset, below the comments at the top of `before`."""
    lines = before.splitlines()
    first = next((number for number, line in enumerate(lines) if line.strip() and line[0] != "#"), len(lines))
    text = [*lines[:first]]
    for search in sorted(findings):
        text.append(f"{search}:")
        for dataset, finding in sorted(findings[search].items()):
            held = dict(sorted(finding.held.items()))
            text += [f"  {dataset}:", *(f"    {line}" for line in _summary(finding).splitlines())]
            text += [f"    settings: {_on_a_line(finding.settings)}", f"    held: {_on_a_line(held)}"]
    return "\n".join(text if findings else [*text, "{}"]) + "\n"


def _summary(finding: Finding) -> str:
    """The trials of a finding and, if known, its seeds and its validation result, one per line."""
    summary: dict[str, Any] = {"trials": finding.trials}
    if finding.validation is not None:
        summary |= {"seeds": finding.seeds, "validation": finding.validation}
    text: str = yaml.safe_dump(summary, sort_keys=False)
    return text


def _on_a_line(values: Mapping[str, Any]) -> str:
    text: str = yaml.safe_dump(dict(values), default_flow_style=True, sort_keys=False, width=inf)
    return text.strip()


def _entry_of(
    document: Document, search: str, name: str, paper: str, entries: Mapping[str, MethodEntry]
) -> tuple[str, str, Mapping[str, Setting]]:
    """The entry of a search, the key of the finding in it, and the known settings."""
    composition = parse(name)
    entry_name = composition.backbone if composition.plugin is None else f"+{composition.plugin}"
    for key in (composition.backbone, entry_name):
        if key not in entries:
            raise ConfigurationError(
                f"{document.location((search,))}: unknown method '{key}'.{did_you_mean(key, list(entries))}"
            )
    settings = {**entries[composition.backbone].settings, **entries[entry_name].settings}
    return entry_name, entry_key(composition, paper), settings


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
