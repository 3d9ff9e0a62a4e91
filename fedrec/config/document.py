"""Configuration files: read with line numbers, checked against closed JSON schemas.

An error names the file, the line and the key, and says what to write instead. Schemas lie
in `fedrec/config/schemas`; each is closed, so that a misspelt key is an error and not a default.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from fedrec.config.yaml_text import nodes_of, values_of
from fedrec.errors import ConfigurationError, did_you_mean

KeyPath = tuple[str | int, ...]
"""Where a value stands in a document: names of keys, and numbers in lists."""
_MOST_ERRORS_SHOWN = 10
_FITTING: set[tuple[str, str]] = set()
"""Cache of texts that fit a schema, with its name: they need not be checked again."""


@dataclass(frozen=True)
class Document:
    """The content of a configuration, where it came from, and the line of each key."""

    origin: str
    content: dict[str, Any]
    lines: Mapping[KeyPath, int] = field(default_factory=dict)

    def place(self, key: KeyPath) -> str:
        """`config/datasets.yaml, line 12, ml-100k.filter` for the key `("ml-100k", "filter")`."""
        line = next((self.lines[key[:n]] for n in range(len(key), 0, -1) if key[:n] in self.lines), None)
        where = self.origin if line is None else f"{self.origin}, line {line}"
        return f"{where}, {spelled(key)}" if key else where


def spelled(key: KeyPath) -> str:
    """`sources[0].url` for the key `("sources", 0, "url")`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key)
    return text.removeprefix(".")


def load(path: Path, schema: str) -> Document:
    """Read the YAML file `path` and check it against the schema called `schema`."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigurationError(
            f"{path}: no such file. Run from the project's top folder, or give the path of your own file."
        ) from None
    try:
        node = nodes_of(text)
        content = values_of(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path}: not valid YAML: {error}") from None
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path}: must hold keys and values, got {_described(content)}.")
    document = Document(str(path), content, dict(_key_lines(node, (), str(path))))
    if (text, schema) not in _FITTING:
        check(document, schema)
        _FITTING.add((text, schema))
    return document


def check(document: Document, schema: str) -> None:
    """Raise `ConfigurationError`, listing what is wrong, unless `document` fits the schema."""
    text = resources.files("fedrec.config").joinpath("schemas", f"{schema}.schema.yaml").read_text("utf-8")
    validator = jsonschema.Draft202012Validator(values_of(text))
    errors = sorted(validator.iter_errors(document.content), key=lambda e: [str(p) for p in e.absolute_path])
    # The validator reports each missing key by itself, and each report tells all of them.
    messages = list(dict.fromkeys(message for error in errors for message in _messages(error, document)))
    if messages:
        shown = messages[:_MOST_ERRORS_SHOWN]
        if len(messages) > len(shown):
            shown.append(f"... and {len(messages) - len(shown)} more")
        raise ConfigurationError("\n".join(shown))


def _messages(error: jsonschema.ValidationError, document: Document) -> Iterator[str]:
    """One line per mistake: place, what is wrong, what to write."""
    key: KeyPath = tuple(error.absolute_path)
    place = document.place(key)
    schema: Mapping[str, Any] = error.schema if isinstance(error.schema, dict) else {}
    instance: Any = error.instance
    wanted: Any = error.validator_value
    hint = _hint(schema)
    match error.validator:
        case "additionalProperties":
            known = sorted(schema.get("properties", {}))
            for name in sorted(set(instance) - set(known)):
                yield (
                    f"{document.place((*key, name))}: unknown key '{name}'.{did_you_mean(str(name), known)}"
                    f" Allowed here: {', '.join(known)}."
                )
        case "required":
            for name in sorted(set(wanted) - set(instance)):
                yield f"{place}: key '{name}' is missing.{_hint(schema['properties'].get(name, {}))}"
        case "enum":
            allowed = [str(value) for value in wanted]
            yield (
                f"{place}: {_described(instance)} is not allowed.{did_you_mean(str(instance), allowed)}"
                f" Write one of: {', '.join(allowed)}.{hint}"
            )
        case "type":
            kinds = " or ".join(wanted) if isinstance(wanted, list) else wanted
            yield f"{place}: must be of type {kinds}, got {_described(instance)}.{hint}"
        case _:
            yield f"{place}: {error.message}.{hint}"


def _hint(schema: Mapping[str, Any]) -> str:
    return f" It is: {schema['description']}." if "description" in schema else ""


def _described(value: object) -> str:
    """A value and its type, in the words of an error message."""
    kind = {
        str: "text",
        bool: "true/false",
        int: "integer",
        float: "number",
        list: "list",
        dict: "keys and values",
    }
    return "nothing" if value is None else f"{value!r} ({kind.get(type(value), type(value).__name__)})"


def _key_lines(node: yaml.Node | None, key: KeyPath, origin: str) -> Iterator[tuple[KeyPath, int]]:
    """The line of every key below `node`; a key written twice is an error, not a silent choice."""
    if isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield (*key, index), value.start_mark.line + 1
            yield from _key_lines(value, (*key, index), origin)
    elif isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for name, value in node.value:
            line = name.start_mark.line + 1
            if name.value in seen:
                raise ConfigurationError(
                    f"{origin}, line {line}, {spelled((*key, name.value))}: written twice "
                    f"(first on line {seen[name.value]}). Keep one."
                )
            seen[name.value] = line
            yield (*key, name.value), line
            yield from _key_lines(value, (*key, name.value), origin)
