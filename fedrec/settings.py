"""The settings of a run: what `config/methods.yaml` gives for the method, the paper and the dataset,
and what the user sets. Unknown, misspelt and impossible settings are refused.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from fedrec.errors import ConfigurationError, did_you_mean

Settings = dict[str, Any]
_READERS = {"integer": int, "number": float, "choice": str}


def load_methods(path: Path) -> Mapping[str, Any]:
    """Read `config/methods.yaml`. (The workflow checks it against its schema; training need not.)"""
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: no such file. Run from the project's top folder.") from None


def resolve(
    methods: Mapping[str, Any], method: str, paper: str | None, dataset: str, changes: Sequence[str] = ()
) -> tuple[Settings, dict[str, str], str]:
    """The value of every setting, the source of each, and the paper the run follows.

    `changes` are texts `name=value`; they win over the file.
    """
    if method not in methods:
        raise ConfigurationError(
            f"unknown method '{method}'.{did_you_mean(method, methods)} Known: {', '.join(methods)}."
        )
    entry = methods[method]
    paper = paper or entry["paper"]
    values: Settings = {}
    sources: dict[str, str] = {}
    for name, setting in entry["settings"].items():
        special = setting.get("papers", {}).get(paper, setting)
        values[name] = special.get("datasets", {}).get(dataset, special["value"])
        sources[name] = special["source"]
    for change in changes:
        name, given, text = change.partition("=")
        if not given:
            raise ConfigurationError(f"'{change}' is no setting; write name=value, for example d=32.")
        if name not in values:
            raise ConfigurationError(
                f"{method} has no setting '{name}'.{did_you_mean(name, values)} It has: {', '.join(values)}."
            )
        values[name] = _read(method, name, entry["settings"][name], text)
        sources[name] = "user"
    for name, setting in entry["settings"].items():
        _check(method, name, setting, values[name])
    return values, sources, paper


def _read(method: str, name: str, setting: Mapping[str, Any], text: str) -> object:
    if setting.get("nullable") and text in ("null", "none", ""):
        return None
    try:
        if setting["type"] == "integers":
            return [int(part) for part in text.strip("[]").split(",")]
        return _READERS[setting["type"]](text)
    except ValueError:
        raise ConfigurationError(
            f"{method}: {name}={text} is no {setting['type']}: {setting['meaning']}; {_allowed(setting)}."
        ) from None


def _check(method: str, name: str, setting: Mapping[str, Any], value: object) -> None:
    if value is None and setting.get("nullable"):
        return
    parts = value if isinstance(value, list) else [value]
    if setting["type"] == "choice":
        right = value in setting["choices"]
    else:
        low, high = setting["range"]
        whole = setting["type"] != "number"
        right = all(
            isinstance(part, int | float)
            and not isinstance(part, bool)
            and (isinstance(part, int) or not whole)
            and low <= part <= high
            for part in parts
        )
    if not right:
        raise ConfigurationError(
            f"{method}: {name}={value} is not allowed: {setting['meaning']}; {_allowed(setting)}."
        )


def _allowed(setting: Mapping[str, Any]) -> str:
    if setting["type"] == "choice":
        return f"one of {', '.join(setting['choices'])}"
    low, high = setting["range"]
    return f"{setting['type']} from {low:g} to {high:g}" + (" or null" if setting.get("nullable") else "")
