"""Configuration files as documents, which know the line of each value, and messages about mistakes.

A message names the file, the line and the key, and what to write instead. fedrec reports a mistake once, at
its line, even if several entries include it by an anchor.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from fedrec.config.yaml_text import parse_yaml, read_text, values_of
from fedrec.errors import ConfigurationError, did_you_mean, first_lines, nearest

KeyPath = tuple[str | int, ...]
"""The path of a value in a document: keys, and indices in lists."""
_MOST_ERRORS_SHOWN = 10
_MOST_CHARACTERS_SHOWN = 60


@dataclass(frozen=True)
class Document:
    """The content of a configuration file, its origin, and its nodes, which have line numbers."""

    origin: str
    content: dict[str, Any]
    node: yaml.Node | None = field(default=None, repr=False, compare=False)

    def location(self, key: KeyPath) -> str:
        """`config/datasets.yaml, line 12, ml-100k.filter` for the key `("ml-100k", "filter")`."""
        line = self.line(key)
        where = self.origin if line is None else f"{self.origin}, line {line}"
        return f"{where}, {spelled(key)}" if key else where

    def line(self, key: KeyPath) -> int | None:
        """The line of a key, or of its nearest existing parent; for an anchor, the line of its definition."""
        lines = [step.line for step in _steps(self.node, key)]
        return lines[-1] if lines else None

    def from_anchor(self, key: KeyPath) -> bool:
        """Whether an anchor elsewhere in the file defines the value at `key`."""
        return any(step.from_anchor for step in _steps(self.node, key))

    def holds(self, key: KeyPath) -> bool:
        """Whether there is anything at `key`."""
        value: Any = self.content
        for part in key:
            inside = dict(enumerate(value)) if isinstance(value, list) else value
            if not isinstance(inside, Mapping) or part not in inside:
                return False
            value = inside[part]
        return True


@dataclass(frozen=True)
class _Step:
    """A part of a key path, found in the nodes."""

    line: int
    node: yaml.Node
    from_anchor: bool


@dataclass(frozen=True)
class Mistake:
    """A mistake at a key, with the correction, as text."""

    key: KeyPath
    text: str


def spelled(key: KeyPath) -> str:
    """`sources[0].url` for the key `("sources", 0, "url")`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key)
    return text.removeprefix(".")


@contextmanager
def error_at(location: str) -> Iterator[None]:
    """Prefix a `ConfigurationError` of the block with a location."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"{location}: {error}") from None


def read(path: Path) -> Document:
    """Read the YAML file `path`, which must hold keys and values."""
    return document_of(read_text(path), str(path))


def document_of(text: str, origin: str) -> Document:
    """The document that a YAML text holds."""
    parsed = parse_yaml(text, origin)
    if parsed.values is None:
        raise ConfigurationError(f"{origin}: the file is empty. It must contain keys and values.")
    if not isinstance(parsed.values, dict):
        raise ConfigurationError(
            f"{origin}: must contain keys and values (`key: value`), got {quoted_value(parsed.values)}."
        )
    return Document(origin, parsed.values, parsed.node)


def refuse(document: Document, mistakes: Sequence[Mistake]) -> None:
    """Raise `ConfigurationError` with all mistakes, each once, if there are any."""
    messages = _distinct_mistakes(document, mistakes)
    if messages:
        raise ConfigurationError("\n".join(first_lines(messages, _MOST_ERRORS_SHOWN, indent="")))


def schema_named(name: str) -> Mapping[str, Any]:
    """The schema called `name`, as values."""
    text = resources.files("fedrec.config").joinpath("schemas", f"{name}.schema.yaml").read_text("utf-8")
    schema: Mapping[str, Any] = values_of(text)
    return schema


def quoted_value(value: object) -> str:
    """A value and its type, for an error message."""
    kind = {
        str: "text",
        bool: "true/false",
        int: "integer",
        float: "number",
        list: "list",
        dict: "keys and values",
    }
    if value is None:
        return "nothing"
    return f"{cut_short(repr(value))} ({kind.get(type(value), type(value).__name__)})"


def _distinct_mistakes(document: Document, mistakes: Sequence[Mistake]) -> list[str]:
    """The messages of mistakes in the order of lines, each once, at its definition."""
    first_keys: dict[tuple[str, str], KeyPath] = {}
    for mistake in mistakes:
        group = (_position(document, mistake.key), mistake.text)
        if group not in first_keys or (
            document.from_anchor(first_keys[group]) and not document.from_anchor(mistake.key)
        ):
            first_keys[group] = mistake.key
    ordered = sorted(
        first_keys.items(), key=lambda item: (document.line(item[1]) or 0, [str(part) for part in item[1]])
    )
    return [f"{document.location(key)}: {text}" for (_, text), key in ordered]


def _position(document: Document, key: KeyPath) -> str:
    """The location of a key, without its name if the line is known."""
    location = document.location(key)
    return location if document.line(key) is None else location.removesuffix(f", {spelled(key)}")


def misnamed(key: KeyPath, instance: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[Mistake]:
    """Yield unknown and missing keys of an object with a closed schema.

    A missing key that is close to an unknown one was misspelt: both give one mistake.
    """
    properties = schema.get("properties", {})
    known = sorted(properties)
    unknown = sorted(set(instance) - set(known)) if "additionalProperties" in schema else []
    missing = sorted(set(schema.get("required", ())) - set(instance))
    for name in unknown:
        hint = did_you_mean(name, missing) or did_you_mean(name, known)
        yield Mistake((*key, name), f"unknown key '{name}'.{hint} Allowed here: {', '.join(known)}.")
    misspelt = {nearest(name, missing) for name in unknown}
    for name in missing:
        if name not in misspelt:
            yield Mistake(key, f"key '{name}' is missing. Add it.{hint_of(properties.get(name, {}))}")


def hint_of(schema: Mapping[str, Any]) -> str:
    """The description of a value in its schema, as a sentence."""
    return f" Expected: {schema['description']}." if "description" in schema else ""


def cut_short(text: str) -> str:
    """A text that fits into a message."""
    return text if len(text) <= _MOST_CHARACTERS_SHOWN else f"{text[:_MOST_CHARACTERS_SHOWN]}..."


def _steps(node: yaml.Node | None, key: KeyPath) -> Iterator[_Step]:
    """Yield the steps of a key path from the root, as far as they exist."""
    for part in key:
        step = None if node is None else _step(node, part)
        if step is None:
            return
        yield step
        node = step.node


def _step(node: yaml.Node, part: str | int) -> _Step | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        value = node.value[part]
        return _Step(value.start_mark.line + 1, value, from_anchor=_is_above(value, node))
    if not isinstance(node, yaml.MappingNode):
        return None
    # PyYAML puts keys merged by `<<` first, and the last value of a key counts.
    for name, value in reversed(node.value):
        if name.value == part:
            aliased = _is_above(value, name)
            line = (value if aliased else name).start_mark.line + 1
            return _Step(line, value, from_anchor=aliased or _is_above(name, node))
    return None


def _is_above(node: yaml.Node, other: yaml.Node) -> bool:
    """Whether a node is defined before the node that contains it: then an alias refers to it."""
    return bool(node.start_mark.index < other.start_mark.index)
