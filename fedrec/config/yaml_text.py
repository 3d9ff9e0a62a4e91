"""Parse YAML files to values and to nodes with line numbers; describe a broken file in one sentence.

If PyYAML has its C library, fedrec uses it: it is ten times as fast, and every command reads the
configuration first. That library trusts its input. So fedrec limits nesting and aliases before it builds
values: a file of a few lines could expand to more values than any memory holds.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fedrec.errors import ConfigurationError

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MOST_BYTES = 10_000_000
_MOST_LEVELS = 60
_MOST_VALUES = 500_000
"""Values of a file once every alias is followed; the largest of this project has some twenty thousand."""

_CAUSES: tuple[tuple[str, str], ...] = (
    ("mapping values are not allowed", "Quote text with a colon. Keys of one level start in one column."),
    ("could not find expected ':'", "A line of keys and values reads `key: value`."),
    ("did not find expected key", "Start keys of one level in one column. Is a quote or a comma missing?"),
    ("did not find expected '-'", "Start items of one list in one column, each with `- `."),
    ("block sequence entries", "Start the list on a new line, or write [a, b]."),
    ("unexpected end of stream", "A quote that opens there is not closed."),
    ("undefined alias", "`*name` needs `&name` above it; quote text that starts with *."),
    ("could not determine a constructor", "fedrec reads no tags (words that start with !). Remove the tag."),
    ("unknown escape character", "Use single quotes, or write a backslash twice."),
    ("another document", "A file may contain one document only: remove the line ---."),
    ("cannot start any token", "Quote text that starts with such a character."),
)  # fmt: skip


@dataclass(frozen=True)
class Parsed:
    """A YAML text: its values, and the node of the whole, None for an empty text."""

    values: Any
    node: yaml.Node | None


def values_of(text: str) -> Any:  # noqa: ANN401 - whatever the text holds
    """The values in a text of our own; raises `yaml.YAMLError` where it is not YAML."""
    return yaml.load(text, Loader=_LOADER)  # noqa: S506 - it is a safe loader


def read_text(path: Path) -> str:
    """The text of a configuration file; `ConfigurationError` if it does not exist or is not UTF-8."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ConfigurationError(
            f"{path}: no such file. Start the command in the project's top folder, or give the path of your "
            "own file."
        ) from None
    except OSError as error:
        raise ConfigurationError(
            f"{path}: cannot be read: {error.strerror or error}. Give the path of a YAML file."
        ) from None
    if len(content) > _MOST_BYTES:
        raise ConfigurationError(
            f"{path}: is too large for a configuration file ({len(content):,} bytes). Is it the right file?"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(
            f"{path}, line {line}: byte 0x{content[error.start]:02x} is not UTF-8. Save the file as UTF-8."
        ) from None


def parse_yaml(text: str, origin: str) -> Parsed:
    """The values of a YAML text, and their nodes; `origin` names it in errors.

    A key written twice, one that is no text, and values without end are refused, as is what is not YAML.
    """
    try:
        _check_levels(text, origin)
        loader = _LOADER(text)
        try:
            node = loader.get_single_node()
            _check_nodes(node, origin)
            return Parsed(None if node is None else loader.construct_document(node), node)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ConfigurationError(_sentence(error, text, origin)) from None


def _check_levels(text: str, origin: str) -> None:
    """Raise `ConfigurationError` where values nest too deep for the parser, which would not survive it."""
    levels = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            levels += 1
            if levels > _MOST_LEVELS:
                line = event.start_mark.line + 1 if event.start_mark else 1
                raise ConfigurationError(
                    f"{origin}, line {line}: more than {_MOST_LEVELS} nested levels. Is a bracket not closed?"
                )
        elif isinstance(event, yaml.CollectionEndEvent):
            levels -= 1


def _check_nodes(root: yaml.Node | None, origin: str) -> None:
    """Raise `ConfigurationError` for a key written twice or no text, and for values without end."""
    sizes: dict[int, int] = {}
    if root is not None and _size(root, sizes, origin) > _MOST_VALUES:
        raise ConfigurationError(
            f"{origin}: its aliases (*name) expand to more than {_MOST_VALUES:,} values. Write fewer aliases."
        )


def _size(node: yaml.Node, sizes: dict[int, int], origin: str) -> int:
    """The number of values below a node, every alias followed; each node is looked at once."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in sizes:
        # Until it is known, a node inside itself counts as more than is allowed.
        sizes[id(node)] = _MOST_VALUES
        if isinstance(node, yaml.MappingNode):
            _check_keys(node, origin)
        sizes[id(node)] = 1 + sum(_size(child, sizes, origin) for child in _children(node))
    return sizes[id(node)]


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        yield from (value for _, value in node.value)
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


def _check_keys(node: yaml.MappingNode, origin: str) -> None:
    """A key written twice is an error, not a silent choice."""
    seen: dict[str, int] = {}
    for name, _ in node.value:
        line = name.start_mark.line + 1
        if not isinstance(name, yaml.ScalarNode) or name.tag not in _TEXT_TAGS:
            shown = f" '{name.value}'" if isinstance(name, yaml.ScalarNode) else ""
            raise ConfigurationError(
                f"{origin}, line {line}: the key{shown} is not text. Write it in quotes."
            )
        if name.value in seen:
            raise ConfigurationError(
                f"{origin}, line {line}, {name.value}: written twice (first on line {seen[name.value]}). "
                "Keep one."
            )
        seen[name.value] = line


_TEXT_TAGS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge")


def _sentence(error: yaml.YAMLError, text: str, origin: str) -> str:
    """What is wrong with a text that is not YAML, where, and what usually causes it."""
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return (
            f"{origin}, line {line}: the character {_character(error.character)} is not allowed. Remove it."
        )
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return f"{origin}: not valid YAML: {error}."
    mark = error.problem_mark
    problem = str(error.problem)
    line = mark.line + 1
    before, rest = text[: mark.index], text[mark.index :]
    if "end of stream" in problem and error.context_mark is not None:
        # Report the line of the opening quote, not the end of the file.
        line = error.context_mark.line + 1
    if "\t" in before.rpartition("\n")[2] + rest[:1]:
        cause = "Replace the tab by blanks."
    elif "',' or" in problem and rest.startswith("["):
        cause = 'Quote a name with brackets in a list: "fedcia[rounds=5]".'
    elif "flow" in str(error.context) and error.context_mark is not None:
        cause = f"Is the bracket on line {error.context_mark.line + 1} not closed, or a comma missing?"
    else:
        cause = next((cause for words, cause in _CAUSES if words in f"{error.context} {problem}"), "")
    return f"{origin}, line {line}: not valid YAML: {problem}.{' ' if cause else ''}{cause}"


def _character(character: object) -> str:
    code = ord(character) if isinstance(character, str) else character
    return f"U+{code:04X}"
