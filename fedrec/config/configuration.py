"""The configuration: `config/config.yaml`, further files, and the keys set on the command line.

Later ones override earlier ones key by key, as in Snakemake. The result is one document that knows the origin
of every key.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedrec.config.default_files import file_or_default
from fedrec.config.document import Document, KeyPath, read
from fedrec.errors import ConfigurationError
from fedrec.files.checked_json import CHECKSUM_KEY, verified

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
COMMAND_LINE = "from --config"
"""The origin of a key from the command line."""


@dataclass(frozen=True)
class Configuration(Document):
    """Documents laid over each other."""

    layers: tuple[Document, ...] = ()

    def location(self, key: KeyPath) -> str:
        """The location of a key: in the last layer that has it."""
        return self._layer(key).location(key)

    def line(self, key: KeyPath) -> int | None:
        """Its line there; None on the command line."""
        return self._layer(key).line(key)

    def from_anchor(self, key: KeyPath) -> bool:
        """Whether it got there by an anchor."""
        return self._layer(key).from_anchor(key)

    def _layer(self, key: KeyPath) -> Document:
        """The last layer that has the longest part of a key; the first layer if none has any part."""
        for length in range(len(key), 0, -1):
            for layer in reversed(self.layers):
                if layer.holds(key[:length]):
                    return layer
        return self.layers[0]


def read_configuration(paths: Sequence[Path], changes: Mapping[str, Any] | None = None) -> Configuration:
    """Read the files `paths`; later files override earlier ones, and `changes` override all files."""
    layers = [_whole(read(file_or_default(_as_typed(path))), path) for path in paths]
    if changes:
        layers.append(Document(COMMAND_LINE, {key: _typed(value) for key, value in changes.items()}))
    content: dict[str, Any] = {}
    for layer in layers:
        content = _laid_over(content, layer.content)
    return Configuration(layers[0].origin, content, layers=tuple(layers))


def _whole(document: Document, path: Path) -> Document:
    """Verify a document that carries a checksum: the configuration that Snakemake stores with the results."""
    if CHECKSUM_KEY not in document.content:
        return document
    try:
        return replace(document, content=verified(path.read_bytes()))
    except ValueError as error:
        raise ConfigurationError(
            f"{path}: the file is damaged: {error}. Delete it; Snakemake writes it again at its next start."
        ) from None


def _as_typed(path: Path) -> Path:
    """A path relative to the current folder if possible; Snakemake makes all paths absolute."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _typed(value: object) -> object:
    """Convert texts of the command line to numbers and nulls: Snakemake leaves texts inside lists."""
    if isinstance(value, Mapping):
        return {key: _typed(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_typed(part) for part in value]
    if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
        return int(value)
    return None if value == "null" else value


def _laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        both = isinstance(under, Mapping) and isinstance(value, Mapping)
        merged[key] = _laid_over(dict(under or {}), value) if both else value
    return merged
